import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { OPEN_DELIVERIES } from "../../lib/automation/channels/delivery_record.ts";
import { createAlertWork } from "../../lib/automation/notify/alert_work.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";
import { type Deliveries, DeliveryService } from "../../lib/automation/channels/delivery_service.ts";
import { cancelError } from "../../lib/base/cancel.ts";
import { needsEffectRight, untilEffectMayBegin } from "../../lib/base/effect_right.ts";
import type { Run } from "../../lib/base/records/run.ts";
import { NO_USAGE } from "../../lib/base/records/usage.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import type { RunSupervisor } from "../../lib/runs/run_request.ts";
import type { GuardedFetch } from "../../lib/system/net/guarded_fetch.ts";
import {
  type ClusterLink,
  createSharedDatabase,
  joinLink,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import { createCrashingStore } from "../support/crashing_store.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

/** Answer to an attempt: a status, 204 after 200 ms, or silence until the attempt is broken off. */
type Answer = number | "slow" | "silent";

/** A receiver of replies that several gateways share. */
interface Receiver {
  /** Gateway, attempt and idempotency key of each request, in order. */
  readonly got: string[];
  /** Requests that wait for their answer. */
  open: number;
  answer: Answer;
}

const HOOK = { name: "hook", events: ["run_failed"], kind: "webhook", url: "http://127.0.0.1:9/in", secret_env: "A" };
const CHECKED = validateConfig([{ notify: [{ ...HOOK, window_secs: 0 }] }]);
const NOTIFY = "config" in CHECKED ? CHECKED.config.notify : [];

interface Member extends ClusterLink {
  readonly deliveries: Deliveries;
  /** Accepts a message whose run has ended. */
  accept(runId: string): Promise<boolean>;
  die(): void;
}

function toRun(id: string, database: SharedDatabase): Run {
  const time = new Date(database.clock.now()).toISOString();
  return {
    id,
    object: "run",
    kind: "channel",
    status: "completed",
    created_at: time,
    started_at: time,
    ended_at: time,
    model: "m",
    conversation_id: null,
    parent_id: null,
    result: "The answer",
    error: null,
    usage: NO_USAGE,
  };
}

async function join(
  database: SharedDatabase,
  receiver: Receiver,
  { name, seed, crash, agent = true }: {
    name: string;
    seed: number;
    crash?: { crashAt: number; when: "before" | "after" };
    /** False: the gateway has no agent, so that its deliveries never start. Default true */
    agent?: boolean;
  },
): Promise<Member> {
  const plain = database.link();
  const crashing = crash && createCrashingStore(plain.store, crash);
  const store = crashing ?? plain.store;
  const member = await joinLink(database, { seed, link: { ...plain, store } });
  const die = () => {
    plain.isCut = true;
    member.cluster.lease.abandon();
  };
  void crashing?.crashed.then(die);
  const { clock } = database;
  const fetch: GuardedFetch = async ({ url, headers, signal }) => {
    assert.ok(needsEffectRight(), "an attempt asks for its right again, last before it is sent");
    await untilEffectMayBegin(signal);
    const given = headers?.(new URL(url)) ?? {};
    receiver.got.push(`${name} ${given["x-postern-attempt"]} ${given["idempotency-key"]}`);
    receiver.open++;
    try {
      if (receiver.answer === "silent") {
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(cancelError(signal))));
      }
      const { answer } = receiver;
      await clock.sleep(answer === "slow" ? 200 : 0);
      const status = answer === "slow" ? 204 : Number(answer);
      return { status, headers: {}, body: new Uint8Array(), bytes: 0, truncated: false, url };
    } finally {
      receiver.open--;
    }
  };
  const deliveries = new DeliveryService({
    ...{ store, clock: member.cluster.clock, log: member.log, work: member.cluster.work },
    random: createSeededRandom(seed),
    metrics: createMetrics(),
    // Nothing but the end of a run is asked for
    runs: () =>
      agent ? { ended: (id: string) => Promise.resolve(toRun(id, database)) } as unknown as RunSupervisor : undefined,
    fetch: () => Promise.resolve(fetch),
    targetOf: () => ({ url: "http://127.0.0.1:9/in", secretEnv: "" }),
    rules: () => ({
      block_private_ip: true,
      allow_loopback: false,
      public_ranges: [],
      enforce_domain_allowlist: false,
      domain_allowlist: [],
      domain_blocklist: [],
    }),
    environment: () => "secret",
    retentionDays: () => 0,
    notify: () => NOTIFY,
    alerts: createAlertWork({
      ...{ store, clock: member.cluster.clock, config: () => ({ ...defaultConfig(), notify: NOTIFY }) },
      isPending: () => Promise.resolve(true),
      makeLink: () => Promise.resolve(undefined),
      run: () => Promise.resolve(),
    }),
  });
  if (agent) await deliveries.start();
  return {
    ...member,
    link: plain,
    deliveries,
    async accept(runId) {
      const promise = await deliveries.promise({ channel: "alerts", sender: "ann", messageId: undefined });
      const isAccepted = promise !== undefined && await store.batch(promise(runId));
      if (isAccepted) await deliveries.watch(runId);
      return isAccepted;
    },
    die,
  };
}

