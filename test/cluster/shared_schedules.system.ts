import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Cron, CronService } from "../../lib/automation/cron/cron_service.ts";
import { shareSchedules } from "../../lib/automation/cron/shared_schedules.ts";
import { FIRINGS, SCHEDULE_CHANGES, SCHEDULES } from "../../lib/automation/cron/schedule_record.ts";
import type { Clock } from "../../lib/base/clock.ts";
import { SCOPES } from "../../lib/base/records/caller.ts";
import type { Store } from "../../lib/storage/store.ts";
import {
  type ClusterLink,
  createSharedDatabase,
  joinLink,
  LEASE_MS,
  passing,
  type SharedDatabase,
} from "../support/clustered.ts";
import { createCrashingStore } from "../support/crashing_store.ts";
import { MAKER } from "../support/cron_fixture.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { type Supervised, supervised } from "../support/supervised.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const decision = { kind: "allow", reason: "", rule: "", path: [], change: [] } as const;

interface Member extends ClusterLink, Supervised {
  readonly cron: Cron;
  readonly settings: { enabled: boolean };
  die(): void;
}

interface JoinOptions {
  readonly seed: number;
  readonly enabled?: boolean;
  /** Milliseconds that the machine's wall clock is ahead. */
  readonly ahead?: number;
  readonly workspace?: string;
  readonly maxTasks?: number;
  readonly isLocal?: boolean;
  readonly wrap?: (store: Store) => Store;
}

/** Starts a gateway with schedules over a database. */
async function join(database: SharedDatabase, options: JoinOptions): Promise<Member> {
  const { seed, ahead = 0, workspace, maxTasks = 100, wrap = (store) => store } = options;
  const plain = database.link();
  const own: Clock = { ...database.clock, now: () => database.clock.now() + ahead };
  const store = wrap(plain.store);
  const member = await joinLink(database, {
    ...{ seed, own, link: { ...plain, store } },
    ...(workspace === undefined ? {} : { workspace }),
  });
  const { cluster, log } = member;
  const clock = { ...database.clock, ...cluster.clock };
  const change = { name: "change", access: "write", local: options.isLocal ?? false, run: () => "changed" } as const;
  const bench = supervised([], { store, clock, seed, log, cluster: member.member, tools: [change] });
  const settings = { enabled: options.enabled ?? true };
  const cron = new CronService({
    ...{ store, clock, log },
    sharing: shareSchedules({ store, clock, log, bus: cluster.bus, workspace: () => cluster.ownership.workspace() }),
    random: createSeededRandom(seed),
    settings: () => ({ ...settings, timezone: "UTC", maxTasks }),
    runs: () => bench.runs,
    scopesOf: () => SCOPES,
    // The fake executor judges nothing
    tools: () => ({
      shown: bench.executor.shown,
      judge: () => ({ kind: "judged", decision, access: "write", prepared: undefined }),
    }),
  });
  await bench.runs.recover();
  await cron.start();
  return {
    ...bench,
    ...member,
    link: plain,
    cron,
    settings,
    die() {
      plain.isCut = true;
      cluster.lease.abandon();
    },
  };
}

async function close(...members: readonly Member[]): Promise<void> {
  for (const { cron } of members) await cron.stop();
  for (const member of members) await member.close();
}

const WORK = { tool: "change", input: {} } as const;

/** Time and status of each firing, the oldest first. */
async function firedAt({ cron }: Member, id = "a"): Promise<readonly string[]> {
  const { firings = [] } = await cron.history(id, { limit: 100 }) ?? {};
  return firings.map(({ time, status }) => `${time.slice(11, 19)} ${status}`).toReversed();
}

async function runsOf({ runs }: Member): Promise<readonly { readonly id: string; readonly status: string }[]> {
  return (await runs.list({ limit: 100 })).runs;
}

