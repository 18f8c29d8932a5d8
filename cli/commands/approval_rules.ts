import type { ApprovalRule } from "../../lib/base/records/approval.ts";
import { exactLine } from "../../lib/base/exact_text.ts";
import { defineCliCommand } from "../command.ts";
import { toTable } from "../terminal/to_table.ts";
import { withGateway } from "../with_gateway.ts";

/** `postern approvals rules`: answers that are remembered. */
export const approvalsRulesCommand = defineCliCommand({
  args: {},
  example: "postern approvals rules",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const { data } = await gateway.request({ method: "GET", path: "/v1/approval-rules" }) as {
        data: readonly ApprovalRule[];
      };
      const rows = data.map(({ id, scope, created_at, text }) => [id, scope, created_at, exactLine(text)]);
      context.print(
        data,
        rows.length === 0 ? "No answer is remembered" : toTable(["ID", "SCOPE", "SINCE", "RULE"], rows),
      );
    }),
});

/** `postern approvals revoke <rule>`: such calls are asked about again from now on. */
export const approvalsRevokeCommand = defineCliCommand({
  args: { rule: { type: "positional", required: true, description: "Id of the rule, from postern approvals rules" } },
  example: "postern approvals revoke rule_0123456789",
  run: (context, { rule }) =>
    withGateway(context, async (gateway) => {
      const reply = await gateway.request({ method: "DELETE", path: `/v1/approval-rules/${encodeURIComponent(rule)}` });
      context.print(reply, `Revoked ${rule}`);
    }),
});
