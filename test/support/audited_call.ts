import type { DecisionEvent } from "../../lib/guard/audit/audit_event.ts";

/** The decision about a call of this tool, as the executor writes it. */
export function auditedCall(tool: string, more: Partial<DecisionEvent> = {}): DecisionEvent {
  return {
    type: "decision",
    tool,
    input_digest: "0".repeat(64),
    by: { via: "agent", token_id: null },
    run_id: "run_1",
    call_id: "call_1",
    access: "read",
    effects: { paths: ["notes.md"] },
    decision: "allow",
    rule: "level:supervised/read",
    reason: "",
    ...more,
  };
}
