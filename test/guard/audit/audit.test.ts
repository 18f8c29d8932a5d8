import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger, type LogRecord } from "../../../lib/base/telemetry/log.ts";
import { AUDIT_RECORDS } from "../../../lib/guard/audit/audit_chain.ts";
import { type AuditOptions, createAudit, pruneAudit } from "../../../lib/guard/audit/audit.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { auditedCall } from "../../support/audited_call.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { until } from "../../support/until.ts";

const DAY_MS = 86_400_000;

async function setUp(options: Partial<AuditOptions> = {}) {
  const clock = createFakeClock();
  const store = options.store ?? createMemoryStore();
  const logged: LogRecord[] = [];
  const log = createLogger({ level: "debug", now: clock.now, sink: (line) => void logged.push(line), redact: String });
  const all: AuditOptions = {
    store,
    clock,
    log,
    redact: (text) => text.replaceAll("SECRET", "[redacted]"),
    enabled: () => true,
    retentionDays: () => 30,
    ...options,
  };
  return { clock, store, logged, audit: await createAudit(all), reopen: () => createAudit(all) };
}

/** A store whose batches fail, or say no, while told so. */
function withFailure(store: Store) {
  let failure: Error | undefined;
  return {
    store: {
      ...store,
      batch: (writes: Parameters<Store["batch"]>[0]) =>
        failure === undefined ? store.batch(writes) : Promise.reject(failure),
    },
    fail(error: Error | undefined) {
      failure = error;
    },
  };
}

test("append() keeps the order of its calls, however many come at once", async () => {
  const { audit } = await setUp();
  await Promise.all(Array.from({ length: 100 }, (_, index) =>
    audit.append(
      auditedCall(`tool_${index}`),
      index % 7 === 0 ? [{ op: "put", collection: "facts", key: String(index), body: index }] : [],
    )));
  const { records } = await audit.list({ limit: 1000 });
  assert.deepEqual(records.map(({ seq }) => seq), Array.from({ length: 100 }, (_, index) => 100 - index));
  assert.deepEqual(
    records.map((record) => "tool" in record && record.tool),
    Array.from({ length: 100 }, (_, index) => `tool_${99 - index}`),
  );
  assert.equal((await audit.verify()).ok, true);
});

test("append() writes an event and its facts together or not at all", async () => {
  const { audit, store } = await setUp();
  const insert = (key: string) => [{ op: "insert", collection: "facts", key, body: 1 }] as const;
  assert.equal(await audit.append(auditedCall("a"), insert("one")), true);
  // The first is on its way alone; what comes meanwhile waits together
  const results = await Promise.all([
    audit.append(auditedCall("b")),
    audit.append(auditedCall("c")),
    audit.append(auditedCall("d"), insert("one")),
    audit.append(auditedCall("e"), insert("two")),
  ]);
  assert.deepEqual(results, [true, true, false, true]);
  const { records } = await audit.list({ limit: 10 });
  assert.deepEqual(records.map((record) => "tool" in record && record.tool), ["e", "c", "b", "a"]);
  assert.equal(await store.count("facts"), 2);
  assert.equal((await audit.verify()).ok, true);
});

test("close() waits for the events on their way, and for what is being forgotten", async () => {
  for (const held of ["batch", "scan"] as const) {
    const store = createMemoryStore();
    const gate = Promise.withResolvers<void>();
    let isHeld = false;
    const pass = async (name: typeof held) => {
      if (isHeld && name === held) await gate.promise;
    };
    const { audit, clock } = await setUp({
      store: {
        ...store,
        batch: (writes) => pass("batch").then(() => store.batch(writes)),
        scan: (...words) => pass("scan").then(() => store.scan(...words)),
      },
    });
    await audit.append(auditedCall("first"));
    isHeld = true;
    if (held === "scan") await clock.advance(DAY_MS);
    const written = held === "batch" ? audit.append(auditedCall("second")) : Promise.resolve(true);
    let isClosed = false;
    const closing = audit.close().then(() => void (isClosed = true));
    await clock.advance(0);
    assert.equal(isClosed, false, held);
    gate.resolve();
    await closing;
    assert.equal(await written, true);
  }
});

test("append() goes on with the chain after a failed write, and says meanwhile that it is not healthy", async () => {
  const { store, fail } = withFailure(createMemoryStore());
  const { audit } = await setUp({ store });
  await audit.append(auditedCall("a"));
  fail(new Error("disk full"));
  await assert.rejects(audit.append(auditedCall("b")), /disk full/);
  assert.equal(audit.healthy(), false);
  fail(undefined);
  await audit.append(auditedCall("c"));
  assert.equal(audit.healthy(), true);
  assert.deepEqual((await audit.list({ limit: 10 })).records.map(({ seq }) => seq), [2, 1]);
  assert.equal((await audit.verify()).ok, true);
});

