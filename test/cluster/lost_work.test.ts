/** Tests of the work of a gateway that has lost its lease: others may own the runs, and the work is not over yet. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { needsEffectRight, untilEffectMayBegin } from "../../lib/base/effect_right.ts";
import { RUN_CLAIMS } from "../../lib/cluster/cluster_records.ts";
import type { Write } from "../../lib/storage/store.ts";
import {
  awayError,
  type ClusteredGateway,
  createSharedDatabase,
  joinGateway,
  joinLink,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import { ask, type AskOptions } from "../support/supervised.ts";
import { until } from "../support/until.ts";

const DURABLE: AskOptions = { durable: true };
const CALL = { toolCalls: [{ name: "work", arguments: "{}" }] };

async function passUntil(database: SharedDatabase, holds: () => boolean | Promise<boolean>, atMostMs = 20_000) {
  for (let passed = 0; !await holds(); passed += 50) {
    assert.ok(passed < atMostMs, `it did not come to pass within ${atMostMs} ms`);
    await database.clock.advance(50);
  }
}

/** Notes each batch of a gateway that writes to the journal of a run: the fence that it carries, and whether it held. */
function noteAppends({ link }: Pick<ClusteredGateway, "link">, id: string) {
  const appends: { readonly fence: number | undefined; readonly held: boolean }[] = [];
  const isAppend = (write: Write) => write.op === "append" && write.stream === `run/${id}`;
  link.onBatch = async (writes, make) => {
    const held = await make();
    const check = writes.find((write) => write.op === "check" && write.collection === "gateway_fences");
    if (writes.some(isAppend)) appends.push({ fence: check?.op === "check" ? check.version : undefined, held });
    return held;
  };
  return appends;
}

/** A run of a gateway that died, whose claim another gateway has and whose records it reads until the test lets it go on. */
async function claimedAndRead(database: SharedDatabase) {
  const tools = [{ name: "work", access: "write" } as const];
  const a = await joinGateway(database, [{ hang: "before" }], { seed: 1, tools });
  const b = await joinGateway(database, [CALL, "from B"], { seed: 2, tools });
  await database.clock.advance(2 * LEASE_MS);
  const { id } = await a.runs.start(ask("go", DURABLE));
  await passUntil(database, () => a.provider.requests.length + b.provider.requests.length === 1);
  const reading = Promise.withResolvers<void>();
  let isRead = false;
  database.onResult = async (operation, first, link) => {
    if (link !== b.link || operation !== "get" || first !== "run_inputs" || isRead) return;
    isRead = true;
    await reading.promise;
  };
  a.link.isCut = true;
  a.cluster.lease.abandon();
  await passUntil(database, () => isRead);
  assert.ok(b.cluster.ownership.owns(id));
  return { a, b, id, goOn: reading.resolve };
}

