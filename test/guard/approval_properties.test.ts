import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ApprovalStatus } from "../../lib/base/records/approval.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createSeededRandom, triesOf } from "../support/seeded_random.ts";

const BY = { via: "http", tokenId: null } as const;
const LIFE_MS = 10;

const step = fc.oneof(
  fc.record({ do: fc.constant("answer" as const), decision: fc.constantFrom("approve" as const, "deny" as const) }),
  fc.record({ do: fc.constant("use" as const), digest: fc.constantFrom("right", "wrong") }),
  fc.record({ do: fc.constantFrom("cancel" as const, "look" as const, "restart" as const) }),
  fc.record({ do: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 6 }) }),
);

test("whatever happens in whatever order: one use at most, of the right call, after a yes and before the expiry", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 14 }), async (steps) => {
      const clock = createFakeClock();
      const store = createMemoryStore();
      const open = () =>
        new StoredApprovals({
          store,
          clock,
          random: createSeededRandom(),
          log: SILENT,
          metrics: createMetrics(),
          audit: createFakeAudit(store).append,
        });
      let approvals = open();
      const asked = await approvals.ask({
        tool: "shell",
        access: "write",
        workspace: "/work",
        input: {},
        inputDigest: "input",
        reason: "asked",
        rule: "level:supervised/write",
        files: [],
        digest: "right",
        runId: "run_1",
        callId: "call_1",
        requestedBy: BY,
        timeoutMs: LIFE_MS,
      });
      const id = asked?.id ?? "";
      // The whole contract in three variables
      let state = "pending" as ApprovalStatus;
      let used = false;
      let age = 0;
      for (const each of steps) {
        if (state === "pending" && age >= LIFE_MS) state = "expired";
        switch (each.do) {
          case "answer": {
            const answered = await approvals.answer(id, { decision: each.decision, by: BY }).then(
              () => true,
              () => false,
            );
            assert.equal(answered, state === "pending");
            if (answered) state = each.decision === "approve" ? "approved" : "denied";
            break;
          }
          case "use": {
            const { ok } = await approvals.use(id, each.digest);
            assert.equal(ok, state === "approved" && !used && age < LIFE_MS && each.digest === "right");
            used ||= ok;
            break;
          }
          case "cancel":
            await approvals.cancel(id);
            if (state === "pending") state = "cancelled";
            break;
          case "look":
            assert.equal((await approvals.get(id))?.status, state);
            break;
          case "restart":
            approvals = open();
            break;
          case "wait":
            await clock.advance(each.ms);
            age += each.ms;
        }
      }
    }),
    { numRuns: triesOf(50) },
  );
});
