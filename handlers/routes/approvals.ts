import * as v from "valibot";
import { refuse, ToolError } from "../../lib/base/errors.ts";
import {
  type Approval,
  APPROVAL_ID,
  APPROVAL_STATUSES,
  approvalDescriptionSchema,
  type ApprovalRule,
  approvalRuleSchema,
  approvalSchema,
  REMEMBER,
  RULE_ID,
  RULE_MATCHES,
} from "../../lib/base/records/approval.ts";
import { runStatusSchema } from "../../lib/base/records/run.ts";
import type { Services } from "../../lib/services.ts";
import { describeApproval } from "../../lib/guard/describe_approval.ts";
import {
  editNotTaken,
  movedSince,
  notEditable,
  settledBefore,
  unknownApproval,
} from "../../lib/guard/approval_refusals.ts";
import { APPROVAL_LIMITS, type EditedCall } from "../../lib/guard/approvals.ts";
import { defineRoute, type RouteInput } from "../define_route.ts";
import { choiceQuery, LIMIT_QUERY, listReply, listSchema, textQuery } from "../wire/lists.ts";
import { jsonReply, type Reply } from "../wire/reply.ts";

const answerSchema = v.strictObject({
  decision: v.picklist(["approve", "deny"]),
  /** `run`: in this run; `always`: for good. What is stored is the text of the approval's `offers`. Default `once` */
  remember: v.optional(v.picklist(REMEMBER)),
  /** With `run` or `always`: the exact call, the tool in this folder, or the command with its first argument. Default `call` */
  match: v.optional(v.picklist(RULE_MATCHES)),
  note: v.optional(v.pipe(v.string(), v.maxLength(APPROVAL_LIMITS.noteCharacters))),
  /** With `approve` of an approval of kind `elicitation`: the fields of its `schema` */
  content: v.optional(v.record(v.string(), v.unknown())),
  /** With `approve` of an approval that is `editable`: the input that the call is made with in place of its own */
  input: v.optional(v.record(v.string(), v.unknown())),
});

const shownSchema = v.object({
  ...approvalSchema.entries,
  /** The words for the person who answers, for a client that shows them */
  description: approvalDescriptionSchema,
});

const answeredSchema = v.object({
  ...shownSchema.entries,
  stored_rule: v.nullable(approvalRuleSchema),
  /** Status of the run that waits for the answer; null when no run is recorded. A run that has ended makes no more calls */
  run_status: v.nullable(runStatusSchema),
});

