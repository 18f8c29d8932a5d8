import { procedureText } from "../../lib/tools/sops/sop_list.ts";
import type { SopCatalogue } from "../../lib/tools/sops/sops.ts";
import { CommandError, defineCliCommand, UsageError } from "../command.ts";
import { withGateway } from "../reach_gateway.ts";
import { INPUT_ARG, readInput, toInput, useTool } from "./tools.ts";

/** Command `postern procedure list`: procedures, files that are none, and executions that are open. */
export const procedureListCommand = defineCliCommand({
  args: {},
  example: "postern procedure list",
  run: (context) => withGateway(context, (gateway) => useTool(context, gateway, { tool: "sop_list", input: {} })),
});

/** Command `postern procedure show <id>`: a procedure, or an execution of one. */
export const procedureShowCommand = defineCliCommand({
  args: {
    id: { type: "positional", required: true, description: "Id of the procedure, or of an execution (sop_...)" },
  },
  example: "postern procedure show deploy",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      if (id.startsWith("sop_")) {
        return await useTool(context, gateway, { tool: "sop_status", input: { execution_id: id } });
      }
      const find = (data: unknown) => {
        // The data of sop_list; tests hold what it gives
        const found = (data as SopCatalogue).sops.find((sop) => sop.id === id);
        if (found === undefined) {
          throw new CommandError(`Cannot find the procedure "${id}": see postern procedure list`);
        }
        return found;
      };
      const shown = { toData: find, toText: (data: unknown) => procedureText(find(data)) };
      await useTool(context, gateway, { tool: "sop_list", input: {}, ...shown });
    }),
});

/** Command `postern procedure start <id>`: starts a procedure in the running gateway. */
export const procedureStartCommand = defineCliCommand({
  args: {
    id: { type: "positional", required: true, description: "Id of the procedure, from postern procedure list" },
    "...values": { type: "positional", required: false, description: "Its inputs, such as branch=main" },
    input: { ...INPUT_ARG, description: "Inputs in place of the values: JSON, @file, or - for standard input" },
  },
  example: "postern procedure start deploy branch=main",
  async run(context, { id, input, _: words }) {
    const values = words.slice(1).map((word) => {
      const [, name, text = ""] = /^([^=]+)=(.*)$/s.exec(word) ?? [];
      if (name === undefined) throw new UsageError(`Cannot use the input "${word}": write it as name=value`);
      return [name, text] as const;
    });
    const inputs = input === undefined ? Object.fromEntries(values) : toInput(await readInput(input, context.io));
    return await withGateway(context, async (gateway) => {
      if (gateway.running === undefined) {
        const way = "start one with postern gateway";
        throw new CommandError(`Cannot start "${id}": no gateway is running on this data directory; ${way}`);
      }
      await useTool(context, gateway, { tool: "sop_execute", input: { sop: id, inputs } });
    });
  },
});
