import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../lib/base/cancel.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { shareOf } from "../../lib/base/fair_share.ts";
import { APPROVAL_LIMITS, type Approvals, type NewApproval } from "../../lib/guard/approvals.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import { newApproval } from "../support/new_approval.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const BY = { via: "http", tokenId: "tok_1" } as const;
const MINUTE = 60_000;

function setUp(store: Store = createMemoryStore()) {
  const clock = createFakeClock();
  const metrics = createMetrics();
  const audit = createFakeAudit(store);
  const approvals = new StoredApprovals({
    store,
    clock,
    random: createSeededRandom(),
    log: SILENT,
    metrics,
    audit: audit.append,
  });
  const ask = async (more: Partial<NewApproval> = {}) => {
    const asked = await approvals.ask(newApproval(more));
    assert.ok(asked !== undefined);
    return asked;
  };
  const counted = (decision: string) =>
    Number(new RegExp(`approvals_total\\{decision="${decision}"\\} (\\d+)`).exec(metrics.render())?.[1] ?? 0);
  return { approvals, clock, store, ask, counted, audit };
}

const codeOf = async (work: Promise<unknown>) => {
  try {
    await work;
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code;
  }
};
const reasonOf = async (approvals: Approvals, id: string, digest = "digest-1") => {
  const use = await approvals.use(id, digest);
  return use.ok ? "ok" : use.reason;
};

test("an approval lets exactly one call of exactly its digest through", async () => {
  const { approvals, ask, counted } = setUp();
  const { id } = await ask();
  assert.match(await reasonOf(approvals, id), /has not been answered/);
  await approvals.answer(id, { decision: "approve", by: BY, note: "fine" });
  assert.match(await reasonOf(approvals, id, "digest-2"), /is not the one that was approved/);
  assert.equal(await reasonOf(approvals, id), "ok");
  assert.match(await reasonOf(approvals, id), /its one call/);
  const { status, answered_by, note, used_at } = await approvals.get(id) ?? {};
  assert.deepEqual([status, answered_by, note, used_at], ["approved", "tok_1", "fine", "2026-01-01T00:00:00.000Z"]);
  assert.deepEqual([counted("approved"), counted("denied")], [1, 0]);
});

test("an approval is filed together with its claim, or not at all", async () => {
  const { approvals, store } = setUp();
  const claim = (id: string) => ({ op: "insert", collection: "claims", key: "step", body: { id } }) as const;
  const first = await approvals.ask(newApproval(), claim);
  assert.deepEqual((await store.get("claims", "step"))?.body, { id: first?.id });
  assert.equal(await codeOf(approvals.ask(newApproval(), claim)), "conflict");
  assert.deepEqual((await approvals.list({ limit: 10 })).approvals.map(({ id }) => id), [first?.id]);
});

