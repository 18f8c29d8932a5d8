import type { Approval } from "../../lib/base/records/approval.ts";
import { askPerson } from "../terminal/ask_person.ts";
import { type CommandContext, defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { type ReachedGateway, reachGateway } from "../reach_gateway.ts";
import { INPUT_ARG, readInput } from "./read_input.ts";
import { harmless } from "../terminal/terminal_text.ts";
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
    approval: {
      type: "string",
      valueHint: "id",
      description: "An approval of this very call that was given meanwhile",
    },
  },
  example: `postern tools call read_file --input '{"path": "README.md"}'`,
  async run(context, args) {
    const input = toInput(await readInput(args.input ?? "{}", context.io));
    const gateway = await reachGateway(context, { agent: false });
    try {
      findTool(await listTools(gateway), args.tool);
      const calls = { name: args.tool, input, approved: args.yes === true };
      const reply = await call(gateway, { ...calls, approvalId: args.approval });
      const { approval_id: id } = reply;
      // The person at the terminal is the approver; without a terminal an ask stays a denial, and the question stays open
      if (id === undefined || args.approval !== undefined) return show(context, reply);
      if (!context.io.isTerminal.stderr) return show(context, await unanswered(gateway, { ...reply, id }));
      switch (await askPerson(context, gateway, { id, inRun: false })) {
        case "approve":
          return show(context, await call(gateway, { ...calls, approvalId: id }));
        case "deny":
          return show(context, { output: `Cannot call "${args.tool}": it was not approved`, is_error: true });
        case undefined:
          return show(context, await unanswered(gateway, { ...reply, id }));
      }
    } finally {
      await gateway.close();
    }
  },
});

interface Call {
  readonly name: string;
  readonly input: unknown;
  readonly approved: boolean;
  readonly approvalId: string | undefined;
}

async function call(gateway: ReachedGateway, { name, input, approved, approvalId }: Call): Promise<CallReply> {
  const body = { input, approved, ...(approvalId === undefined ? {} : { approval_id: approvalId }) };
  return await gateway.request({
    method: "POST",
    path: `/v1/tools/${encodeURIComponent(name)}/call`,
    body,
  }) as CallReply;
}

/** The question that stays open, in the words of this command. */
async function unanswered(gateway: ReachedGateway, reply: CallReply & { readonly id: string }): Promise<CallReply> {
  const { id, ...denied } = reply;
  const path = `/v1/approvals/${encodeURIComponent(id)}`;
  const { reason, expires_at: until } = await gateway.request({ method: "GET", path }) as Approval;
  return {
    ...denied,
    output: `${reason}. --yes approves it at once. A person may approve it as "${id}" until ${until}, with ` +
      `postern approvals approve ${id}: then repeat this call with --approval ${id}`,
  };
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
