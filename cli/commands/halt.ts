import { haltedPart } from "../../lib/base/records/gateway_status.ts";
import { defineCliCommand } from "../command.ts";
import { withGateway } from "../reach_gateway.ts";

const ARGS = {
  all: { type: "boolean", description: "Everything: no work begins, runs and calls are stopped, schedules wait" },
  network: { type: "boolean", description: "Every call that reaches the network" },
  writes: { type: "boolean", description: "Every call that reaches the network or changes something" },
  tool: { type: "string", valueHint: "name", description: "The calls of one tool" },
  run: { type: "string", valueHint: "id", description: "One run" },
} as const;

/** Command `postern halt`: stops work at once, at every gateway of the database. */
export const haltCommand = defineCliCommand({
  args: ARGS,
  example: "postern halt --network",
  run: (context, given) =>
    withGateway(context, async (gateway) => {
      const halts = [];
      const kinds = kindsOf(given);
      for (const kind of kinds.length === 0 ? ["all" as const] : kinds) {
        const name = kind === "tool" || kind === "run" ? given[kind] : undefined;
        halts.push(await gateway.call("POST /v1/halts", { body: { kind, name } }));
      }
      context.print(halts, halts.map((halt) => `Halted: ${haltedPart(halt)}`).join("\n"));
      context.say("postern resume lets it go on; runs that were stopped do not go on.");
    }),
});

/** Command `postern resume`: lets halted work go on. */
export const resumeCommand = defineCliCommand({
  args: ARGS,
  example: "postern resume",
  run: (context, given) =>
    withGateway(context, async (gateway) => {
      const resumed: string[] = [];
      const ids = kindsOf(given).map((kind) => kind === "tool" || kind === "run" ? `${kind}:${given[kind]}` : kind);
      for (const id of ids.length === 0 ? [undefined] : ids) {
        resumed.push(...(await gateway.call("DELETE /v1/halts", { query: { id } })).resumed);
      }
      context.print({ resumed }, resumed.length === 0 ? "Nothing of it is halted" : `Goes on: ${resumed.join(", ")}`);
    }),
});

/** Returns the kinds of halts that flags name. */
function kindsOf(given: { readonly [kind in keyof typeof ARGS]?: boolean | string | undefined }) {
  const kinds = ["all", "network", "writes", "tool", "run"] as const;
  return kinds.filter((kind) => given[kind] !== undefined && given[kind] !== false);
}