function createReceiver(answer: Answer): Receiver {
  return { got: [], open: 0, answer };
}

async function close(...members: readonly Member[]): Promise<void> {
  for (const { deliveries } of members) await deliveries.stop();
  for (const member of members) await member.close();
}

const found = async ({ deliveries }: Member, runId: string) =>
  (await deliveries.page({ limit: 10 })).deliveries.find((record) => record.run_id === runId);

/** Tells of a failed run. @returns the id of the message */
async function tellOf(runId: string, { deliveries, link }: Member): Promise<string> {
  const told = await deliveries.alert({ event: "run_failed", title: "A run", text: runId, page: `runs/${runId}` });
  assert.ok(told !== undefined && await link.store.batch(told.writes));
  told.written();
  return (await deliveries.page({ limit: 1 })).deliveries[0]?.run_id ?? "";
}

describe("a message of [[notify]] in a cluster", () => {
  test("is sent by the gateway that made it, and by another one when that dies, under the same id", async () => {
    const database = createSharedDatabase();
    const receiver = createReceiver(503);
    const a = await join(database, receiver, { name: "A", seed: 1 });
    const b = await join(database, receiver, { name: "B", seed: 2 });
    await database.clock.advance(2 * LEASE_MS);
    const id = await tellOf("run_1", a);
    await database.clock.advance(10_000);
    assert.deepEqual(receiver.got, [`A 1 ${id}`, `A 2 ${id}`]);
    a.die();
    receiver.answer = 204;
    await database.clock.advance(60_000);
    assert.deepEqual(receiver.got.slice(2), [`B 3 ${id}`]);
    assert.equal((await found(b, id))?.status, "delivered");
    assert.equal(await database.store.count(OPEN_DELIVERIES.name), 0);
    await a.deliveries.stop();
    await close(b);
  });
});

