import type { CallScope } from "../../lib/tools/runtime/tool_call.ts";
import type { ToolCallRequest } from "../../lib/tools/runtime/tool_executor.ts";

/** A call with the fields of its scope beside its own. */
export type FlatCall = ToolCallRequest & CallScope;

/** Fields of a call that a test says, those of its scope beside its own. */
export type CallChanges = Partial<Omit<ToolCallRequest, "scope"> & CallScope>;

/** Returns a call of the agent, in a run outside a conversation, that nobody approves. */
export function toToolCall(name: string, input: string, changes: CallChanges = {}): ToolCallRequest {
  const { runId, requestId, conversationId, caller, depth, direct, taint, signal, right, patience, ...call } = changes;
  return {
    name,
    input,
    callId: "call_1",
    approver: ({ reason }) => Promise.resolve({ decision: "deny", rule: "approval", reason }),
    ...call,
    scope: {
      runId: runId ?? "run_1",
      requestId,
      conversationId: conversationId ?? null,
      caller: caller ?? { via: "agent", tokenId: null, scopes: [] },
      depth: depth ?? 0,
      direct,
      taint,
      signal: signal ?? new AbortController().signal,
      right,
      patience,
    },
  };
}
