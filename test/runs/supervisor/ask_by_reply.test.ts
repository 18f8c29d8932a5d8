import assert from "node:assert/strict";
import { test } from "node:test";
import { askByReply } from "../../../lib/runs/supervisor/ask_by_reply.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../../lib/base/telemetry/metrics.ts";
import { StoredApprovals } from "../../../lib/guard/stored_approvals.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import type { ApprovalRequest } from "../../../lib/tools/runtime/tool_call.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { toToolCall } from "../../support/tool_call.ts";

const REQUEST: ApprovalRequest = {
  tool: "write_file",
  prepared: { input: {}, digest: "input", access: "write", repeatable: false, effects: {} },
  input: {},
  binding: { digest: "call", files: [], bound: [], containment: null, versions: new Map() },
  subject: { tool: "write_file", workspace: "/workspace", inputDigest: "input" },
  reason: "Asking is the rule",
  rule: "always_ask",
  callId: "call_1",
  scope: toToolCall("write_file", "{}", { caller: { via: "http", tokenId: "tok_1", scopes: ["approve"] } }).scope,
};

/** Returns the denial of a call that comes without an approval. */
async function denialOf(more: Parameters<typeof askByReply>[0]) {
  const answer = await askByReply(more)(REQUEST, new AbortController().signal);
  assert.ok(answer.decision === "deny");
  return answer;
}

test("a denial says whether a person is asked, could not be asked, or the approval does not count", async () => {
  const store = createMemoryStore();
  const clock = createFakeClock();
  const approvals = new StoredApprovals({
    store,
    clock,
    random: createSeededRandom(),
    log: SILENT,
    metrics: createMetrics(),
    audit: createFakeAudit(store).append,
  });
  const options = { approvals, clock, given: undefined, granted: false, timeoutMs: 1000, elicitMs: 1000 };
  const asked = await denialOf(options);
  assert.equal(asked.rule, "approval_waits");
  assert.equal((await denialOf({ ...options, given: asked.approvalId })).rule, "approval_waits");
  assert.equal((await denialOf({ ...options, given: "apr_unknown" })).rule, "approval_failed");
  approvals.ask = () => Promise.resolve(undefined);
  const unasked = await denialOf(options);
  assert.deepEqual([unasked.rule, unasked.approvalId], ["nobody_could_answer", undefined]);
});

test("a call that comes approved is let through where approvals expire sooner than the disk takes what is written", async () => {
  const clock = createFakeClock();
  const store = createMemoryStore();
  const slow: Store = {
    ...store,
    async batch(writes) {
      await clock.advance(2000);
      return await store.batch(writes);
    },
  };
  const approvals = new StoredApprovals({
    store: slow,
    clock,
    random: createSeededRandom(),
    log: SILENT,
    metrics: createMetrics(),
    audit: createFakeAudit(slow).append,
  });
  const approver = askByReply({ approvals, clock, given: undefined, granted: true, timeoutMs: 1000, elicitMs: 1000 });
  const answer = await approver(REQUEST, new AbortController().signal);
  assert.equal(answer.decision, "approve", answer.reason);
});