test("an answer about a procedure's step is never remembered", async () => {
  const { approvals, ask } = setUp();
  const { id, always_rule } = await ask({ tool: "sop_advance", rule: "sop:release/publish" });
  assert.equal(always_rule, null);
  const refused = approvals.answer(id, { decision: "approve", remember: "always", by: BY });
  await assert.rejects(refused, { code: "invalid_request", message: /it is about a procedure's step/ });
});

test("of two uses at once one gets through, and of two answers at once one counts", async () => {
  const { approvals, ask } = setUp();
  const { id } = await ask();
  const answers = await Promise.all(
    (["approve", "deny"] as const).map((decision) => codeOf(approvals.answer(id, { decision, by: BY }))),
  );
  assert.deepEqual(answers.sort(), ["conflict", undefined]);
  const other = await ask();
  await approvals.answer(other.id, { decision: "approve", by: BY });
  const uses = await Promise.all([1, 2, 3].map(() => approvals.use(other.id, "digest-1")));
  assert.equal(uses.filter(({ ok }) => ok).length, 1);
});

test("an approval that nobody answers expires, is then refused, and is counted once", async () => {
  const { approvals, clock, ask, counted } = setUp();
  const { id } = await ask();
  const waiting = approvals.settled(id, new AbortController().signal);
  await clock.advance(MINUTE);
  assert.equal((await waiting).status, "expired");
  assert.match(await reasonOf(approvals, id), /is expired/);
  assert.equal(await codeOf(approvals.answer(id, { decision: "approve", by: BY })), "conflict");
  assert.equal(counted("expired"), 1);
  assert.equal(clock.pending(), 0);
});

test("what was approved must be used before its expiry", async () => {
  const { approvals, clock, ask } = setUp();
  const { id } = await ask();
  await approvals.answer(id, { decision: "approve", by: BY });
  await clock.advance(MINUTE);
  assert.match(await reasonOf(approvals, id), /has expired since/);
});

test("who waits hears the answer at once, and a wait that is cancelled leaves no timer", async () => {
  const { approvals, clock, ask } = setUp();
  const { id } = await ask({ timeoutMs: 100 * 24 * 60 * MINUTE });
  const signal = new AbortController().signal;
  const all = Promise.all([approvals.settled(id, signal), approvals.settled(id, signal)]);
  const left = new AbortController();
  const leaving = approvals.settled(id, left.signal);
  await clock.advance(40 * 24 * 60 * MINUTE);
  left.abort(new CancelError("client_gone"));
  await assert.rejects(leaving, { reason: "client_gone" });
  assert.equal((await approvals.get(id))?.status, "pending");
  await approvals.answer(id, { decision: "deny", by: BY });
  assert.deepEqual((await all).map(({ status }) => status), ["denied", "denied"]);
  assert.equal(clock.pending(), 0);
  await assert.rejects(approvals.settled(id, left.signal), { reason: "client_gone" });
});

test("a cancelled approval can no longer be answered, a settled one no longer be cancelled", async () => {
  const { approvals, ask } = setUp();
  const { id } = await ask();
  await approvals.cancel(id);
  assert.equal(await codeOf(approvals.answer(id, { decision: "approve", by: BY })), "conflict");
  const other = await ask();
  await approvals.answer(other.id, { decision: "approve", by: BY });
  await approvals.cancel(other.id);
  assert.equal((await approvals.get(other.id))?.status, "approved");
  await approvals.cancel("apr_unknown");
  assert.equal(await codeOf(approvals.answer("apr_unknown", { decision: "deny", by: BY })), "not_found");
});

test("remember: always stores the rule whose text was shown, for this input alone; revoked it is gone", async () => {
  const { approvals, ask } = setUp();
  const asked = await ask();
  assert.equal(asked.always_rule, `Allow "shell" in "/work" with exactly the input {"command":"ls"}`);
  const { rule } = await approvals.answer(asked.id, { decision: "approve", remember: "always", by: BY });
  assert.equal(rule?.text, asked.always_rule);
  assert.deepEqual(
    [rule?.match, rule?.input_digest, rule?.folder, rule?.command, rule?.op, rule?.access],
    ["call", "input-1", null, null, null, null],
  );
  const subject = { tool: "shell", workspace: "/work", inputDigest: "input-1" };
  assert.equal((await approvals.remembered(subject, "run_2"))?.id, rule?.id);
  for (const other of [{ tool: "write_file" }, { workspace: "/else" }, { inputDigest: "input-2" }]) {
    assert.equal(await approvals.remembered({ ...subject, ...other }, "run_1"), undefined);
  }
  assert.deepEqual((await approvals.rules()).map(({ id }) => id), [rule?.id]);
  assert.equal(await approvals.revoke(rule?.id ?? "", BY), true);
  assert.equal(await approvals.revoke(rule?.id ?? "", BY), false);
  assert.equal(await approvals.remembered(subject, "run_2"), undefined);
});

test("remember: run counts in that run alone, and a denial is remembered as one", async () => {
  const { approvals, ask, counted } = setUp();
  const subject = { tool: "shell", workspace: "/work", inputDigest: "input-1" };
  await approvals.answer((await ask()).id, { decision: "deny", remember: "run", by: BY });
  assert.deepEqual([counted("approved"), counted("denied")], [0, 1]);
  assert.equal((await approvals.remembered(subject, "run_1"))?.decision, "deny");
  assert.equal(await approvals.remembered(subject, "run_2"), undefined);
});

test("what always_ask names is never remembered: the approval says so, and the answer is refused and may be given again", async () => {
  const { approvals, ask } = setUp();
  const asked = await ask({ rule: "always_ask:shell" });
  assert.equal(asked.always_rule, null);
  for (const remember of ["always", "run"] as const) {
    const refusal = approvals.answer(asked.id, { decision: "approve", remember, by: BY });
    await assert.rejects(refusal, { code: "invalid_request", param: "remember" });
  }
  assert.deepEqual(await approvals.rules(), []);
  await approvals.answer(asked.id, { decision: "approve", remember: "once", by: BY });
});

test("over the bound the oldest rule of a run makes room, and one for good is refused where there is none", async () => {
  const { approvals, ask } = setUp();
  const remember = async (i: number, how: "run" | "always") => {
    const { id } = await ask({ inputDigest: `input-${i}` });
    return (await approvals.answer(id, { decision: "approve", remember: how, by: BY })).rule?.id;
  };
  const first = await remember(0, "run");
  for (let i = 1; i < APPROVAL_LIMITS.rules; i++) await remember(i, "always");
  await remember(APPROVAL_LIMITS.rules, "always");
  const rules = await approvals.rules();
  assert.deepEqual([rules.length, rules.some(({ id }) => id === first)], [APPROVAL_LIMITS.rules, false]);
  assert.equal(await codeOf(remember(APPROVAL_LIMITS.rules + 1, "always")), "conflict");
});

test("an id that is none is one that is not there", async () => {
  const { approvals } = setUp();
  for (const id of ["", "x", "apr_", "apr_A", `apr_${"0".repeat(100)}`, "apr_\u0000", "../apr_1"]) {
    assert.equal(await approvals.get(id), undefined);
    assert.equal((await approvals.use(id, "digest-1")).ok, false);
    assert.equal(await codeOf(approvals.answer(id, { decision: "deny", by: BY })), "not_found");
    assert.deepEqual((await approvals.list({ limit: 1, after: id })).approvals, []);
    assert.equal(await approvals.revoke(id, BY), false);
    await approvals.cancel(id);
  }
});

test("lists go from the newest on, by state, in pages", async () => {
  const { approvals, clock, ask } = setUp();
  const ids: string[] = [];
  for (let i = 0; i < 5; i++) ids.unshift((await ask({ timeoutMs: (i + 1) * MINUTE })).id);
  await approvals.answer(ids[0] ?? "", { decision: "deny", by: BY });
  await clock.advance(MINUTE);
  const idsIn = async (options: Parameters<Approvals["list"]>[0]) => {
    const page = await approvals.list(options);
    return [page.approvals.map(({ id }) => id), page.hasMore];
  };
  assert.deepEqual(await idsIn({ limit: 3 }), [ids.slice(0, 3), true]);
  assert.deepEqual(await idsIn({ limit: 3, after: ids[2] ?? "" }), [ids.slice(3), false]);
  assert.deepEqual(await idsIn({ limit: 9, status: "pending" }), [ids.slice(1, 4), false]);
  assert.deepEqual(await idsIn({ limit: 9, status: "expired" }), [ids.slice(4), false]);
  assert.deepEqual(await idsIn({ limit: 9, status: "denied" }), [ids.slice(0, 1), false]);
});

test("a list reads pages, however many approvals wait, and one record more for each whose time is over", async () => {
  const store = createMemoryStore();
  const { approvals, clock, ask } = setUp(store);
  for (let i = 0; i < 250; i++) await ask({ timeoutMs: i < 3 ? MINUTE : 2 * MINUTE });
  await clock.advance(MINUTE);
  const { get } = store;
  let reads = 0;
  store.get = (...given) => {
    reads++;
    return get(...given);
  };
  assert.equal((await approvals.list({ status: "pending", limit: 1_000 })).approvals.length, 247);
  assert.equal(reads, 6);
  assert.equal((await approvals.list({ limit: 1_000 })).approvals.length, 250);
  assert.equal(reads, 6);
});

test("the approvals of some runs are found by one read, past those that are damaged", async () => {
  const { approvals, clock, ask, store } = setUp();
  const [one, two, other] = [
    await ask({ runId: "run_1" }),
    await ask({ runId: "run_2" }),
    await ask({ runId: "run_3" }),
  ];
  await approvals.answer(two.id, { decision: "deny", by: BY });
  await store.insertOnce("approvals", "apr_damaged", { v: 1, run_id: "run_1", status: "pending" });
  await store.insertOnce("approvals", "apr_empty", null);
  const idsOf = async (...given: Parameters<Approvals["ofRuns"]>) =>
    (await approvals.ofRuns(...given)).map(({ id }) => id);
  assert.deepEqual(await idsOf(new Set(["run_1", "run_2"])), [two.id, one.id]);
  assert.deepEqual(await idsOf(new Set(["run_1", "run_2"]), "pending"), [one.id]);
  assert.deepEqual(await idsOf(new Set(["run_3", "run_4"])), [other.id]);
  assert.deepEqual(await idsOf(new Set()), []);
  await clock.advance(MINUTE);
  assert.deepEqual(await idsOf(new Set(["run_1"]), "pending"), [], "its time is over");
  assert.equal((await approvals.ofRuns(new Set(["run_1"])))[0]?.status, "expired");
});

test("as many approvals wait as may; those that expired make room", async () => {
  const { approvals, clock, store, ask } = setUp();
  const of = (tokenId: string) => ({ requestedBy: { via: "http", tokenId } as const });
  // Each question reads those that wait, so all but the first and the last of a token stand in the store at once
  const fill = async (tokenId: string, count: number) => {
    const body = (await store.get("approvals", (await ask(of(tokenId))).id))?.body as object;
    const ids = Array.from({ length: count - 2 }, (_, index) => `apr_${tokenId}${index}`);
    await store.batch(ids.flatMap((id) =>
      [
        { op: "insert", collection: "approvals", key: id, body: { ...body, id } },
        { op: "insert", collection: "open_approvals", key: id, body: { v: 1 } },
      ] as const
    ));
    await ask(of(tokenId));
  };
  const share = shareOf(APPROVAL_LIMITS.pending);
  await fill("tok_greedy", share);
  assert.equal(await approvals.ask(newApproval(of("tok_greedy"))), undefined, "no token takes all of the room");
  await fill("tok_other", APPROVAL_LIMITS.pending - share);
  assert.equal(await approvals.ask(newApproval(of("tok_third"))), undefined);
  await clock.advance(MINUTE);
  await ask();
});

test("over the bound of records the oldest that are settled make room, never one that still waits", async () => {
  const { approvals, store, ask } = setUp();
  const [waiting, settled] = [await ask({ timeoutMs: 60 * MINUTE }), await ask()];
  await approvals.cancel(settled.id);
  const body = (await store.get("approvals", settled.id))?.body;
  const missing = APPROVAL_LIMITS.records - await store.count("approvals") - 1;
  await store.batch(Array.from({ length: missing }, (_, index) => {
    return { op: "insert", collection: "approvals", key: `apr_filled${index}`, body } as const;
  }));
  const last = await ask();
  assert.equal(await store.count("approvals"), APPROVAL_LIMITS.records);
  assert.equal((await approvals.get(settled.id))?.status, "cancelled");
  const over = await ask();
  assert.ok(await store.count("approvals") < APPROVAL_LIMITS.records);
  assert.equal(await approvals.get(settled.id), undefined);
  for (const { id } of [waiting, last, over]) assert.equal((await approvals.get(id))?.status, "pending", id);
  assert.equal((await approvals.answer(waiting.id, { decision: "approve", by: BY })).approval.status, "approved");
});

test("tidy() settles what expired meanwhile and forgets what was settled long ago, rules of runs too", async () => {
  const { approvals, clock, ask } = setUp();
  await approvals.answer((await ask()).id, { decision: "approve", remember: "run", by: BY });
  await approvals.answer((await ask({ inputDigest: "input-2" })).id, {
    decision: "approve",
    remember: "always",
    by: BY,
  });
  await clock.advance(40 * 24 * 60 * MINUTE);
  const fresh = await ask({ timeoutMs: 1 });
  await clock.advance(1);
  await approvals.tidy(30);
  const { approvals: left } = await approvals.list({ limit: 10 });
  assert.deepEqual(left.map(({ id, status }) => [id, status]), [[fresh.id, "expired"]]);
  assert.deepEqual((await approvals.rules()).map(({ scope }) => scope), ["always"]);
  await approvals.tidy(0);
  assert.equal((await approvals.list({ limit: 10 })).approvals.length, 1);
});

test("tidy() by 0 days settles what expired and forgets nothing", async () => {
  const { approvals, clock, ask } = setUp();
  const [answered, expired] = [await ask(), await ask()];
  await approvals.answer(answered.id, { decision: "deny", by: BY });
  await clock.advance(400 * 24 * 60 * MINUTE);
  await approvals.tidy(0);
  assert.equal((await approvals.get(answered.id))?.status, "denied");
  assert.equal((await approvals.get(expired.id))?.status, "expired");
});

test("a restart changes nothing: approvals are still answerable, answers still count, rules still stand", () =>
  withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    const open = () => openSqliteStore({ path: `${folder}/postern.db`, clock });
    const first = await open();
    const before = setUp(first);
    const waiting = await before.ask();
    const answered = await before.ask({ inputDigest: "input-2" });
    await before.approvals.answer(answered.id, { decision: "approve", remember: "always", by: BY });
    await first.close();
    const second = await open();
    const { approvals } = setUp(second);
    await approvals.answer(waiting.id, { decision: "approve", by: BY });
    assert.deepEqual([await reasonOf(approvals, waiting.id), await reasonOf(approvals, answered.id)], ["ok", "ok"]);
    assert.equal((await approvals.rules()).length, 1);
    await second.close();
  }));

