import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../lib/base/cancel.ts";
import type { HttpError } from "../../lib/base/errors.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import type { Approval } from "../../lib/base/records/approval.ts";
import { APPROVALS, toApprovalBody } from "../../lib/guard/approval_records.ts";
import { SharedApprovalNews, type SharedApprovalNewsOptions } from "../../lib/guard/approval_news.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import type { Elicitation } from "../../lib/guard/elicitation.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { newApproval } from "../support/new_approval.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const BY = { via: "http", tokenId: "tok_1" } as const;
const NEVER = new AbortController().signal;
const ASKED: Elicitation = {
  server: "crm",
  message: "Who shall it be?",
  schema: { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name"] },
  url: null,
};
const OPEN: Elicitation = { server: "crm", message: "Sign in", schema: null, url: "https://crm.example/" };

function setUp(store = createMemoryStore(), bus?: SharedApprovalNewsOptions["bus"]) {
  const clock = createFakeClock();
  const audit = createFakeAudit(store);
  const approvals = new StoredApprovals({
    store,
    clock,
    random: createSeededRandom(),
    log: SILENT,
    metrics: createMetrics(),
    news: bus && new SharedApprovalNews({ store, clock, log: SILENT, bus }),
    audit: audit.append,
  });
  const ask = async (elicitation: Elicitation = ASKED): Promise<Approval> =>
    await approvals.ask(newApproval({ elicitation, rule: "elicitation:crm" })) ?? assert.fail("not asked");
  return { approvals, clock, store, audit, ask };
}

const problemOf = async (work: Promise<unknown>): Promise<[code: string, param: string | null]> => {
  try {
    await work;
  } catch (error) {
    return [(error as HttpError).code, (error as HttpError).param];
  }
  return assert.fail("it was accepted");
};

test("the content of an answer reaches whoever waits, and neither a record nor the audit", async () => {
  const { approvals, store, audit, ask } = setUp();
  const asked = await ask();
  assert.deepEqual([asked.kind, asked.server, asked.message, asked.schema, asked.url], [
    "elicitation",
    "crm",
    ASKED.message,
    ASKED.schema,
    null,
  ]);
  const waiting = approvals.elicited(asked.id, NEVER);
  await approvals.answer(asked.id, { decision: "approve", content: { name: "Ada Secret", age: 36 }, by: BY });
  const { approval, content } = await waiting;
  assert.deepEqual([approval.status, approval.answered_by, content], ["approved", "tok_1", {
    name: "Ada Secret",
    age: 36,
  }]);
  const event = audit.events.at(-1);
  assert.ok(event?.type === "approval");
  assert.deepEqual([event.action, event.kind, event.server, event.fields], ["approved", "elicitation", "crm", [
    "name",
    "age",
  ]]);
  const written = JSON.stringify([audit.events, (await store.get(APPROVALS.name, asked.id))?.body]);
  assert.doesNotMatch(written, /Ada Secret|36/);
});

test("content that does not fit is refused with its field, and the question stays", async () => {
  const { approvals, ask } = setUp();
  const { id } = await ask();
  const answer = (content: Record<string, unknown> | undefined) =>
    problemOf(approvals.answer(id, { decision: "approve", content, by: BY }));
  assert.deepEqual(await answer(undefined), ["invalid_request", "content.name"]);
  assert.deepEqual(await answer({ name: 1 }), ["invalid_request", "content.name"]);
  assert.deepEqual(await answer({ name: "Ada", age: 1.5 }), ["invalid_request", "content.age"]);
  assert.deepEqual(await answer({ name: "Ada", admin: true }), ["invalid_request", "content.admin"]);
  assert.deepEqual(await problemOf(approvals.answer(id, { decision: "deny", content: {}, by: BY })), [
    "invalid_request",
    "content",
  ]);
  assert.equal((await approvals.get(id))?.status, "pending");
  const { id: address } = await ask(OPEN);
  assert.deepEqual(await problemOf(approvals.answer(address, { decision: "approve", content: {}, by: BY })), [
    "invalid_request",
    "content",
  ]);
  const { id: call } = await approvals.ask(newApproval()) ?? assert.fail("not asked");
  assert.deepEqual(await problemOf(approvals.answer(call, { decision: "approve", content: {}, by: BY })), [
    "invalid_request",
    "content",
  ]);
});

test("of two answers at once the content of the one that counts is given", async () => {
  const { approvals, ask } = setUp();
  const { id } = await ask();
  const waiting = approvals.elicited(id, NEVER);
  const answers = await Promise.allSettled(
    ["Ada", "Bob", "Eve"].map((name) => approvals.answer(id, { decision: "approve", content: { name }, by: BY })),
  );
  assert.deepEqual(answers.map(({ status }) => status), ["fulfilled", "rejected", "rejected"]);
  assert.deepEqual((await waiting).content, { name: "Ada" });
});

test("an answer lets no call through, stores no rule, and no rule answers", async () => {
  const { approvals, ask } = setUp();
  const { id, digest, always_rule, offers } = await ask(OPEN);
  assert.deepEqual([always_rule, offers], [null, []]);
  assert.deepEqual(await problemOf(approvals.answer(id, { decision: "approve", remember: "always", by: BY })), [
    "invalid_request",
    "remember",
  ]);
  await approvals.answer(id, { decision: "approve", by: BY });
  const use = await approvals.use(id, digest);
  assert.ok(!use.ok);
  assert.match(use.reason, /lets no call through/);
});

test("a question whose call ended with its process, or whose call has stopped, is cancelled", async () => {
  const { approvals, store, ask } = setUp();
  const { id } = await ask();
  const stop = new AbortController();
  const waiting = approvals.elicited(id, stop.signal);
  stop.abort(new CancelError("cancelled"));
  await assert.rejects(waiting, { name: "CancelError" });
  assert.equal((await approvals.get(id))?.status, "cancelled");
  const left = await ask();
  const next = setUp(store).approvals;
  assert.deepEqual(await next.list({ status: "pending", limit: 10 }), { approvals: [], hasMore: false });
  assert.equal((await next.get(left.id))?.status, "cancelled");
  assert.deepEqual(await problemOf(next.answer(left.id, { decision: "approve", content: { name: "Ada" }, by: BY })), [
    "conflict",
    null,
  ]);
});

test("a question that nobody answers expires without content", async () => {
  const { approvals, clock, ask } = setUp();
  const waiting = approvals.elicited((await ask()).id, NEVER);
  await clock.advance(60_000);
  const { approval, content } = await waiting;
  assert.deepEqual([approval.status, content, clock.pending()], ["expired", undefined, 0]);
});

test("a record of an earlier version, without a kind, is read as one of a call", async () => {
  const { approvals, store } = setUp();
  const { id, digest } = await approvals.ask(newApproval()) ?? assert.fail("not asked");
  const { kind: _kind, ...old } = toApprovalBody(APPROVALS.parse((await store.get(APPROVALS.name, id))?.body));
  await store.batch([APPROVALS.put(id, old)]);
  await approvals.answer(id, { decision: "approve", by: BY });
  assert.equal((await approvals.get(id))?.kind, undefined);
  assert.ok((await approvals.use(id, digest)).ok);
});

test("in a cluster the gateway whose call asks takes the answer, and others neither answer nor cancel", async () => {
  const store = createMemoryStore();
  const bus = { tell: () => {}, onNote: () => () => {} };
  const [here, elsewhere] = [setUp(store, bus), setUp(store, bus)];
  const { id } = await here.ask();
  const waiting = here.approvals.elicited(id, NEVER);
  const reply = { decision: "approve", content: { name: "Ada" }, by: BY } as const;
  assert.deepEqual(await problemOf(elsewhere.approvals.answer(id, reply)), ["conflict", null]);
  assert.equal((await elsewhere.approvals.get(id))?.status, "pending");
  await here.approvals.answer(id, reply);
  assert.deepEqual((await waiting).content, { name: "Ada" });
  // A denial has no content
  const second = await here.ask();
  assert.equal((await elsewhere.approvals.answer(second.id, { decision: "deny", by: BY })).approval.status, "denied");
});