describe("schedules in a cluster", () => {
  test("each time has one firing with one run, whichever gateway is first", async () => {
    const database = createSharedDatabase();
    const members = [
      await join(database, { seed: 1 }),
      await join(database, { seed: 2 }),
      await join(database, { seed: 3 }),
    ] as const;
    const [a, b] = members;
    await a.cron.add({ id: "a", schedule: "every minute", ...WORK }, MAKER);
    await database.clock.advance(3 * MINUTE + SECOND);
    const expected = [1, 2, 3].map((minute) => `00:0${minute}:00 started`);
    assert.deepEqual(await firedAt(b), expected);
    assert.equal((await runsOf(b)).length, 3);
    assert.ok((await runsOf(b)).every(({ status }) => status === "completed"));
    await close(...members);
  });

  test("a gateway with schedules off changes them, and others follow at once by a note", async () => {
    const database = createSharedDatabase();
    const a = await join(database, { seed: 1, enabled: false });
    const b = await join(database, { seed: 2 });
    await database.clock.advance(2 * SECOND);
    await a.cron.add({ id: "a", schedule: "in 1 hour", ...WORK }, MAKER);
    await database.clock.advance(2 * SECOND);
    await a.cron.update("a", { schedule: "in 1 minute" }, MAKER);
    await database.clock.advance(MINUTE + SECOND);
    assert.deepEqual(await firedAt(a), ["00:01:04 started"]);
    await a.cron.add({ id: "b", schedule: "every minute", ...WORK }, MAKER);
    await database.clock.advance(MINUTE);
    await a.cron.pause("b", MAKER.caller);
    await database.clock.advance(3 * MINUTE);
    assert.equal((await firedAt(a, "b")).length, 1);
    await a.cron.resume("b", MAKER.caller);
    await database.clock.advance(MINUTE);
    assert.equal((await firedAt(a, "b")).length, 2);
    await a.cron.remove("b", MAKER.caller);
    await database.clock.advance(2 * MINUTE);
    assert.equal(await database.store.count(FIRINGS.name, "b/"), 0);
    await assert.rejects(a.cron.run("a", MAKER.caller), { code: "not_found" });
    await close(a, b);
  });

  test("a schedule is added, changed and removed however often others change schedules in the same moments, up to a bound", async () => {
    const database = createSharedDatabase();
    const a = await join(database, { seed: 1, enabled: false });
    let meets = 0;
    a.link.onBatch = async (writes, make) => {
      if (meets-- > 0 && writes.some((write) => "collection" in write && write.collection === SCHEDULES.name)) {
        const one = (await database.store.get(SCHEDULES.name, "a"))?.body;
        await database.store.batch([
          { op: "put", collection: SCHEDULE_CHANGES.name, key: "all", body: { v: 1 } },
          ...(one === undefined ? [] : [{ op: "put", collection: SCHEDULES.name, key: "a", body: one } as const]),
        ]);
      }
      return await make();
    };
    const done = async (change: () => Promise<unknown>, often: number) => {
      meets = often;
      return await passing(database, change().then(() => "done", (error: { code?: string }) => error.code));
    };
    assert.equal(await done(() => a.cron.add({ id: "a", schedule: "in 1 hour", ...WORK }, MAKER), 12), "done");
    assert.equal(await done(() => a.cron.update("a", { schedule: "in 2 hours" }, MAKER), 12), "done");
    assert.equal(await done(() => a.cron.pause("a", MAKER.caller), Infinity), "conflict");
    assert.equal(await done(() => a.cron.remove("a", MAKER.caller), 12), "done");
    assert.equal(await database.store.get(SCHEDULES.name, "a"), undefined);
    await close(a);
  });

  test("without notes others follow within a second, and read no schedule while none changes", async () => {
    const database = createSharedDatabase();
    const a = await join(database, { seed: 1, enabled: false });
    const b = await join(database, { seed: 2 });
    database.isMute = true;
    await a.cron.add({ id: "a", schedule: "in 2 seconds", ...WORK }, MAKER);
    let reads = 0;
    await database.clock.advance(1_000);
    database.onResult = async (_, collection) => void (collection === SCHEDULES.name && reads++);
    await database.clock.advance(500);
    assert.equal(reads, 0);
    await database.clock.advance(500);
    assert.deepEqual(await firedAt(b), ["00:00:02 started"]);
    reads = 0;
    await database.clock.advance(20 * SECOND);
    assert.equal(reads, 0);
    await close(a, b);
  });

  test("a gateway whose wall clock is wrong fires at the database's time, and nothing twice", async () => {
    const database = createSharedDatabase();
    const members = [
      await join(database, { seed: 1, ahead: 10 * MINUTE }),
      await join(database, { seed: 2, ahead: -10 * MINUTE }),
    ] as const;
    const [a, b] = members;
    await b.cron.add({ id: "a", schedule: "*/2 * * * *", ...WORK }, MAKER);
    await database.clock.advance(2 * MINUTE - SECOND);
    assert.deepEqual(await firedAt(a), []);
    await database.clock.advance(3 * MINUTE);
    const { firings = [] } = await a.cron.history("a", { limit: 10 }) ?? {};
    assert.deepEqual(firings.map(({ time, at }) => [time, at]), [
      ["2026-01-01T00:04:00.000Z", "2026-01-01T00:04:00.000Z"],
      ["2026-01-01T00:02:00.000Z", "2026-01-01T00:02:00.000Z"],
    ]);
    await close(...members);
  });

  test("gateways that start together after an outage make up for it once", async () => {
    const database = createSharedDatabase();
    const first = await join(database, { seed: 1 });
    await first.cron.add({ id: "a", schedule: "hourly", ...WORK }, MAKER);
    await close(first);
    await database.clock.advance(3 * HOUR + MINUTE);
    const members = await Promise.all([2, 3, 4].map((seed) => join(database, { seed })));
    const [b] = members as [Member, ...Member[]];
    await database.clock.advance(MINUTE);
    assert.deepEqual(await firedAt(b), ["01:00:00 missed", "03:00:00 started"]);
    assert.equal((await runsOf(b)).length, 1);
    await close(...members);
  });

  test("the database is down at a time: it is made up for once", async () => {
    const database = createSharedDatabase();
    const [a, b] = [await join(database, { seed: 1 }), await join(database, { seed: 2 })];
    await a.cron.add({ id: "a", schedule: "every minute", ...WORK }, MAKER);
    await database.clock.advance(MINUTE + SECOND);
    database.isAway = true;
    await database.clock.advance(2 * MINUTE);
    database.isAway = false;
    await database.clock.advance(10 * SECOND);
    assert.deepEqual(await firedAt(b), ["00:01:00 started", "00:02:00 missed", "00:03:00 started"]);
    assert.equal((await runsOf(b)).length, 2);
    await close(a, b);
  });

  test("a gateway that was cut off for minutes fires nothing that others have fired", async () => {
    const database = createSharedDatabase();
    const [a, b] = [await join(database, { seed: 1 }), await join(database, { seed: 2 })];
    await a.cron.add({ id: "a", schedule: "every minute", ...WORK }, MAKER);
    a.link.isCut = true;
    await database.clock.advance(2 * MINUTE + SECOND);
    a.link.isCut = false;
    await database.clock.advance(50 * SECOND);
    assert.deepEqual(await firedAt(b), ["00:01:00 started", "00:02:00 started"]);
    assert.equal((await runsOf(b)).length, 2);
    await close(a, b);
  });

  test("two people run a schedule at two gateways at the same moment: one run is started", async () => {
    const database = createSharedDatabase();
    const [a, b] = [await join(database, { seed: 1 }), await join(database, { seed: 2 })];
    await a.cron.add({ id: "a", schedule: "hourly", prompt: "work" }, MAKER);
    const ended = await passing(
      database,
      Promise.allSettled([a.cron.run("a", MAKER.caller), b.cron.run("a", MAKER.caller)]),
    );
    assert.equal((await runsOf(a)).length, ended.filter(({ status }) => status === "fulfilled").length);
    assert.equal(await database.store.count(FIRINGS.name), (await runsOf(a)).length);
    const ids = ended.flatMap((one) => one.status === "fulfilled" ? [one.value.run_id] : []);
    assert.equal(new Set(ids).size, ids.length, "nobody is given the run of another");
    await close(a, b);
  });

  test("a change and a firing at the same moment both happen", async () => {
    const database = createSharedDatabase();
    const [a, b] = [await join(database, { seed: 1, enabled: false }), await join(database, { seed: 2 })];
    await a.cron.add({ id: "a", schedule: "every minute", ...WORK }, MAKER);
    let changing: Promise<unknown> | undefined;
    database.onResult = async (operation, first) => {
      if (
        operation !== "get" || first !== SCHEDULES.name || changing !== undefined ||
        database.clock.now() % HOUR < MINUTE
      ) return;
      changing = a.cron.update("a", { prompt: "Changed" }, MAKER);
      await changing;
    };
    await database.clock.advance(2 * MINUTE + SECOND);
    assert.equal((await changing as { readonly prompt: string }).prompt, "Changed");
    // The change came first, and gave the schedule its next time
    assert.deepEqual(await firedAt(a), ["00:02:00 started"]);
    assert.equal((await runsOf(a)).length, 1);
    await close(a, b);
  });

  test("two gateways that add at the same moment keep to max_tasks, and one id is given once", async () => {
    const database = createSharedDatabase();
    const a = await join(database, { seed: 1, maxTasks: 2 });
    const b = await join(database, { seed: 2, maxTasks: 2 });
    const add = (member: Member, id: string) => member.cron.add({ id, schedule: "hourly", ...WORK }, MAKER);
    const same = await Promise.allSettled([add(a, "x"), add(b, "x")]);
    assert.deepEqual(same.map(({ status }) => status).toSorted(), ["fulfilled", "rejected"]);
    const full = await Promise.allSettled([add(a, "y"), add(b, "z")]);
    assert.deepEqual(full.map(({ status }) => status).toSorted(), ["fulfilled", "rejected"]);
    assert.equal(await database.store.count(SCHEDULES.name), 2);
    await close(a, b);
  });

  test("a schedule whose tool needs the workspace has its runs where it was made, whichever gateway fires", async () => {
    const database = createSharedDatabase();
    const a = await join(database, { seed: 1, enabled: false, workspace: "ws_a", isLocal: true });
    const b = await join(database, { seed: 2, workspace: "ws_b", isLocal: true });
    await a.cron.add({ id: "a", schedule: "every minute", ...WORK }, MAKER);
    await b.cron.update("a", { timezone: "Europe/Berlin" }, MAKER);
    await database.clock.advance(MINUTE + 2 * SECOND);
    assert.deepEqual(await firedAt(a), ["00:01:00 started"]);
    assert.deepEqual((await runsOf(b)).map(({ status }) => status), ["completed"]);
    assert.deepEqual([a.executor.calls.length, b.executor.calls.length], [1, 0]);
    await close(a, b);
  });
});

