import { createHash } from "node:crypto";
import type { Logger } from "../../base/telemetry/log.ts";
import type { AuditAppend } from "../../guard/audit/audit.ts";
import type { AuditEvent } from "../../guard/audit/audit_event.ts";
import type { Decision } from "../../guard/decision.ts";
import type { PreparedCall } from "./tool.ts";
import type { ToolCallRequest } from "./tool_executor.ts";

/** What was decided about a call. */
export interface AuditedDecision extends Pick<Decision, "kind" | "rule" | "reason"> {
  /** undefined for an input that could not be prepared */
  readonly prepared: PreparedCall | undefined;
  readonly approvalId?: string | undefined;
}

/** How a call that ran ended. */
export interface AuditedEnd {
  readonly prepared: PreparedCall;
  readonly outcome: string;
  readonly durationMs: number;
  /** As the caller gets it; undefined where there is none */
  readonly output: string | undefined;
}

/** What the audit is told of one call. */
export interface CallAudit {
  /** @returns whether it is written: a call must not run before that */
  decided(decision: AuditedDecision): Promise<boolean>;
  ended(end: AuditedEnd): Promise<void>;
}

/** Names a caller made up are cut to what a tool's name can be. */
const MAX_NAME = 128;

/** Writes the decisions about one call, and its end, to the audit. Inputs and outputs are kept as digests. */
export function auditCall(
  { audit, log }: { readonly audit: AuditAppend; readonly log: Logger },
  request: ToolCallRequest,
): CallAudit {
  const { runId, callId, caller } = request;
  const about = (prepared: PreparedCall | undefined) => ({
    tool: request.name.slice(0, MAX_NAME),
    request_id: request.requestId ?? null,
    run_id: runId,
    call_id: callId,
    conversation_id: request.conversationId ?? null,
    by: { via: caller.via, token_id: caller.tokenId },
    input_digest: prepared?.digest ?? null,
  });
  const write = async (event: AuditEvent): Promise<boolean> => {
    try {
      return await audit(event);
    } catch (error) {
      log.error("Cannot write the audit", { run_id: runId, call_id: callId, tool: request.name, error });
      return false;
    }
  };
  return {
    decided: ({ prepared, kind, rule, reason, approvalId }) =>
      write({
        type: "decision",
        ...about(prepared),
        access: prepared?.access ?? null,
        effects: prepared?.effects ?? {},
        decision: kind,
        rule,
        reason: kind === "allow" ? "" : reason,
        approval_id: approvalId,
      }),
    async ended({ prepared, outcome, durationMs, output }) {
      await write({
        type: "call",
        ...about(prepared),
        outcome,
        duration_ms: Math.round(durationMs),
        output_bytes: output === undefined ? null : Buffer.byteLength(output),
        output_digest: output === undefined ? null : createHash("sha256").update(output).digest("hex"),
      });
    },
  };
}
