import { cutText, exactLine, exactText } from "../../lib/base/text.ts";
import { type Approval, APPROVAL_STATUSES, REMEMBER, RULE_MATCHES } from "../../lib/base/records/approval.ts";
import { sayAsker } from "../../lib/guard/approvals.ts";
import { isEnded } from "../../lib/base/records/run.ts";
import { type CommandContext, CommandError, defineCliCommand, UsageError } from "../command.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { askForm, describeElicitation } from "../terminal/ask_form.ts";
import { describeOffers, shownApproval, shownOffers } from "../terminal/ask_person.ts";
import { messageColumns, toTable } from "../terminal/terminal_text.ts";
import { readInput } from "./tools.ts";

const ID = {
  type: "positional",
  required: true,
  description: "Id of the approval, from postern approval list",
} as const;
const NOTE = {
  type: "string",
  valueHint: "text",
  description: "Note kept with the answer; the model reads the note of a denial",
} as const;

const MAX_SHOWN = 100;
/** Number of characters that a list shows of an input */
const MAX_INPUT_LISTED = 60;

/** Command `postern approval list`: tool calls that wait for an answer, or approvals of another status. */
export const approvalsListCommand = defineCliCommand({
  args: {
    status: {
      type: "enum",
      options: [...APPROVAL_STATUSES, "any"],
      valueHint: "status",
      description: `${APPROVAL_STATUSES.join(", ")}, or any (default: pending)`,
    },
  },
  example: "postern approval list",
  run: (context, { status = "pending" }) =>
    withGateway(context, async (gateway) => {
      const query = { limit: MAX_SHOWN, status: status === "any" ? undefined : status };
      const { data, has_more } = await gateway.call("GET /v1/approvals", { query });
      const rows = data.map((approval) => [
        approval.id,
        approval.status,
        approval.tool,
        approval.created_at,
        approval.expires_at,
        listedWords(approval),
      ]);
      const none = status === "pending" ? "No call waits for an answer" : "There is no such approval";
      context.print(
        data,
        rows.length === 0
          ? none
          : toTable(["ID", "STATUS", "TOOL", "ASKED", "EXPIRES", "INPUT"], rows, context.io.columns),
      );
      if (has_more) context.say(`These are the newest ${MAX_SHOWN}; there are more.`);
    }),
});

/** Returns the input of a call, or what its server asks, in a few words. */
function listedWords(approval: Approval): string {
  const { kind, message = "", input, input_digest: digest } = approval;
  if (kind !== "elicitation") {
    return cutText(exactLine(JSON.stringify(input) ?? "null"), { limit: MAX_INPUT_LISTED, digest });
  }
  const words = exactLine(`${sayAsker(approval)} asks: ${message}`);
  return words.length <= MAX_INPUT_LISTED ? words : `${words.slice(0, MAX_INPUT_LISTED)}...`;
}

/** Command `postern approval show <id>`: the whole input of a call, and the rules that an answer may store. */
export const approvalsShowCommand = defineCliCommand({
  args: { id: ID },
  example: "postern approval show apr_0123456789",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const approval = await gateway.call("GET /v1/approvals/:id", { params: { id } });
      const { status, created_at, expires_at, answered_at, answered_by, note } = approval;
      const answered = answered_at === null
        ? ""
        : `\nSettled ${answered_at}${answered_by === null ? "" : ` by ${answered_by}`}`;
      const times = `Asked ${created_at}, expires ${expires_at}${answered}${note === null ? "" : `\nNote: ${note}`}`;
      const text = `${shownApproval(approval, { columns: context.io.columns, whole: true })}\n${
        describeOffers(approval)
      }`;
      context.print(approval, `${approval.id}: ${status}\n\n${text}\n\n${exactText(times)}`);
    }),
});

/** Command `postern approval approve <id>`: approves one call and, with --remember, later calls like it. */
export const approvalsApproveCommand = defineCliCommand({
  args: {
    id: ID,
    remember: {
      type: "enum",
      options: [...REMEMBER],
      valueHint: "how long",
      description: "How long the answer counts: once, run (for the rest of the run) or always (default: once)",
    },
    match: {
      type: "enum",
      options: [...RULE_MATCHES],
      valueHint: "what",
      description:
        "What is remembered: this exact call, this tool in this folder, or this command with its first argument (default: call)",
    },
    content: {
      type: "string",
      valueHint: "json",
      description:
        "What a server asks for, as a JSON object, @file or - for standard input (default: the terminal asks for each field)",
    },
    input: {
      type: "string",
      valueHint: "json",
      description:
        "Input that the call is made with in place of its own, as a JSON object, @file or - for standard input",
    },
    note: NOTE,
  },
  example: "postern approval approve apr_0123456789 --remember always --match folder",
  async run(context, { id, remember, match, note, content, input }) {
    const given = content === undefined ? undefined : toObject("content", await readInput(content, context.io));
    const edited = input === undefined ? undefined : toObject("input", await readInput(input, context.io));
    return await answer(context, id, { decision: "approve", remember, match, note, content: given, input: edited });
  },
});