test("whoever asks for its health while all is well writes nothing", async () => {
  const store = createMemoryStore();
  let writes = 0;
  const counted: Store = { ...store, batch: (batch) => (writes++, store.batch(batch)) };
  const { audit, clock } = await setUp({ store: counted });
  await audit.append(auditedCall("a"));
  const before = writes;
  assert.equal(audit.healthy(), true);
  await clock.advance(0);
  assert.equal(writes, before);
});

test("it is healthy again when a record could be written, though nothing happens", async () => {
  const { store, fail } = withFailure(createMemoryStore());
  const { audit } = await setUp({ store });
  await audit.append(auditedCall("a"));
  fail(new Error("disk full"));
  await assert.rejects(audit.append(auditedCall("b")), /disk full/);
  for (let look = 0; look < 3; look++) {
    assert.equal(audit.healthy(), false);
    await new Promise((resolve) => setImmediate(resolve));
  }
  fail(undefined);
  await until(() => audit.healthy());
  await audit.append(auditedCall("c"));
  assert.deepEqual((await audit.list({ limit: 10 })).records.map(({ seq }) => seq), [2, 1]);
  assert.equal((await audit.verify()).ok, true);
});

test("a new start goes on with the chain of the last one, and finds nothing wrong with it", async () => {
  const { audit, reopen, logged } = await setUp();
  await audit.append(auditedCall("a"));
  await audit.close();
  await assert.rejects(audit.append(auditedCall("b")), /closed/);
  const second = await reopen();
  assert.deepEqual(logged.filter(({ level }) => level === "error" || level === "warn"), []);
  await second.append(auditedCall("c"));
  assert.equal(second.head().seq, 2);
  assert.equal((await second.verify()).ok, true);
});

test("a start says so when the newest record is not its head's", async () => {
  const { audit, store, reopen, logged } = await setUp();
  await audit.append(auditedCall("a"));
  await audit.close();
  await store.takeOnce(AUDIT_RECORDS.name, (await store.scan(AUDIT_RECORDS.name, { limit: 1 }))[0]?.key ?? "");
  await reopen();
  assert.ok(logged.some(({ level, message }) => level === "error" && message.includes("postern audit verify")));
});

test("texts are redacted and cut, lists are cut", async () => {
  const { audit } = await setUp();
  await audit.append(auditedCall("a", {
    reason: `the SECRET ${"x".repeat(5000)}`,
    effects: { paths: Array.from({ length: 1000 }, (_, index) => `${index}-SECRET`), command: ["\ud800"] },
  }));
  const record = (await audit.list({ limit: 1 })).records[0];
  const json = JSON.stringify(record);
  assert.ok(!json.includes("SECRET") && json.includes("[redacted]"));
  assert.ok(json.length < 4000, String(json.length));
  assert.match(json, /968 more/);
  assert.equal((await audit.verify()).ok, true);
});

test("switched off, nothing is kept and facts are written all the same", async () => {
  const { audit, store } = await setUp({ enabled: () => false });
  const fact = { op: "insert", collection: "facts", key: "one", body: 1 } as const;
  assert.equal(await audit.append(auditedCall("a"), [fact]), true);
  assert.equal(await audit.append(auditedCall("a"), [fact]), false);
  assert.equal(await audit.append(auditedCall("a")), true);
  audit.accessFailed("10.0.0.1", "auth_invalid");
  await audit.close();
  assert.equal(await store.count(AUDIT_RECORDS.name), 0);
  assert.equal(await store.count("facts"), 1);
});

test("records past their retention are forgotten, and the chain says up to where", async () => {
  const { audit, clock, store } = await setUp();
  for (let index = 0; index < 700; index++) await audit.append(auditedCall("old"));
  await clock.advance(20 * DAY_MS);
  await audit.append(auditedCall("newer"));
  await clock.advance(11 * DAY_MS);
  const report = await audit.verify();
  assert.deepEqual(report.problems, []);
  assert.equal(report.first_seq, 701);
  // One record for each step of 500
  assert.deepEqual(
    (await audit.list({ limit: 10, type: "retention" })).records.map((record) =>
      record.type === "retention" && record.through
    ),
    [700, 500],
  );

  await store.takeOnce(AUDIT_RECORDS.name, (await store.scan(AUDIT_RECORDS.name, { limit: 1 }))[0]?.key ?? "");
  assert.deepEqual((await audit.verify()).problems.map(({ seq, code }) => `${code} ${seq}`), ["missing 1"]);
});

test("a record is forgotten from the moment on that it is older than the retention, not when it is as old", async () => {
  const { audit, clock, store } = await setUp();
  await audit.append(auditedCall("old"));
  const at = clock.now();
  await audit.append(auditedCall("as old"));
  await clock.advance(DAY_MS);
  const prune = (before: number) => pruneAudit({ store, append: audit.append, before: new Date(before).toISOString() });
  assert.equal(await prune(at), 0);
  assert.equal(await prune(at + 1), 2);
  assert.equal((await audit.verify()).first_seq, 3);
});

