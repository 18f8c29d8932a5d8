import { type Halt, haltedPart } from "../../lib/base/records/gateway_status.ts";
import { type CommandContext, defineCliCommand } from "../command.ts";
import { withGateway } from "../reach_gateway.ts";

const ALL = "everything: no work begins, runs and calls at work are stopped, schedules wait";
const flags = (verb: string) => ({
  all: { type: "boolean", description: `${verb} ${ALL} (default)` },
  network: { type: "boolean", description: `${verb} every call that reaches the network` },
  writes: { type: "boolean", description: `${verb} every call that reaches the network or changes something` },
  tool: { type: "string", valueHint: "name", description: `${verb} the calls of one tool` },
  run: { type: "string", valueHint: "id", description: `${verb} one run` },
} as const);

interface Given {
  readonly all?: boolean | undefined;
  readonly network?: boolean | undefined;
  readonly writes?: boolean | undefined;
  readonly tool?: string | undefined;
  readonly run?: string | undefined;
}

type Named = Pick<Halt, "kind" | "name">;

/** Command `postern halt`: stops work at once, at every gateway of the database. */
export const haltCommand = defineCliCommand({
  args: flags("Halt"),
  example: "postern halt --network",
  run: (context, given) =>
    withGateway(context, async (gateway) => {
      const halts: Halt[] = [];
      for (const { kind, name } of named(given, "all")) {
        halts.push(await gateway.call("POST /v1/halts", { body: { kind, ...(name === null ? {} : { name }) } }));
      }
      context.print(halts, `${halts.map((halt) => `Halted: ${haltedPart(halt)}`).join("\n")}\n${wayBack(context)}`);
    }),
});

/** Command `postern resume`: lets halted work go on. */
export const resumeCommand = defineCliCommand({
  args: {
    ...flags("Lift the halt of"),
    all: { type: "boolean", description: "Lift the halt of everything alone, and no other (default: every halt)" },
  },
  example: "postern resume",
  run: (context, given) =>
    withGateway(context, async (gateway) => {
      const ids: string[] = [];
      const meant = named(given, undefined);
      for (const { kind, name } of meant) {
        const id = name === null ? kind : `${kind}:${name}`;
        ids.push(...(await gateway.call("DELETE /v1/halts/:id", { params: { id } })).resumed);
      }
      if (meant.length === 0) ids.push(...(await gateway.call("DELETE /v1/halts")).resumed);
      context.print({ resumed: ids }, ids.length === 0 ? "Nothing is halted" : `Goes on: ${ids.join(", ")}`);
      if (ids.length > 0) context.say("Runs that were stopped do not go on by themselves.");
    }),
});

/** Returns the halts that flags name. @param otherwise kind where no flag is given. Undefined: none */
function named({ all, network, writes, tool, run }: Given, otherwise: "all" | undefined): readonly Named[] {
  const found: readonly Named[] = [
    ...(all ? [{ kind: "all", name: null } as const] : []),
    ...(network ? [{ kind: "network", name: null } as const] : []),
    ...(writes ? [{ kind: "writes", name: null } as const] : []),
    ...(tool === undefined ? [] : [{ kind: "tool", name: tool } as const]),
    ...(run === undefined ? [] : [{ kind: "run", name: run } as const]),
  ];
  return found.length > 0 || otherwise === undefined ? found : [{ kind: otherwise, name: null }];
}

function wayBack({ named: words }: Pick<CommandContext, "named">): string {
  return `${words("postern resume")} lets it go on; runs that were stopped do not.`;
}