test("every step of an approval is in the audit, with who took it, and a step that did not happen is not", async () => {
  const { approvals, ask, audit, clock } = setUp();
  const first = await ask();
  await approvals.answer(first.id, { decision: "approve", remember: "always", note: "fine", by: BY });
  await assert.rejects(approvals.answer(first.id, { decision: "deny", by: BY }));
  await approvals.use(first.id, "digest-1");
  await approvals.use(first.id, "digest-1");
  const second = await ask();
  await clock.advance(MINUTE);
  await approvals.get(second.id);
  const third = await ask();
  await approvals.cancel(third.id);
  const rule = (await approvals.rules())[0];
  assert.ok(rule !== undefined);
  await Promise.all([approvals.revoke(rule.id, BY), approvals.revoke(rule.id, BY)]);
  assert.deepEqual(
    audit.events.map((event) =>
      event.type === "approval" || event.type === "rule" ? `${event.action} ${event.by?.via ?? "nobody"}` : event.type
    ),
    [
      "asked http",
      "approved http",
      "stored http",
      "used nobody",
      "asked http",
      "expired nobody",
      "asked http",
      "cancelled nobody",
      "revoked http",
    ],
  );
  const approved = audit.events[1];
  assert.ok(approved?.type === "approval");
  assert.deepEqual([approved.remember, approved.rule_id, approved.note], ["always", rule.id, "fine"]);
});

test("a step that cannot be told of does not happen", async () => {
  const { approvals, ask, audit } = setUp();
  const asked = await ask();
  audit.fail(new Error("disk full"));
  await assert.rejects(approvals.answer(asked.id, { decision: "approve", by: BY }), /disk full/);
  assert.equal((await approvals.get(asked.id))?.status, "pending");
});

test("the reason of an approval names the secrets that its input does not show", async () => {
  const { ask } = setUp();
  const masked = [{ name: 'the environment variable "KEY"', isOwn: true }];
  const { reason } = await ask({ masked });
  assert.equal(reason, 'asked. Its input shows [redacted] in place of the environment variable "KEY"');
  assert.equal((await ask()).reason, "asked");
});
