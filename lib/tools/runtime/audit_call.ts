import { hash } from "node:crypto";
import { storedActor } from "../../base/records/caller.ts";
import type { Picture } from "../../base/records/message.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { AuditEvent } from "../../guard/audit/audit_event.ts";
import type { Decision, Effects } from "../../guard/policy.ts";
import { isStorageAway } from "../../storage/read_records.ts";
import type { SharedCalls } from "./shared_calls.ts";
import type { PreparedCall } from "./tool.ts";
import type { ToolCallRequest } from "./tool_executor.ts";

/** The decision about one call, as the audit records it. */
export interface AuditedDecision extends Pick<Decision, "kind" | "rule" | "reason"> {
  /** undefined when the input could not be prepared */
  readonly prepared: PreparedCall | undefined;
  readonly approvalId?: string | undefined;
}

/** The end of a call that ran, as the audit records it. */
export interface AuditedEnd {
  readonly prepared: PreparedCall;
  readonly outcome: string;
  readonly durationMs: number;
  /** Text that the caller gets. undefined when the call gives none, since it was cancelled */
  readonly output: string | undefined;
  /** Pictures that the caller gets beside the text */
  readonly pictures: readonly { readonly picture: Pick<Picture, "sha256"> }[];
}

/** Writes the audit's records of one call. */
export interface CallAudit {
  /**
   * Records the decision. @returns true when the record is written: the call must not run before that
   * @throws {CancelError} and {HttpError} of `SharedCalls.before`, in a cluster
   */
  decided(decision: AuditedDecision): Promise<boolean>;
  /** Records how the call ended. A record that cannot be written is logged; that of a cluster is written once the database is back. */
  ended(end: AuditedEnd): Promise<void>;
}

/** Characters of a tool's name that are recorded: a caller may send a longer name, which no tool has. */
const MAX_NAME = 128;

/** Writes the decisions about one call, and its end, to the audit. Inputs and outputs are kept as digests. */
export function auditCall(
  { audit, log, shared }: {
    readonly audit: AuditAppend;
    readonly log: Logger;
    readonly shared?: SharedCalls | undefined;
  },
  request: ToolCallRequest,
): CallAudit {
  const { callId, scope } = request;
  const { runId, caller } = scope;
  const about = (prepared: PreparedCall | undefined) => ({
    tool: request.name.slice(0, MAX_NAME),
    request_id: scope.requestId ?? null,
    run_id: runId,
    call_id: callId,
    conversation_id: scope.conversationId,
    by: storedActor(caller),
    input_digest: prepared?.digest ?? null,
  });
  const write = async (event: AuditEvent): Promise<boolean> => {
    try {
      return await audit(event);
    } catch (error) {
      if (shared !== undefined && isStorageAway(error)) throw error;
      log.error("Cannot write the audit", { run_id: runId, call_id: callId, tool: request.name, error });
      return false;
    }
  };
  return {
    decided({ prepared, kind, rule, reason, approvalId }) {
      // The parts of a line are left out: the command has its text
      const { line: _line, ...effects }: Effects = prepared?.effects ?? {};
      // Each try gets the same event, so that the audit knows one again that was written and whose answer was lost
      const event: AuditEvent = {
        type: "decision",
        ...about(prepared),
        access: prepared?.access ?? null,
        effects,
        decision: kind,
        rule,
        reason: kind === "allow" ? "" : reason,
        approval_id: approvalId,
      };
      return shared?.before(scope, () => write(event)) ?? write(event);
    },
    async ended({ prepared, outcome, durationMs, output, pictures }) {
      const event: AuditEvent = {
        type: "call",
        ...about(prepared),
        outcome,
        duration_ms: Math.round(durationMs),
        output_bytes: output === undefined ? null : Buffer.byteLength(output),
        output_digest: output === undefined ? null : hash("sha256", output),
        ...pictures.length === 0 ? {} : { picture_digests: pictures.map(({ picture }) => picture.sha256) },
      };
      await (shared?.after(request, () => write(event), () => false) ?? write(event));
    },
  };
}
