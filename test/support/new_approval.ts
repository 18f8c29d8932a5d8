import type { NewApproval } from "../../lib/guard/approvals.ts";

/** Returns a request for approval of a call of `shell`, which waits for a minute. */
export function newApproval(more: Partial<NewApproval> = {}): NewApproval {
  return {
    tool: "shell",
    access: "write",
    workspace: "/work",
    input: { command: "ls" },
    inputDigest: "input-1",
    reason: "asked",
    rule: "level:supervised/write",
    files: [],
    digest: "digest-1",
    runId: "run_1",
    callId: "call_1",
    requestedBy: { via: "http", tokenId: "tok_1" },
    timeoutMs: 60_000,
    ...more,
  };
}