describe("a delivery in a cluster", () => {
  test("is made by the gateway that accepted it, and by no other", async () => {
    const database = createSharedDatabase();
    const receiver = createReceiver(503);
    const a = await join(database, receiver, { name: "A", seed: 1 });
    const b = await join(database, receiver, { name: "B", seed: 2 });
    await a.accept("run_1");
    await database.clock.advance(2_000);
    receiver.answer = 204;
    await database.clock.advance(60_000);
    assert.deepEqual(receiver.got, ["A 1 run_1", "A 2 run_1"]);
    assert.equal((await found(b, "run_1"))?.status, "delivered");
    assert.equal(await database.store.count(OPEN_DELIVERIES.name), 0);
    await close(a, b);
  });

  test("goes on at another gateway when its owner dies, with the same id and the attempts that were made", async () => {
    const database = createSharedDatabase();
    const receiver = createReceiver(503);
    const a = await join(database, receiver, { name: "A", seed: 1 });
    const b = await join(database, receiver, { name: "B", seed: 2 });
    const c = await join(database, receiver, { name: "C", seed: 3 });
    await database.clock.advance(2 * LEASE_MS);
    await a.accept("run_1");
    await database.clock.advance(10_000);
    assert.deepEqual(receiver.got, ["A 1 run_1", "A 2 run_1"]);
    a.die();
    receiver.answer = 204;
    await database.clock.advance(60_000);
    assert.equal(receiver.got.length, 3);
    assert.match(receiver.got[2] ?? "", /^[BC] 3 run_1$/);
    await a.deliveries.stop();
    await close(b, c);
  });

  test("is given back by a gateway that leaves", async () => {
    const database = createSharedDatabase();
    const receiver = createReceiver(503);
    const a = await join(database, receiver, { name: "A", seed: 1 });
    const b = await join(database, receiver, { name: "B", seed: 2 });
    await a.accept("run_1");
    await database.clock.advance(100);
    await close(a);
    receiver.answer = 204;
    await database.clock.advance(10_000);
    assert.deepEqual(receiver.got, ["A 1 run_1", "B 2 run_1"]);
    await close(b);
  });

  test("an attempt under way is broken off at its owner's deadline, and no attempt begins after it", async () => {
    const database = createSharedDatabase();
    const receiver = createReceiver("silent");
    const a = await join(database, receiver, { name: "A", seed: 1 });
    const b = await join(database, receiver, { name: "B", seed: 2 });
    await database.clock.advance(2 * LEASE_MS);
    await a.accept("run_1");
    await a.accept("run_2");
    await database.clock.advance(5_000);
    assert.equal(receiver.open, 2, "while the lease is renewed an attempt may take its time");
    let open: number | undefined;
    b.cluster.onTakeover(() => open = receiver.open);
    receiver.answer = 204;
    a.link.isCut = true;
    await database.clock.advance(4 * LEASE_MS);
    assert.equal(open, 0, "nothing of A is under way when B takes over");
    a.link.isCut = false;
    await database.clock.advance(60_000);
    assert.deepEqual(receiver.got.slice(2).toSorted(), ["B 1 run_1", "B 1 run_2"]);
    await close(a, b);
  });

  test("an outage of the database changes no owner, and the outcome of an attempt is recorded after it", async () => {
    const database = createSharedDatabase();
    const receiver = createReceiver("slow");
    const a = await join(database, receiver, { name: "A", seed: 1 });
    const b = await join(database, receiver, { name: "B", seed: 2 });
    await database.clock.advance(2 * LEASE_MS);
    await a.accept("run_1");
    await database.clock.advance(100);
    assert.equal(receiver.open, 1);
    database.isAway = true;
    await database.clock.advance(60_000);
    database.isAway = false;
    await database.clock.advance(10_000);
    assert.equal(await database.store.count(OPEN_DELIVERIES.name), 0);
    assert.deepEqual(receiver.got, ["A 1 run_1"]);
    await close(a, b);
  });

  test("released by a person at one gateway, it is sent once", async () => {
    const database = createSharedDatabase();
    const receiver = createReceiver(410);
    const a = await join(database, receiver, { name: "A", seed: 1 });
    const b = await join(database, receiver, { name: "B", seed: 2 });
    await a.accept("run_1");
    await database.clock.advance(100);
    assert.equal((await found(b, "run_1"))?.status, "failed");
    receiver.answer = 204;
    await b.deliveries.resolve("run_1", "release");
    await database.clock.advance(60_000);
    assert.deepEqual(receiver.got, ["A 1 run_1", "B 1 run_1"]);
    await close(a, b);
  });

  test("released at a drained gateway, it is sent by another", async () => {
    const database = createSharedDatabase();
    const receiver = createReceiver(410);
    const a = await join(database, receiver, { name: "A", seed: 1 });
    const b = await join(database, receiver, { name: "B", seed: 2 });
    await a.accept("run_1");
    await database.clock.advance(100);
    assert.equal((await found(b, "run_1"))?.status, "failed");
    const { giveWorkBack, lease } = a.cluster;
    const drained = a.deliveries.stop().then(giveWorkBack).then(() => lease.joinAgain("drained"));
    await database.clock.advance(3_000);
    await drained;
    assert.equal(lease.mayAct(), true, "administration goes on there");
    receiver.answer = 204;
    await a.deliveries.resolve("run_1", "release");
    await database.clock.advance(2_000);
    assert.deepEqual(receiver.got, ["A 1 run_1", "B 1 run_1"]);
    await close(a, b);
  });

  test("released at a gateway without an agent, it is sent by one that has an agent", async () => {
    const database = createSharedDatabase();
    const receiver = createReceiver(410);
    const a = await join(database, receiver, { name: "A", seed: 1 });
    const b = await join(database, receiver, { name: "B", seed: 2, agent: false });
    await a.accept("run_1");
    await database.clock.advance(100);
    receiver.answer = 204;
    await b.deliveries.resolve("run_1", "release");
    await database.clock.advance(2_000);
    assert.deepEqual(receiver.got, ["A 1 run_1", "A 1 run_1"]);
    await close(a, b);
  });

  for (const when of ["before", "after"] as const) {
    test(`its owner dies ${when} any one of its writes: another delivers it, with the next attempt or the same again`, async () => {
      for (let crashAt = 1; crashAt <= 4; crashAt++) {
        const database = createSharedDatabase();
        const receiver = createReceiver(503);
        const b = await join(database, receiver, { name: "B", seed: 2 });
        const a = await join(database, receiver, { name: "A", seed: 1, crash: { crashAt, when } });
        await database.clock.advance(2 * LEASE_MS);
        await a.accept("run_1").catch(() => false);
        b.cluster.onTakeover(() => receiver.answer = 204);
        await database.clock.advance(50_000);
        receiver.answer = 204;
        await database.clock.advance(200_000);
        const shown = `killed ${when} write ${crashAt}: ${receiver.got.join(", ")}`;
        const isAccepted = crashAt > 1 || when === "after";
        assert.equal((await found(b, "run_1"))?.status, isAccepted ? "delivered" : undefined, shown);
        assert.equal(await database.store.count(OPEN_DELIVERIES.name), 0, shown);
        const attempts = receiver.got.map((one) => one.split(" ")[1]);
        assert.ok(attempts.every((one, index) => Number(one) - Number(attempts[index - 1] ?? 0) <= 1), shown);
        assert.ok(receiver.got.filter((one) => one.startsWith("B")).length <= 1, shown);
        await a.deliveries.stop();
        await close(b);
      }
    });
  }
});