/** Command `postern approval deny <id>`: denies one call. */
export const approvalsDenyCommand = defineCliCommand({
  args: { id: ID, note: NOTE },
  example: 'postern approval deny apr_0123456789 --note "not this file"',
  run: (context, { id, note }) => answer(context, id, { decision: "deny", note }),
});

interface Answer {
  readonly decision: "approve" | "deny";
  readonly remember?: string | undefined;
  readonly match?: string | undefined;
  readonly note?: string | undefined;
  readonly content?: Readonly<Record<string, unknown>> | undefined;
  readonly input?: Readonly<Record<string, unknown>> | undefined;
}

/** @throws {UsageError} a text that is no JSON object */
function toObject(option: string, text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    // The gateway checks each field
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Text that is no JSON is refused like a value that is no object
  }
  throw new UsageError(`Cannot read --${option}: it must be a JSON object, such as '{"name": "Ada"}'`);
}

function answer(context: CommandContext, id: string, given: Answer): Promise<number> {
  return withGateway(context, async (gateway) => {
    const body = await filledIn(context, gateway, { id, body: given });
    if (!await agrees(context, gateway, { id, body })) {
      throw new CommandError("The rule is not stored, and the call not approved");
    }
    const reply = await gateway.call("POST /v1/approvals/:id", { params: { id }, body });
    const { status, stored_rule: rule, run_status: run } = reply;
    const stored = rule === null ? "" : `\nStored ${rule.id}: ${rule.text}`;
    context.print(reply, exactText(`${id}: ${status}${stored}`));
    if (status === "approved" && run !== null && isEnded(run)) {
      context.say("The run that asked has ended meanwhile, so its call is not made: send its message again");
    }
  });
}

/**
 * Returns the answer with the form that a server asks for, where a person at the terminal can fill it in. The gateway names the field that
 * is missing otherwise.
 */
async function filledIn(
  { io, say, flags }: CommandContext,
  gateway: ReachedGateway,
  { id, body }: { readonly id: string; readonly body: Answer },
): Promise<Answer> {
  if (body.decision === "deny" || body.content !== undefined || !io.canAsk || flags.json) return body;
  const approval = await gateway.call("GET /v1/approvals/:id", { params: { id } });
  if (approval.kind !== "elicitation" || approval.status !== "pending") return body;
  say(describeElicitation(approval, { columns: messageColumns(io) }));
  const answered = await askForm({ io, say }, approval);
  if (answered?.decision !== "approve") throw new CommandError("Nothing was sent: the question still waits");
  return { ...body, ...answered };
}

/** Shows the rule that an answer would store, before it is stored. A person at the terminal must confirm it. */
async function agrees(
  { io, say }: CommandContext,
  gateway: ReachedGateway,
  { id, body: { remember = "once", match = "call" } }: { readonly id: string; readonly body: Answer },
): Promise<boolean> {
  if (remember === "once") return true;
  const approval = await gateway.call("GET /v1/approvals/:id", { params: { id } });
  const offer = shownOffers(approval).find((each) => each.remember === remember && each.match === match);
  // The gateway refuses with the reason
  if (offer === undefined || approval.status !== "pending") return true;
  say(`This rule is stored, until you revoke it:\n  ${exactLine(offer.text)}`);
  if (!io.canAsk) return true;
  const line = await io.ask("Store it, and approve the call? [y/N] ");
  return /^\s*(y|yes)\s*$/i.test(line ?? "");
}

/** Command `postern approval rules`: lists remembered answers. */
export const approvalsRulesCommand = defineCliCommand({
  args: {},
  example: "postern approval rules",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const { data } = await gateway.call("GET /v1/approval-rules");
      const rows = data.map(({ id, scope, created_at, text }) => [id, scope, created_at, text]);
      context.print(
        data,
        rows.length === 0
          ? "No answer is remembered"
          : toTable(["ID", "SCOPE", "SINCE", "RULE"], rows, context.io.columns),
      );
    }),
});

/** Command `postern approval revoke <rule>`: forgets a remembered answer, so that such calls are asked about again. */
export const approvalsRevokeCommand = defineCliCommand({
  args: { rule: { type: "positional", required: true, description: "Id of the rule, from postern approval rules" } },
  example: "postern approval revoke rule_0123456789",
  run: (context, { rule }) =>
    withGateway(context, async (gateway) => {
      const reply = await gateway.call("DELETE /v1/approval-rules/:id", { params: { id: rule } });
      context.print(reply, `Revoked ${rule}`);
    }),
});
