import assert from "node:assert/strict";
import { test } from "node:test";
import type { CancelError } from "../../lib/base/cancel.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { HALTS, Halts, type HaltSubject } from "../../lib/guard/halts.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createFakeClock } from "../support/fake_clock.ts";

const BY = { via: "cli", tokenId: null } as const;

function set() {
  const store = createMemoryStore();
  const audit = createFakeAudit(store);
  const told: string[] = [];
  const create = () =>
    new Halts({
      store,
      clock: createFakeClock(),
      log: SILENT,
      audit: audit.append,
      tell: () => void told.push("halt"),
    });
  return { store, audit, told, create, halts: create() };
}

const SUBJECTS: readonly HaltSubject[] = [
  { tool: "file_read", access: "read", runId: "run_1" },
  { tool: "memory_store", access: "state", runId: "run_1" },
  { tool: "write_file", access: "write", runId: "run_2" },
  { tool: "http_request", access: "network", runId: "run_2" },
];

test("each kind of halt refuses the calls that it names, and no other", async () => {
  const refused = async (kind: Parameters<Halts["halt"]>[0]["kind"], name: string | null = null) => {
    const { halts } = set();
    await halts.halt({ kind, name }, BY);
    return SUBJECTS.filter((subject) => halts.refusalOf(subject) !== undefined).map(({ tool }) => tool);
  };
  assert.deepEqual(await refused("all"), SUBJECTS.map(({ tool }) => tool));
  assert.deepEqual(await refused("network"), ["http_request"]);
  assert.deepEqual(await refused("writes"), ["write_file", "http_request"]);
  assert.deepEqual(await refused("tool", "memory_store"), ["memory_store"]);
  assert.deepEqual(await refused("run", "run_1"), ["file_read", "memory_store"]);
});

test("a refusal says what is halted, since when, and what lifts it", async () => {
  const { halts } = set();
  await halts.halt({ kind: "tool", name: "shell" }, BY);
  const reason = halts.refusalOf({ tool: "shell", access: "write", runId: "run_1" });
  assert.match(
    reason ?? "",
    /^a person has halted the tool "shell" \(since \d{4}-.+\); "postern resume" .*"admin"$/,
  );
  assert.equal(halts.refusalOfRun(), undefined);
  assert.equal(halts.refusalOfRun("run_1"), undefined);
});

test("a halt and a resume are on record, with who did it, and hold after a restart", async () => {
  const { halts, audit, create, told } = set();
  await halts.halt({ kind: "all", name: null }, { via: "http", tokenId: "tok_1" });
  assert.equal((await halts.halt({ kind: "all", name: null }, BY)).by.token_id, "tok_1", "the first counts");
  const restarted = create();
  await restarted.look();
  assert.deepEqual(restarted.list().map(({ id, by }) => [id, by]), [["all", { via: "http", token_id: "tok_1" }]]);
  assert.deepEqual(await restarted.resume(undefined, BY), ["all"]);
  assert.deepEqual(await restarted.resume("all", BY), []);
  await halts.look();
  assert.deepEqual(halts.list(), []);
  assert.deepEqual(audit.events, [
    { type: "halt", action: "halted", halts: ["all"], by: { via: "http", token_id: "tok_1" } },
    { type: "halt", action: "resumed", halts: ["all"], by: { via: "cli", token_id: null } },
  ]);
  assert.equal(told.length, 2);
});

test("work is stopped before the record is written, and stays halted when nothing can be written", async () => {
  const { halts, audit } = set();
  const stopped: CancelError[] = [];
  const subject: HaltSubject = { tool: "shell", access: "write", runId: "run_1" };
  const unwatch = halts.watch(subject, (error) => void stopped.push(error));
  audit.fail(new Error("the disk is full"));
  const halting = halts.halt({ kind: "writes", name: null }, BY);
  assert.deepEqual(stopped.map(({ reason }) => reason), ["halted"]);
  unwatch();
  await assert.rejects(halting, /the disk is full/);
  await halts.look();
  assert.notEqual(halts.refusalOf(subject), undefined);
});

test("a record that cannot be read halts everything, and a resume mends it", async () => {
  const { halts, store } = set();
  await store.batch([{ op: "put", collection: HALTS.name, key: "halts", body: { v: 1, halts: "?" } }]);
  await halts.look();
  assert.notEqual(halts.refusalOfRun(), undefined);
  assert.deepEqual(await halts.resume(undefined, BY), ["all"]);
  assert.equal(halts.refusalOfRun(), undefined);
});

test("a look that began before a halt does not lift it", async () => {
  const { halts, store } = set();
  const reading = Promise.withResolvers<void>();
  const { get } = store;
  let isHeld = true;
  store.get = async (...given) => {
    const found = await get.call(store, ...given);
    if (isHeld) await reading.promise;
    return found;
  };
  const looking = halts.look();
  const halting = halts.halt({ kind: "all", name: null }, BY);
  isHeld = false;
  reading.resolve();
  await Promise.all([looking, halting]);
  assert.notEqual(halts.refusalOfRun(), undefined);
});

test("a halt counts also where this gateway has not heard yet that another one has lifted the last", async () => {
  const { halts, create } = set();
  await halts.halt({ kind: "all", name: null }, BY);
  const other = create();
  await other.look();
  await other.resume(undefined, BY);
  await halts.halt({ kind: "all", name: null }, BY);
  await other.look();
  assert.notEqual(other.refusalOfRun(), undefined);
});

test("work that waits goes on with the resume", async () => {
  const { halts } = set();
  const subject: HaltSubject = { tool: "", access: "network", runId: "run_1" };
  await halts.halt({ kind: "network", name: null }, BY);
  await halts.halt({ kind: "all", name: null }, BY);
  let goesOn = false;
  const waiting = halts.untilResumed(subject, new AbortController().signal).then(() => goesOn = true);
  await halts.resume("all", BY);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(goesOn, false);
  await halts.resume("network", BY);
  await waiting;
});
