import assert from "node:assert/strict";
import { test } from "node:test";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import { createProgramApprover } from "../../lib/guard/program_approver.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { awayError } from "../support/clustered.ts";
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

/** Approvals whose program gives this answer. `isAway`: the database can neither be asked for the end of an approval, nor take an answer */
function withProgram(answer: unknown, { clock = createFakeClock(), isAway = (): boolean => false } = {}) {
  const store = createMemoryStore();
  const approvals = new StoredApprovals({
    store,
    clock,
    random: createSeededRandom(),
    log: SILENT,
    metrics: createMetrics(),
    audit: createFakeAudit(store).append,
  });
  const reached = <A extends unknown[], R>(call: (...given: A) => Promise<R>) => async (...given: A) => {
    if (isAway()) throw awayError();
    return await call(...given);
  };
  const { settled, answer: take } = approvals;
  Object.assign(approvals, { settled: reached(settled.bind(approvals)), answer: reached(take.bind(approvals)) });
  const redact = (text: string) => text;
  const ready = Promise.resolve();
  return createProgramApprover({ approvals, ask: () => answer, ready, clock, log: SILENT, redact }).approvals;
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

test("an answer that comes while the database is down counts once it is back", async () => {
  const clock = createFakeClock();
  let isAway = false;
  const answer = Promise.withResolvers<string>();
  const approvals = withProgram(answer.promise, { clock, isAway: () => isAway });
  const asked = await approvals.ask(newApproval());
  isAway = true;
  await clock.advance(1_000);
  answer.resolve("approve");
  await clock.advance(5_000);
  const statusNow = async () => (await approvals.get(asked?.id ?? ""))?.status;
  assert.equal(await statusNow(), "pending");
  isAway = false;
  await clock.advance(2_000);
  assert.equal(await statusNow(), "approved");
});
