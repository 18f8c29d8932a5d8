import { type CommandContext, CommandError, defineCliCommand, UsageError } from "../../command.ts";
import { withGateway } from "../../reach_gateway.ts";
import { printable } from "../../terminal/terminal_text.ts";

const SERVER = {
  type: "positional",
  required: true,
  description: "Name of the server, as in [mcp.servers.<name>]",
} as const;

/** Command `postern mcp prompts <server> [name]`: lists the prompts of a server, or shows one filled in. */
export const mcpPromptsCommand = defineCliCommand({
  args: {
    server: SERVER,
    name: { type: "positional", required: false, description: "Name of a prompt; without it they are listed" },
    "...values": { type: "positional", required: false, description: "Values of its arguments, as topic=beans" },
  },
  example: "postern mcp prompts files summary path=notes.md",
  run: (context, { server, name, _: rest }) => {
    // The server and the prompt stand first
    const values = Object.fromEntries(rest.slice(2).map(toValue));
    const input = name === undefined ? { server } : { server, name, arguments: values };
    return read(context, "mcp_prompt", input);
  },
});

/** Command `postern mcp resources <server> [uri]`: lists the resources of a server, or shows one. */
export const mcpResourcesCommand = defineCliCommand({
  args: {
    server: SERVER,
    uri: { type: "positional", required: false, description: "URI of a resource; without it they are listed" },
  },
  example: "postern mcp resources files file:///notes.md",
  run: (context, { server, uri }) => read(context, "mcp_resource", uri === undefined ? { server } : { server, uri }),
});

/** @throws {UsageError} a word without `=` */
function toValue(word: string): [name: string, value: string] {
  const end = word.indexOf("=");
  if (end > 0) return [word.slice(0, end), word.slice(end + 1)];
  throw new UsageError(`Cannot read "${word.slice(0, 64)}": give a value as name=value`);
}

/** Reads by the agent's own tool. The person at the terminal approves the call by making it. */
function read(context: CommandContext, tool: string, input: Readonly<Record<string, unknown>>): Promise<number> {
  return withGateway(context, async (gateway) => {
    const body = { input, approved: true };
    const reply = await gateway.call("POST /v1/tools/:name/call", { params: { name: tool }, body });
    if (reply.is_error) throw new CommandError(printable(reply.output));
    context.print(reply, context.io.isTerminal.stdout ? printable(reply.output) : reply.output);
  });
}
