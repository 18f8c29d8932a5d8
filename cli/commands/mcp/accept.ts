import { exactLine, exactText } from "../../../lib/base/text.ts";
import { type CommandContext, CommandError, defineCliCommand } from "../../command.ts";
import { type ReachedGateway, withGateway } from "../../reach_gateway.ts";
import { requireYes } from "../../terminal/require_yes.ts";
import { serverPath } from "./list.ts";

const NAME = {
  type: "positional",
  required: true,
  description: "Name of the server, as in [mcp.servers.<name>]",
} as const;

/** Tool that is not offered until somebody accepts it, as the gateway lists it. */
interface ListedChange {
  /** Name that the server gives it */
  readonly tool: string;
  readonly state: "changed" | "new";
  readonly digest: string;
  readonly difference: string;
}

/** Command `postern mcp changes <name>`: shows the tools of a server that are not offered, with what differs. */
export const mcpChangesCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern mcp changes files",
  run: (context, { name }) =>
    withGateway(context, async (gateway) => {
      const changes = await changesOf(gateway, name);
      context.print(changes, changes.length === 0 ? `All tools of ${exactLine(name)} are offered` : describe(changes));
    }),
});

/** Command `postern mcp accept <name>`: offers the tools of a server that have changed, or are new, once a person has seen them. */
export const mcpAcceptCommand = defineCliCommand({
  args: {
    name: NAME,
    tool: {
      type: "string",
      valueHint: "name",
      description: "Only this tool, by the server's own name for it (default: all)",
    },
    yes: { type: "boolean", description: "Accept without a question" },
  },
  example: "postern mcp accept files --tool read_file",
  run: (context, { name, tool, yes }) =>
    withGateway(context, async (gateway) => {
      const waiting = (await changesOf(gateway, name)).filter((change) => tool === undefined || change.tool === tool);
      if (waiting.length === 0) {
        throw new CommandError(
          `Cannot accept anything: no ${tool === undefined ? "tool" : "such tool"} of "${name}" waits`,
        );
      }
      if (yes !== true) await askToAccept(context, waiting, name);
      const body = { digests: waiting.map(({ digest }) => digest) };
      const reply = await gateway.request({ method: "POST", path: `${serverPath(name)}/accept`, body });
      const names = waiting.map((change) => exactLine(change.tool)).join(", ");
      context.print(reply, `Offered from now on: ${names}`);
    }),
});

/** Shows what differs and asks for the person's word. @throws {CommandError} it was not given */
async function askToAccept({ io, say }: CommandContext, waiting: readonly ListedChange[], name: string): Promise<void> {
  say(describe(waiting));
  await requireYes({ io }, "Your model reads these words. Accept them?", {
    unasked: `Cannot accept tools of "${name}": nobody can be asked here; --yes accepts them`,
    refused: "Nothing was accepted",
  });
}

function describe(changes: readonly ListedChange[]): string {
  return changes.map(({ tool, state, difference }) => `${exactLine(tool)} (${state})\n${exactText(difference)}`).join(
    "\n\n",
  );
}

async function changesOf(gateway: ReachedGateway, name: string): Promise<readonly ListedChange[]> {
  const reply = await gateway.request({ method: "GET", path: serverPath(name) }) as {
    readonly changes: readonly ListedChange[];
  };
  return reply.changes;
}