/** GET /v1/approvals: tool calls that wait for a person, and the answers, newest first. */
export const approvalsRoute = defineRoute({
  method: "GET",
  path: "/v1/approvals",
  access: "approve",
  strict: true,
  needs: ["approvals"],
  summary: "Approvals of tool calls, waiting and answered, newest first",
  query: {
    status: choiceQuery("Only those in this state", APPROVAL_STATUSES),
    limit: LIMIT_QUERY,
    after: textQuery("Only those older than this id"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(shownSchema) },
  async handle(parts, { query }) {
    // Whoever looks at what waits can be asked
    parts.approvals.askers.looked();
    const { approvals, hasMore } = await parts.approvals.list(query);
    return listReply(approvals.map(toShown), hasMore);
  },
});

/** GET /v1/approvals/:id: one approval. */
export const approvalRoute = defineRoute({
  method: "GET",
  path: "/v1/approvals/:id",
  access: "approve",
  strict: true,
  needs: ["approvals"],
  params: { id: { type: "string", pattern: APPROVAL_ID.source } },
  summary: "One approval, with the exact input of its tool call",
  reply: { status: 200, type: "application/json", schema: shownSchema },
  async handle(parts, { params }) {
    const approval = await parts.approvals.get(params.id);
    if (approval === undefined) throw unknownApproval();
    return jsonReply(200, toShown(approval));
  },
});

/** POST /v1/approvals/:id: answers an approval. The first of two answers counts. */
export const answerApprovalRoute = defineRoute({
  method: "POST",
  path: "/v1/approvals/:id",
  access: "approve",
  strict: true,
  needs: ["approvals", "agent", "tools", "workspaceRoot"],
  params: { id: { type: "string", pattern: APPROVAL_ID.source } },
  summary: "Approve or deny a call, or answer what a server asks; what is remembered comes back as stored_rule",
  body: answerSchema,
  reply: { status: 200, type: "application/json", schema: answeredSchema },
  idempotency: "honoured",
  // An answer counts once, so the approval itself tells whether the first request took effect
  async repeat(parts, input) {
    const { approvals } = parts;
    const approval = await approvals.get(input.params.id);
    if (approval?.status !== (input.body.decision === "approve" ? "approved" : "denied")) {
      return await answer(parts, input);
    }
    return await answered(parts, approval, (await approvals.rules()).find((rule) => rule.approval_id === approval.id));
  },
  handle: answer,
});

type AnswerParts = Pick<Services, "approvals" | "agent" | "tools" | "workspaceRoot">;

async function answer(
  parts: AnswerParts,
  { params, body, caller, signal }: RouteInput<{ readonly id: string }, unknown, v.InferOutput<typeof answerSchema>>,
): Promise<Reply> {
  const { decision, remember, match, note, content, input } = body;
  const edit = input === undefined ? undefined : await editOf(params.id, { input, signal }, parts);
  const given = { decision, remember, match, note, content, edit, by: caller };
  const { approval, rule } = await parts.approvals.answer(params.id, given);
  return await answered(parts, approval, rule);
}

/**
 * Returns the call that a person puts in the place of the one that waits: checked by the tool's schema, decided by the policy, and bound as
 * things are now. The call decides and compares once more before it runs.
 * @throws {HttpError} 400 invalid_request for an input that does not fit; 409 conflict for a call that may not be made
 */
async function editOf(
  id: string,
  { input, signal }: { readonly input: Readonly<Record<string, unknown>>; readonly signal: AbortSignal },
  { approvals, tools, workspaceRoot }: AnswerParts,
): Promise<EditedCall> {
  const approval = await approvals.get(id);
  if (approval === undefined) throw unknownApproval();
  if (approval.status !== "pending") throw settledBefore(approval.status);
  if (approval.editable !== true) throw notEditable(approval);
  const { tool, workspace } = approval;
  if (workspace !== workspaceRoot) throw movedSince();
  // The person saw the call as it was asked: its program, its containment and its network too
  const asked = await tools.bind(tool, JSON.stringify(approval.input), signal);
  if (!asked.ok || asked.binding.digest !== approval.digest) throw movedSince();
  if (tools.masked(input).length > 0) throw editNotTaken("it holds a known secret, which no question may have");
  const text = JSON.stringify(input);
  const judged = tools.judge(tool, text);
  if (judged?.kind === "bad_input") {
    throw editNotTaken(judged.error instanceof ToolError ? judged.error.message : "it does not fit");
  }
  const bound = await tools.bind(tool, text, signal);
  if (!bound.ok) throw refuse("conflict", `Cannot approve this input: ${bound.reason}`, { param: "input" });
  const { binding: { digest, files, bound: state, containment }, access, inputDigest, preview } = bound;
  return {
    ...await preview(),
    ...{ access, input, input_digest: inputDigest, digest, containment, bound: state },
    files: files.map(({ path, sha256 }) => ({ path, sha256 })),
  };
}

async function answered(
  { agent }: Pick<AnswerParts, "agent">,
  approval: Approval,
  rule: ApprovalRule | undefined,
): Promise<Reply> {
  const run = await agent?.runs.get(approval.run_id);
  return jsonReply(200, { ...toShown(approval), stored_rule: rule ?? null, run_status: run?.status ?? null });
}

function toShown(approval: Approval): v.InferOutput<typeof shownSchema> {
  return { ...approval, description: describeApproval(approval) };
}

/** GET /v1/approval-rules: every remembered answer. */
export const approvalRulesRoute = defineRoute({
  method: "GET",
  path: "/v1/approval-rules",
  access: "approve",
  strict: true,
  needs: ["approvals"],
  summary: "Answers that are remembered, newest first",
  reply: { status: 200, type: "application/json", schema: listSchema(approvalRuleSchema) },
  async handle(parts) {
    const rules = await parts.approvals.rules();
    return listReply(rules);
  },
});

/** DELETE /v1/approval-rules/:id: forgets a remembered answer. Calls that it allowed wait for a person again. */
export const revokeApprovalRuleRoute = defineRoute({
  method: "DELETE",
  path: "/v1/approval-rules/:id",
  access: "approve",
  strict: true,
  needs: ["approvals"],
  params: { id: { type: "string", pattern: RULE_ID.source } },
  summary: "Forget a remembered answer",
  reply: { status: 200, type: "application/json", schema: v.object({ id: v.string(), deleted: v.literal(true) }) },
  async handle({ approvals }, { params: { id }, caller }) {
    if (!await approvals.revoke(id, caller)) {
      throw refuse(
        "not_found",
        'Cannot find an approval rule with this id: "postern approval rules" and GET /v1/approval-rules show those that exist',
      );
    }
    return jsonReply(200, { id, deleted: true });
  },
});