test("retention goes on for long", async () => {
  const { audit, clock } = await setUp();
  for (let month = 0; month < 12; month++) {
    await audit.append(auditedCall("monthly"));
    await clock.advance(31 * DAY_MS);
    assert.equal((await audit.verify()).ok, true, `month ${month}`);
  }
  const { records } = await audit.verify();
  assert.ok(records <= 5, String(records));
});

test("list() filters by type, tool and run, and pages by position", async () => {
  const { audit } = await setUp();
  for (let index = 0; index < 10; index++) {
    await audit.append(auditedCall(index % 2 === 0 ? "even" : "odd", { run_id: `run_${index}` }));
  }
  const even = await audit.list({ limit: 3, tool: "even" });
  assert.deepEqual(even.records.map(({ seq }) => seq), [9, 7, 5]);
  assert.equal(even.hasMore, true);
  const rest = await audit.list({ limit: 3, tool: "even", before: even.last });
  assert.deepEqual([rest.records.map(({ seq }) => seq), rest.hasMore], [[3, 1], false]);
  assert.deepEqual((await audit.list({ limit: 3, runId: "run_4" })).records.map(({ seq }) => seq), [5]);
  assert.deepEqual((await audit.list({ limit: 3, type: "approval" })).records, []);
});

test("list() gives only what fits every filter", async () => {
  const { audit } = await setUp();
  for (const tool of ["one", "two"]) {
    for (const run_id of ["run_1", "run_2"]) {
      const decision = auditedCall(tool, { run_id });
      await audit.append(decision);
      const { input_digest, by, call_id } = decision;
      const call = { type: "call", tool, run_id, call_id, input_digest, by } as const;
      await audit.append({ ...call, outcome: "ok", duration_ms: 1, output_bytes: 0, output_digest: null });
    }
  }
  const seqs = async (filters: Partial<Parameters<typeof audit.list>[0]>) =>
    (await audit.list({ limit: 10, ...filters })).records.map(({ seq }) => seq);
  assert.deepEqual(await seqs({ tool: "one", type: "call" }), [4, 2]);
  assert.deepEqual(await seqs({ runId: "run_2", type: "decision" }), [7, 3]);
  assert.deepEqual(await seqs({ runId: "run_2", tool: "two" }), [8, 7]);
  assert.deepEqual(await seqs({ runId: "run_1", tool: "two", type: "call" }), [6]);
  assert.deepEqual(await seqs({ runId: "run_3", tool: "two", type: "call" }), []);
});

test("refused credentials are one record a minute and address, of bounded number", async () => {
  const { audit, clock } = await setUp();
  for (let index = 0; index < 1000; index++) audit.accessFailed("10.0.0.1", "auth_invalid");
  audit.accessFailed("10.0.0.1", "auth_required");
  audit.accessFailed(undefined, "auth_required");
  await clock.advance(60_000);
  for (let index = 0; index < 1000; index++) audit.accessFailed(`10.1.${index >> 8}.${index & 255}`, "auth_invalid");
  await audit.close();
  const { records } = await audit.list({ limit: 1000 });
  assert.equal(records.length, 2 + 257);
  const first = records.at(-1);
  assert.deepEqual(first?.type === "access_failures" && [first.address, first.codes, first.since], [
    "10.0.0.1",
    { auth_invalid: 1000, auth_required: 1 },
    "2026-01-01T00:00:00.000Z",
  ]);
});

test("a credential that is refused after close() starts nothing", async () => {
  const { audit, clock } = await setUp();
  await audit.close();
  audit.accessFailed("127.0.0.1", "auth_required");
  assert.equal(clock.pending(), 0);
});

test("heads go to the log hourly while there are new ones", async () => {
  const { audit, clock, logged } = await setUp();
  const heads = () => logged.filter(({ message }) => message === "Audit head").map(({ fields }) => fields.seq);
  await audit.append(auditedCall("a"));
  await clock.advance(3 * 3_600_000);
  await audit.append(auditedCall("b"));
  await audit.close();
  assert.deepEqual(heads(), [1, 2]);
  assert.equal(clock.pending(), 0);
});

test("verify() sees a whole chain while records are written and forgotten", async () => {
  const { audit, clock } = await setUp();
  for (let index = 0; index < 600; index++) await audit.append(auditedCall("old"));
  await clock.advance(29 * DAY_MS);
  const writing = (async () => {
    for (let index = 0; index < 600; index++) await audit.append(auditedCall("new"));
  })();
  const moved = clock.advance(2 * DAY_MS);
  for (let round = 0; round < 5; round++) assert.deepEqual((await audit.verify()).problems, []);
  await Promise.all([writing, moved]);
  assert.equal((await audit.verify()).ok, true);
});
