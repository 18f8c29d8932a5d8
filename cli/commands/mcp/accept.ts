import { exactLine, exactText } from "../../../lib/base/text.ts";
import type { McpServerInfo } from "../../../lib/base/records/extension_views.ts";
import { type CommandContext, CommandError, defineCliCommand } from "../../command.ts";
import { learnTools, type ReachedGateway, withGateway } from "../../reach_gateway.ts";
import { requireYes } from "../../terminal/require_yes.ts";
import { sayWithoutGateway } from "./list.ts";

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

/** Server with the tools that wait, as the gateway shows it. */
type ListedServer = Pick<McpServerInfo, "name" | "reason" | "listed_at" | "last_error"> & {
  readonly changes: readonly ListedChange[];
};

/** Command `postern mcp changes <name>`: shows the tools of a server that are not offered, with what differs. */
export const mcpChangesCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern mcp changes files",
  run: (context, { name }) =>
    withGateway(context, async (gateway) => {
      await learnTools(gateway, context);
      const server = await serverOf(gateway, name);
      const { changes } = server;
      context.print(changes, changes.length === 0 ? sayNone(server) : describe(changes));
      sayWithoutGateway(context, gateway);
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
      const waiting = (await serverOf(gateway, name)).changes.filter((change) =>
        tool === undefined || change.tool === tool
      );
      if (waiting.length === 0) {
        throw new CommandError(
          `Cannot accept anything: no ${tool === undefined ? "tool" : "such tool"} of "${name}" waits`,
        );
      }
      if (yes !== true) await askToAccept(context, waiting, name);
      const body = { digests: waiting.map(({ digest }) => digest) };
      const reply = await gateway.call("POST /v1/mcp-servers/:name/accept", { params: { name }, body });
      const names = waiting.map((change) => exactLine(change.tool)).join(", ");
      context.print(reply, `Offered from now on: ${names}`);
    }),
});

/** Shows what differs and asks the person for consent. @throws {CommandError} it was not given */
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

/** Says that no tool waits, or why nobody can tell. */
function sayNone({ name, reason, listed_at: listedAt, last_error: failed }: ListedServer): string {
  if (reason !== null) return `No tool of ${exactLine(name)} is offered: ${exactLine(reason)}`;
  if (listedAt !== null) return `All tools of ${exactLine(name)} are offered`;
  const why = failed === null ? "nobody has asked it yet" : exactLine(failed.message);
  return `The tools of ${exactLine(name)} are not known: ${why}`;
}

async function serverOf(gateway: ReachedGateway, name: string): Promise<ListedServer> {
  return await gateway.call("GET /v1/mcp-servers/:name", { params: { name } });
}