for (const [from, when] of [[1, "before"], [2, "after"]] as const) {
  test(`a gateway dies ${when} one of its writes: each time has one firing, and each firing its run`, async () => {
    for (let crashAt = from; crashAt <= 12; crashAt += 2) {
      const database = createSharedDatabase();
      const b = await join(database, { seed: 2 });
      const dying: Promise<void>[] = [];
      const a = await join(database, {
        seed: 1,
        wrap(store) {
          const crashing = createCrashingStore(store, { crashAt, when });
          dying.push(crashing.crashed);
          return crashing;
        },
      });
      void dying[0]?.then(() => a.die());
      await b.cron.add({ id: "a", schedule: "every minute", ...WORK }, MAKER);
      await database.clock.advance(2 * MINUTE + 10 * SECOND);
      const shown = `killed ${when} write ${crashAt}`;
      const { firings = [] } = await b.cron.history("a", { limit: 10 }) ?? {};
      assert.deepEqual(
        firings.map(({ time }) => time.slice(14, 16)).toReversed(),
        ["01", "02"],
        shown,
      );
      const started = firings.flatMap(({ run_id }) => run_id ?? []);
      assert.deepEqual(new Set((await runsOf(b)).map(({ id }) => id)), new Set(started), shown);
      await a.cron.stop();
      await close(b);
    }
  });
}

test(`a lease of ${LEASE_MS} ms that is lost takes no firing away`, async () => {
  const database = createSharedDatabase();
  const [a, b] = [await join(database, { seed: 1 }), await join(database, { seed: 2 })];
  await a.cron.add({ id: "a", schedule: "every minute", ...WORK }, MAKER);
  await database.clock.advance(MINUTE - 100);
  a.link.isCut = true;
  b.link.isCut = true;
  await database.clock.advance(3 * LEASE_MS);
  a.link.isCut = false;
  b.link.isCut = false;
  await database.clock.advance(30 * SECOND);
  assert.deepEqual(await firedAt(b), ["00:01:00 started"]);
  await close(a, b);
});
