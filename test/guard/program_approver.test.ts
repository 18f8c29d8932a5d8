import assert from "node:assert/strict";
import { test } from "node:test";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { createApprovals } from "../../lib/guard/create_approvals.ts";
import { createProgramApprover } from "../../lib/guard/program_approver.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { newApproval } from "../support/new_approval.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const ELICITATION = {
  server: "crm",
  message: "Who?",
  schema: { type: "object" as const, properties: { name: { type: "string" as const } }, required: ["name"] },
  url: null,
};

/** Approvals whose program gives this answer. */
function withProgram(answer: unknown) {
  const store = createMemoryStore();
  const approvals = createApprovals({
    store,
    clock: createFakeClock(),
    random: createSeededRandom(),
    log: SILENT,
    metrics: createMetrics(),
    audit: createFakeAudit(store).append,
  });
  const redact = (text: string) => text;
  return createProgramApprover({ approvals, ask: () => answer, ready: Promise.resolve(), log: SILENT, redact })
    .approvals;
}

/** Returns what becomes of a question of a server that the program answers so. */
async function endOf(answer: unknown) {
  const approvals = withProgram(answer);
  const asked = await approvals.ask(newApproval({ elicitation: ELICITATION, rule: "elicitation:crm" }));
  const { approval, content } = await approvals.elicited(asked?.id ?? "", new AbortController().signal);
  return { status: approval.status, note: approval.note, content };
}

test("a program answers what a server asks with content that fits, and everything else is a denial with the reason", async () => {
  const given = { decision: "approve", content: { name: "Ada" } };
  assert.deepEqual(await endOf(given), { status: "approved", note: null, content: { name: "Ada" } });
  assert.deepEqual(await endOf({ decision: "deny" }), { status: "denied", note: null, content: undefined });
  assert.equal((await endOf("deny")).status, "denied");
  for (
    const [answer, why] of [
      ["approve", /does not fit: .*"content\.name"/],
      [{ decision: "approve", content: { name: 7 } }, /"content\.name" does not fit: it must be a text/],
      [{ decision: "approve", content: "Ada" }, /gave neither "approve" nor "deny"/],
      [{ decision: "yes" }, /gave neither/],
    ] as const
  ) {
    const { status, note, content } = await endOf(answer);
    assert.deepEqual([status, content], ["denied", undefined], JSON.stringify(answer));
    assert.match(note ?? "", why);
  }
});

test("an object is no answer to an approval of a call", async () => {
  const approvals = withProgram({ decision: "approve", content: {} });
  const asked = await approvals.ask(newApproval());
  const { status, note } = await approvals.settled(asked?.id ?? "", new AbortController().signal);
  assert.equal(status, "denied");
  assert.match(note ?? "", /gave neither/);
});
