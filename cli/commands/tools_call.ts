import { type CommandContext, defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { type ReachedGateway, reachGateway } from "../reach_gateway.ts";
import { INPUT_ARG, readInput } from "../read_input.ts";
import { harmless } from "../terminal_text.ts";
import { findTool, listTools } from "./tools.ts";

interface CallReply {
  readonly output: string;
  readonly is_error: boolean;
  readonly data?: unknown;
  readonly approval_id?: string;
}

/** `postern tools call`: exit 0, 1 when the tool fails or the call is denied, 2 for a wrong command line (DESIGN.md section 8). */
export const toolsCallCommand = defineCliCommand({
  args: {
    tool: { type: "positional", required: true, description: "Name of the tool, from postern tools list" },
    input: INPUT_ARG,
    yes: { type: "boolean", description: "Approve the call where the policy would ask" },
  },
  example: `postern tools call read_file --input '{"path": "README.md"}'`,
  async run(context, args) {
    const input = toInput(await readInput(args.input ?? "{}", context.io));
    const gateway = await reachGateway(context, { agent: false });
    try {
      findTool(await listTools(gateway), args.tool);
      const reply = await call(gateway, { name: args.tool, input, approved: args.yes === true });
      const final = args.yes === true ? reply : await askPerson(context, { gateway, name: args.tool, input, reply });
      return show(context, final);
    } finally {
      await gateway.close();
    }
  },
});

interface Call {
  readonly name: string;
  readonly input: unknown;
  readonly approved: boolean;
}

async function call(gateway: ReachedGateway, { name, input, approved }: Call): Promise<CallReply> {
  const body = { input, ...(approved ? { approved } : {}) };
  return await gateway.request({
    method: "POST",
    path: `/v1/tools/${encodeURIComponent(name)}/call`,
    body,
  }) as CallReply;
}

/** The person at the terminal is the approver; without a terminal an ask stays a denial. */
async function askPerson(
  { io, say }: CommandContext,
  pending: {
    readonly gateway: ReachedGateway;
    readonly name: string;
    readonly input: unknown;
    readonly reply: CallReply;
  },
): Promise<CallReply> {
  const { gateway, name, input, reply } = pending;
  if (reply.approval_id === undefined) return reply;
  say(harmless(`${reply.output}\n${name} ${typeof input === "string" ? input : JSON.stringify(input, null, 2)}`));
  const answer = await io.ask("Run this call? [y/N] ");
  return /^y(es)?$/i.test(answer?.trim() ?? "") ? await call(gateway, { name, input, approved: true }) : reply;
}

function show({ io, flags, say }: CommandContext, reply: CallReply): number {
  if (flags.json) io.stdout(`${JSON.stringify(reply, null, 2)}\n`);
  else if (reply.is_error) say(harmless(reply.output));
  else io.stdout(io.isTerminal.stdout ? `${harmless(reply.output)}\n` : withNewline(reply.output));
  return reply.is_error ? EXIT.failed : EXIT.ok;
}

function withNewline(text: string): string {
  return text.endsWith("\n") ? text : `${text}\n`;
}

/** A JSON object goes as one; anything else is the tool's text form. */
function toInput(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : text;
  } catch {
    return text;
  }
}
