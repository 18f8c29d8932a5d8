import { type Approval, APPROVAL_STATUSES, type ApprovalRule, REMEMBER } from "../../lib/base/records/approval.ts";
import { isEnded, type RunStatus } from "../../lib/base/records/run.ts";
import { describeApproval } from "../ask_person.ts";
import { type CommandContext, defineCliCommand } from "../command.ts";
import { harmless } from "../terminal_text.ts";
import { toTable } from "../to_table.ts";
import { withGateway } from "../with_gateway.ts";

const ID = {
  type: "positional",
  required: true,
  description: "Id of the approval, from postern approvals list",
} as const;
const NOTE = {
  type: "string",
  valueHint: "text",
  description: "Kept with the answer; the model reads that of a denial",
} as const;

const MAX_SHOWN = 100;

/** `postern approvals list` */
export const approvalsListCommand = defineCliCommand({
  args: {
    status: {
      type: "enum",
      options: [...APPROVAL_STATUSES, "any"],
      valueHint: "status",
      description: `${APPROVAL_STATUSES.join(", ")}, or any (default: pending)`,
    },
  },
  example: "postern approvals list",
  run: (context, { status = "pending" }) =>
    withGateway(context, async (gateway) => {
      const only = status === "any" ? "" : `&status=${status}`;
      const path = `/v1/approvals?limit=${MAX_SHOWN}${only}`;
      const { data, has_more } = await gateway.request({ method: "GET", path }) as {
        data: readonly Approval[];
        has_more: boolean;
      };
      const rows = data.map(({ id, status, tool, input, created_at, expires_at }) => [
        id,
        status,
        tool,
        created_at,
        expires_at,
        JSON.stringify(input).slice(0, 60),
      ]);
      const none = status === "pending" ? "No call waits for an answer" : "There is no such approval";
      context.print(
        data,
        rows.length === 0 ? none : toTable(["ID", "STATUS", "TOOL", "ASKED", "EXPIRES", "INPUT"], rows),
      );
      if (has_more) context.say(`These are the newest ${MAX_SHOWN}; there are more.`);
    }),
});

/** `postern approvals show <id>` */
export const approvalsShowCommand = defineCliCommand({
  args: { id: ID },
  example: "postern approvals show apr_0123456789",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const approval = await gateway.request({ method: "GET", path: pathOf(id) }) as Approval;
      const { status, created_at, expires_at, answered_at, answered_by, note } = approval;
      const answered = answered_at === null
        ? ""
        : `\nSettled ${answered_at}${answered_by === null ? "" : ` by ${answered_by}`}`;
      const times = `Asked ${created_at}, expires ${expires_at}${answered}${note === null ? "" : `\nNote: ${note}`}`;
      context.print(approval, harmless(`${approval.id}: ${status}\n\n${describeApproval(approval)}\n\n${times}`));
    }),
});

/** `postern approvals approve <id>`: lets the one call through, or that very call from now on. */
export const approvalsApproveCommand = defineCliCommand({
  args: {
    id: ID,
    remember: {
      type: "enum",
      options: [...REMEMBER],
      valueHint: "how long",
      description: "once, run: the same call in this run, always: the same call for good (default: once)",
    },
    note: NOTE,
  },
  example: "postern approvals approve apr_0123456789",
  run: (context, { id, remember, note }) => answer(context, id, { decision: "approve", remember, note }),
});

/** `postern approvals deny <id>` */
export const approvalsDenyCommand = defineCliCommand({
  args: { id: ID, note: NOTE },
  example: 'postern approvals deny apr_0123456789 --note "not this file"',
  run: (context, { id, note }) => answer(context, id, { decision: "deny", note }),
});

interface Answer {
  readonly decision: "approve" | "deny";
  readonly remember?: string | undefined;
  readonly note?: string | undefined;
}

function answer(context: CommandContext, id: string, body: Answer): Promise<number> {
  return withGateway(context, async (gateway) => {
    const reply = await gateway.request({ method: "POST", path: pathOf(id), body }) as Approval & {
      readonly stored_rule: ApprovalRule | null;
      readonly run_status: RunStatus | null;
    };
    const { status, stored_rule: rule, run_status: run } = reply;
    const stored = rule === null ? "" : `\nStored ${rule.id}: ${rule.text}`;
    context.print(reply, harmless(`${id}: ${status}${stored}`));
    if (status === "approved" && run !== null && isEnded(run)) {
      context.say("The run that asked has ended meanwhile, so its call is not made: send its message again");
    }
  });
}

function pathOf(id: string): string {
  return `/v1/approvals/${encodeURIComponent(id)}`;
}
