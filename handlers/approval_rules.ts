import * as v from "valibot";
import { approvalRuleSchema, RULE_ID } from "../lib/base/records/approval.ts";
import type { Route } from "./route.ts";
import { strictRoute } from "./strict_route.ts";
import { callerOf } from "./wire/caller_of.ts";
import { httpError } from "./wire/error_codes.ts";
import { listReply, listSchema } from "./wire/list_reply.ts";
import { jsonReply } from "./wire/reply.ts";

/** GET /v1/approval-rules: answers that are remembered, all of them. */
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

/** DELETE /v1/approval-rules/:id: such calls are asked about again from now on. */
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
      throw httpError(
        "not_found",
        'Cannot find a rule with this id: "postern approvals rules" and GET /v1/approval-rules show those that exist',
      );
    }
    return jsonReply(context, 200, { id, deleted: true });
  },
});