describe("a lease that is lost while a claimed run is read", () => {
  test("the run begins no effect, and nothing is written to its journal", async () => {
    const database = createSharedDatabase();
    const { b, id, goOn } = await claimedAndRead(database);
    const fence = b.cluster.lease.own()?.fence ?? 0;
    const appends = noteAppends(b, id);
    database.history = "second";
    // The run is not claimed again before the test has looked
    b.cluster.ownership.claim = () => Promise.resolve([]);
    await passUntil(database, () => (b.cluster.lease.own()?.fence ?? 0) > fence);
    goOn();
    await database.clock.advance(100);
    await until(() => b.runs.active() === 0);
    assert.deepEqual(appends.filter(({ held }) => held), []);
    assert.deepEqual([b.provider.requests.length, b.executor.calls.length], [0, 0]);
    assert.equal(b.cluster.ownership.count(), 0, "the run may be claimed again");
    await b.close();
  });

  test("the run goes on once it is claimed again, and each record carries a fence", async () => {
    const database = createSharedDatabase();
    const { b, id, goOn } = await claimedAndRead(database);
    const fence = b.cluster.lease.own()?.fence ?? 0;
    const appends = noteAppends(b, id);
    database.history = "second";
    await passUntil(database, () => (b.cluster.lease.own()?.fence ?? 0) > fence);
    goOn();
    await passUntil(database, async () => (await b.runs.get(id))?.status === "completed");
    assert.ok(appends.filter(({ held }) => held).every((one) => one.fence === fence + 1));
    assert.equal(await database.store.count(RUN_CLAIMS.name), 0);
    await b.close();
  });

  test("a run that cannot be read is let go of", async () => {
    const database = createSharedDatabase();
    const { b, id, goOn } = await claimedAndRead(database);
    await database.store.batch([{ op: "put", collection: "runs", key: id, body: { v: 1, run: "damaged" } }]);
    await database.store.batch([{ op: "delete", collection: "run_inputs", key: id }]);
    goOn();
    await passUntil(database, () => b.clusterLog.some(({ message }) => message.includes("could not be taken up")));
    assert.ok(b.cluster.ownership.owns(id), "it stays with the gateway, for a person");
    const fence = b.cluster.lease.own()?.fence ?? 0;
    b.cluster.ownership.claim = () => Promise.resolve([]);
    database.history = "second";
    await passUntil(database, () => (b.cluster.lease.own()?.fence ?? 0) > fence);
    assert.equal(b.cluster.ownership.owns(id), false);
    await b.close();
  });
});

test("a run that this gateway does not own begins no effect and has no batch", async () => {
  const database = createSharedDatabase();
  const { cluster: { ownership }, close } = await joinLink(database, { seed: 1 });
  const { signal } = new AbortController();
  await assert.rejects(ownership.mayAct("run_other", signal), { name: "CancelError", reason: "shutdown" });
  assert.throws(() => ownership.check("run_other"), { name: "CancelError", reason: "shutdown" });
  await close();
});

describe("a call that is being prepared when the lease runs out", () => {
  /** Tool that prepares until the test lets it go on, and then has its effect through a door. */
  function slowTool(access: "read" | "write") {
    const prepared = Promise.withResolvers<void>();
    const seen = { begun: false, effects: 0, hasRight: false };
    const run = async (_input: unknown, { signal }: { readonly signal: AbortSignal }) => {
      seen.begun = true;
      await prepared.promise;
      seen.hasRight = needsEffectRight();
      await untilEffectMayBegin(signal);
      seen.effects++;
      return "worked";
    };
    return { seen, goOn: prepared.resolve, tools: [{ name: "work", access, run }] };
  }

  /** A gateway whose run has begun the call. */
  async function preparing(access: "read" | "write") {
    const database = createSharedDatabase();
    const { tools, ...tool } = slowTool(access);
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await passUntil(database, () => tool.seen.begun);
    return { ...tool, database, a, id, tools };
  }

  test("has no effect once another gateway has the run", async () => {
    const { a, database, goOn, id, seen, tools } = await preparing("write");
    const b = await joinGateway(database, ["from B"], { seed: 2, tools });
    a.link.isCut = true;
    await passUntil(database, async () => (await b.runs.get(id))?.status === "needs_review");
    goOn();
    await database.clock.advance(1_000);
    a.link.isCut = false;
    await passUntil(database, () => a.runs.active() === 0);
    assert.deepEqual([seen.hasRight, seen.effects], [true, 0]);
    await Promise.all([a.close(), b.close()]);
  });

  test("has its effect once the lease is renewed, where nobody has taken the run", async () => {
    const { a, database, goOn, id, seen } = await preparing("write");
    a.link.isCut = true;
    await database.clock.advance(3 * LEASE_MS);
    goOn();
    await database.clock.advance(1_000);
    assert.equal(seen.effects, 0);
    a.link.isCut = false;
    await passUntil(database, async () => (await a.runs.get(id))?.status === "completed");
    assert.equal(seen.effects, 1);
    await a.close();
  });

  test("waits for nothing when it only reads", async () => {
    const { a, database, goOn, seen } = await preparing("read");
    goOn();
    await passUntil(database, () => seen.effects === 1);
    assert.equal(seen.hasRight, false);
    await a.close();
  });
});

