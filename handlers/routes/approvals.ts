import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
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
import { describeApproval } from "../../lib/guard/describe_approval.ts";
import { unknownApproval } from "../../lib/guard/approval_refusals.ts";
import { APPROVAL_LIMITS } from "../../lib/guard/approvals.ts";
import type { RequestContext, Route } from "../route.ts";
import { readJson, strictRoute } from "../wire/read_json.ts";
import { callerOf } from "../door.ts";
import { choiceOf, choiceQuery, LIMIT_QUERY, listReply, listSchema, pageOf, textQuery } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

const answerSchema = v.strictObject({
  decision: v.picklist(["approve", "deny"]),
  /** `run`: in this run; `always`: for good. What is stored is the text of the approval's `offers`. Default `once` */
  remember: v.optional(v.picklist(REMEMBER)),
  /** With `run` or `always`: the exact call, the tool in this folder, or the command with its first argument. Default `call` */
  match: v.optional(v.picklist(RULE_MATCHES)),
  note: v.optional(v.pipe(v.string(), v.maxLength(APPROVAL_LIMITS.noteCharacters))),
  /** With `approve` of an approval of kind `elicitation`: the fields of its `schema` */
  content: v.optional(v.record(v.string(), v.unknown())),
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
export const approvalsRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/approvals",
  access: "approve",
  summary: "Approvals of tool calls, waiting and answered, newest first",
  query: {
    status: choiceQuery("Only those in this state", APPROVAL_STATUSES),
    limit: LIMIT_QUERY,
    after: textQuery("Only those older than this id"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(shownSchema) },
  async handler(_request, context) {
    const { approvals, hasMore } = await context.services.approvals.list({
      ...pageOf(context),
      status: choiceOf(context, "status", APPROVAL_STATUSES),
    });
    return listReply(context, approvals.map(toShown), hasMore);
  },
});

/** GET /v1/approvals/:id: one approval. */
export const approvalRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/approvals/:id",
  access: "approve",
  params: { id: { type: "string", pattern: APPROVAL_ID.source } },
  summary: "One approval, with the exact input of its tool call",
  reply: { status: 200, type: "application/json", schema: shownSchema },
  async handler(_request, context) {
    const approval = await context.services.approvals.get(context.params["id"] ?? "");
    if (approval === undefined) throw unknownApproval();
    return jsonReply(context, 200, toShown(approval));
  },
});

/** POST /v1/approvals/:id: answers an approval. The first of two answers counts. */
export const answerApprovalRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/approvals/:id",
  access: "approve",
  params: { id: { type: "string", pattern: APPROVAL_ID.source } },
  summary: "Approve or deny a call, or answer what a server asks; what is remembered comes back as stored_rule",
  body: answerSchema,
  reply: { status: 200, type: "application/json", schema: answeredSchema },
  idempotency: "honoured",
  repeat: answerAgain,
  handler: answer,
});

async function answer(request: Request, context: RequestContext): Promise<Response> {
  const { decision, remember, match, note, content } = await readJson(request, context, answerSchema);
  const { approval, rule } = await context.services.approvals.answer(context.params["id"] ?? "", {
    decision,
    remember,
    match,
    note,
    content,
    by: callerOf(context, "http"),
  });
  return await answered(context, approval, rule);
}

/** Answers a repeat. An answer counts once, so the approval itself tells whether the first request took effect. */
async function answerAgain(request: Request, context: RequestContext): Promise<Response> {
  const { decision } = await readJson(request, context, answerSchema);
  const { approvals } = context.services;
  const approval = await approvals.get(context.params["id"] ?? "");
  if (approval?.status !== (decision === "approve" ? "approved" : "denied")) return await answer(request, context);
  return await answered(context, approval, (await approvals.rules()).find((rule) => rule.approval_id === approval.id));
}

async function answered(
  context: RequestContext,
  approval: Approval,
  rule: ApprovalRule | undefined,
): Promise<Response> {
  const run = await context.services.agent?.runs.get(approval.run_id);
  return jsonReply(context, 200, { ...toShown(approval), stored_rule: rule ?? null, run_status: run?.status ?? null });
}

function toShown(approval: Approval): v.InferOutput<typeof shownSchema> {
  return { ...approval, description: describeApproval(approval) };
}

/** GET /v1/approval-rules: every remembered answer. */
export const approvalRulesRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/approval-rules",
  access: "approve",
  summary: "Answers that are remembered, newest first",
  reply: { status: 200, type: "application/json", schema: listSchema(approvalRuleSchema) },
  async handler(_request, context) {
    const rules = await context.services.approvals.rules();
    return listReply(context, rules);
  },
});

/** DELETE /v1/approval-rules/:id: forgets a remembered answer. Calls that it allowed wait for a person again. */
export const revokeApprovalRuleRoute: Route = strictRoute({
  method: "DELETE",
  path: "/v1/approval-rules/:id",
  access: "approve",
  params: { id: { type: "string", pattern: RULE_ID.source } },
  summary: "Forget a remembered answer",
  reply: { status: 200, type: "application/json", schema: v.object({ id: v.string(), deleted: v.literal(true) }) },
  async handler(_request, context) {
    const id = context.params["id"] ?? "";
    if (!await context.services.approvals.revoke(id, callerOf(context, "http"))) {
      throw refuse(
        "not_found",
        'Cannot find an approval rule with this id: "postern approval rules" and GET /v1/approval-rules show those that exist',
      );
    }
    return jsonReply(context, 200, { id, deleted: true });
  },
});