describe("work that goes on for a while", () => {
  test("its own gateway claims a run that it lost once the old work is over, and not before", async () => {
    const database = createSharedDatabase();
    const ends: (() => void)[] = [];
    let atWork = 0;
    let most = 0;
    const run = async () => {
      most = Math.max(most, ++atWork);
      await new Promise<void>((resolve) => ends.push(resolve));
      atWork--;
      return "worked";
    };
    const a = await joinGateway(database, [CALL, "from A"], {
      seed: 1,
      tools: [{ name: "work", access: "read", run }],
    });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => atWork === 1);
    const appends = noteAppends(a, id);
    const fence = a.cluster.lease.own()?.fence ?? 0;
    database.history = "second";
    await passUntil(database, () => (a.cluster.lease.own()?.fence ?? 0) > fence);
    for (let passed = 0; passed < 3 * LEASE_MS; passed += 50) await database.clock.advance(50);
    assert.deepEqual([a.runs.active(), ends.length], [1, 1]);
    ends[0]?.();
    await passUntil(database, () => ends.length === 2);
    ends[1]?.();
    await passUntil(database, async () => (await a.runs.get(id))?.status === "completed");
    assert.equal(most, 1);
    assert.ok(
      appends.filter(({ held }) => held).every((one) => one.fence === fence + 1),
      "the old work writes nothing",
    );
    assert.equal(await database.store.count(RUN_CLAIMS.name), 0);
    await a.close();
  });

  test("a run that is claimed to be cancelled is taken up once, though a look finds its claim before the answer", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [], { seed: 1, limits: { maxConcurrent: 0 } });
    const { id } = await a.runs.start(ask("go", DURABLE));
    const answer = Promise.withResolvers<void>();
    let claims = 0;
    a.link.onBatch = async (writes, make) => {
      const held = await make();
      const isClaim = writes.some((write) => write.op === "putIf" && write.collection === RUN_CLAIMS.name);
      if (isClaim && ++claims === 1) await answer.promise;
      return held;
    };
    const cancelled = a.runs.cancel(id, "cancelled");
    await until(() => claims === 1);
    await database.clock.advance(2_000);
    assert.equal(claims, 1);
    answer.resolve();
    await cancelled;
    assert.equal((await a.runs.get(id))?.status, "cancelled");
    assert.deepEqual(a.clusterLog.filter(({ level }) => level === "error"), []);
    await a.close();
  });

  test("a run that is claimed here stays, when the request that it was accepted by fails afterwards", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, ["from A"], { seed: 1 });
    await database.clock.advance(LEASE_MS);
    let id = "";
    a.link.onBatch = async (writes, make) => {
      const held = await make();
      const accepted = writes.find((write) => write.op === "insert" && write.collection === RUN_CLAIMS.name);
      if (accepted?.op !== "insert") return held;
      id = accepted.key;
      await passUntil(database, () => a.cluster.ownership.owns(id));
      throw awayError();
    };
    // Until the request has failed
    const asked = Promise.withResolvers<void>();
    database.onResult = (operation, first) =>
      operation === "get" && first === "run_inputs" ? asked.promise : Promise.resolve();
    await assert.rejects(a.runs.start(ask("go", { ...DURABLE, conversationId: "conv_1" })), {
      code: "storage_unavailable",
    });
    assert.ok(a.cluster.ownership.owns(id));
    asked.resolve();
    await passUntil(database, async () => (await a.runs.get(id))?.status === "completed");
    assert.equal(a.provider.requests.length, 1);
    await a.close();
  });
});
