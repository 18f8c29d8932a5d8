import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Run } from "../../lib/base/records/run.ts";
import { GATEWAY_FENCES, RUN_CLAIMS } from "../../lib/cluster/cluster_records.ts";
import { fenceCheck } from "../../lib/cluster/leases.ts";
import type { Script } from "../../fixtures/scripted_provider.ts";
import type { FakeTool } from "../support/fake_tool_executor.ts";
import {
  type ClusteredGateway,
  createSharedDatabase,
  joinGateway,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import { ask, type AskOptions, supervised } from "../support/supervised.ts";
import { until } from "../support/until.ts";

const DURABLE: AskOptions = { durable: true };

/** A tool with an effect that ends when the test says so. */
function slowTool(access: FakeTool["access"] = "write") {
  const ends: (() => void)[] = [];
  const tool: FakeTool = {
    name: "work",
    access,
    run: () => new Promise((resolve) => ends.push(() => resolve("worked"))),
  };
  return { tool, begun: () => ends.length, end: () => ends.splice(0).forEach((one) => one()) };
}

const CALL = { toolCalls: [{ name: "work", arguments: "{}" }] };

/** Moves the time on in steps that are short beside a lease, until something holds. */
async function passUntil(
  database: SharedDatabase,
  holds: () => boolean | Promise<boolean>,
  atMostMs = 60_000,
): Promise<number> {
  let passed = 0;
  for (; !await holds(); passed += 50) {
    assert.ok(passed < atMostMs, `it did not come to pass within ${atMostMs} ms`);
    await database.clock.advance(50);
  }
  return passed;
}

function hasStatus(gateway: ClusteredGateway, id: string, status: Run["status"]): () => Promise<boolean> {
  return async () => (await gateway.runs.get(id))?.status === status;
}

async function eventsOf(gateway: ClusteredGateway, id: string): Promise<readonly string[]> {
  const types: string[] = [];
  const events = await gateway.runs.follow(id, { afterSeq: 0, signal: new AbortController().signal });
  for await (const batch of events ?? []) types.push(...batch.map(({ type }) => type));
  return types;
}

describe("two gateways over one database", () => {
  test("a run is accepted, done and readable at either", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, ["from A"], { seed: 1 });
    const b = await joinGateway(database, ["from B"], { seed: 2 });
    const handle = await a.runs.start(ask("go", DURABLE));
    await passUntil(database, hasStatus(b, handle.id, "completed"));
    assert.equal((await b.runs.get(handle.id))?.result, "from A");
    assert.equal((await eventsOf(b, handle.id)).at(-1), "done");
    assert.equal(await database.store.count(RUN_CLAIMS.name), 0, "an ended run has no claim");
    await Promise.all([a.close(), b.close()]);
  });

  test("a durable run with one tool call takes eight round trips at most from its acceptance to its end", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [{ name: "work", access: "write" }] });
    const b = await joinGateway(database, [], { seed: 2 });
    await database.clock.advance(2 * LEASE_MS);
    const operations: string[] = [];
    database.onResult = async (operation, first) => {
      operations.push(`${operation} ${Array.isArray(first) ? `of ${first.length}` : String(first)}`);
    };
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => a.runs.active() === 0);
    database.onResult = async () => {};
    assert.equal((await a.runs.get(id))?.result, "from A");
    assert.ok(operations.length >= 5 && operations.length <= 8, operations.join(", "));
    await Promise.all([a.close(), b.close()]);
  });

  test("runs that a gateway alone left open go on in the cluster, in their order", async () => {
    const database = createSharedDatabase();
    const alone = supervised([{ hang: "before" }], {
      ...{ clock: database.clock, store: database.store, seed: 9 },
      limits: { maxConcurrent: 1 },
    });
    const conversation = { ...DURABLE, conversationId: "c1" };
    const ids = [];
    for (const text of ["first", "second"]) ids.push((await alone.runs.start(ask(text, conversation))).id);
    await alone.runs.drain(0);
    assert.equal(await database.store.count(RUN_CLAIMS.name), 0);
    const gateways = await Promise.all(
      [1, 2].map((seed) => joinGateway(database, ["one answer", "another answer"], { seed })),
    );
    const [a] = gateways as [ClusteredGateway];
    for (const id of ids) await passUntil(database, hasStatus(a, id, "completed"));
    const [first, second] = await Promise.all(ids.map((id) => a.runs.get(id)));
    assert.ok(String(first?.ended_at) <= String(second?.started_at), "the second run began before the first had ended");
    assert.equal(gateways.flatMap(({ provider }) => provider.requests).length, 2);
    assert.equal(await database.store.count(RUN_CLAIMS.name), 0);
    await Promise.all(gateways.map((gateway) => gateway.close()));
  });

  test("a gateway that dies is noticed within 1.5 leases, and another goes on with its run", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = slowTool("read");
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2, tools: [{ name: "work" }] });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    a.link.isCut = true;
    a.cluster.lease.abandon();
    const passed = await passUntil(database, hasStatus(b, id, "completed"));
    assert.ok(passed <= 1.5 * LEASE_MS + 1_000, `it took ${passed} ms`);
    assert.equal((await b.runs.get(id))?.result, "from B");
    await b.close();
  });

  test("what was in flight when a gateway died is needs_review, and is made again a lease later at the earliest", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = slowTool();
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2, tools: [{ name: "work", access: "write" }] });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    a.link.isCut = true;
    a.cluster.lease.abandon();
    await passUntil(database, hasStatus(b, id, "needs_review"));
    const again = { action: "resume", outcome: "not_done", by: { via: "http", tokenId: "tok_1" } } as const;
    await assert.rejects(
      b.runs.resolve(id, again),
      (error) => error instanceof Error && /try again in 1 s/.test(error.message),
    );
    await database.clock.advance(LEASE_MS);
    await b.runs.resolve(id, again);
    await passUntil(database, hasStatus(b, id, "completed"));
    assert.equal(b.executor.calls.length, 1);
    await b.close();
  });

  test("a gateway that dies is noticed within 1.5 leases, also when nobody looks for another reason", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = slowTool("read");
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2, tools: [{ name: "work" }] });
    // The looks of B come at another time than the end of A's lease
    await database.clock.advance(2 * LEASE_MS + 333);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    a.link.isCut = true;
    a.cluster.lease.abandon();
    const passed = await passUntil(database, async () => (await b.cluster.gateways()).length === 1);
    assert.ok(passed <= 1.5 * LEASE_MS, `it took ${passed} ms`);
    await passUntil(database, hasStatus(b, id, "completed"));
    await b.close();
  });

  test("another history of the database makes every gateway drop its runs and claim again, with a fence of its own", async () => {
    const database = createSharedDatabase();
    const { tool, begun, end } = slowTool("read");
    const script: Script = [CALL, "done"];
    const a = await joinGateway(database, script, { seed: 1, tools: [tool] });
    const b = await joinGateway(database, script, { seed: 2, tools: [tool] });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    const before = [a, b].map(({ cluster }) => cluster.lease.own()?.fence ?? 0);
    // The other history has forgotten the newest fence of A
    const fence = await database.store.get(GATEWAY_FENCES.name, a.cluster.id);
    await database.store.batch([{ op: "delete", collection: GATEWAY_FENCES.name, key: a.cluster.id }]);
    database.history = "second";
    await passUntil(
      database,
      () => [a, b].every(({ cluster }, index) => (cluster.lease.own()?.fence ?? 0) > (before[index] ?? 0)),
    );
    assert.equal(await database.store.batch([fenceCheck({ id: a.cluster.id, fence: fence?.version ?? 0 })]), false);
    assert.ok(a.clusterLog.some(({ message }) => message.includes("another history")));
    await passUntil(database, () => begun() === 2);
    // Whoever has claimed it may call the tool again
    const isOver = hasStatus(b, id, "completed");
    await passUntil(database, async () => (end(), await isOver()));
    await Promise.all([a.close(), b.close()]);
  });

  test("a request to a gateway that others have fenced off is refused for now, and not as if it had been made before", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, ["from A"], { seed: 1 });
    await database.clock.advance(LEASE_MS);
    const { id } = a.cluster;
    await database.store.batch([{ op: "put", collection: GATEWAY_FENCES.name, key: id, body: { v: 1 } }]);
    const claim = (key: string) => (runId: string) => [
      { op: "insert", collection: "claims", key, body: runId } as const,
    ];
    await assert.rejects(
      a.runs.start(ask("go", { ...DURABLE, claim: claim("once") })),
      { code: "storage_unavailable", status: 503 },
    );
    await passUntil(database, () => (a.cluster.lease.own()?.fence ?? 0) > 2);
    const handle = await a.runs.start(ask("go", { ...DURABLE, claim: claim("once") }));
    await passUntil(database, hasStatus(a, handle.id, "completed"));
    await assert.rejects(a.runs.start(ask("go", { ...DURABLE, claim: claim("once") })), { code: "conflict" });
    await a.close();
  });

  test("a request whose claim fails leaves no run behind", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, ["from A"], { seed: 1 });
    const claim = () => {
      throw new TypeError("no claim");
    };
    await assert.rejects(a.runs.start(ask("go", { ...DURABLE, claim })), TypeError);
    assert.equal(a.cluster.ownership.count(), 0);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await passUntil(database, hasStatus(a, id, "completed"));
    await a.close();
  });

  test("a run is claimed although more runs are at work before it than one look reads", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, ["from A"], { seed: 1 });
    const own = a.cluster.lease.own();
    const body = { v: 1, gateway: own?.id, fence: own?.fence, conversation_id: null, parent_id: null };
    await database.store.batch(
      Array.from({ length: 1_500 }, (_, index) => (
        { op: "insert", collection: RUN_CLAIMS.name, key: `run_busy${index}`, body: { ...body, gateway: "gw_other" } }
      )),
    );
    await database.store.batch([{ op: "insert", collection: GATEWAY_FENCES.name, key: "gw_other", body: { v: 1 } }]);
    const handle = await a.runs.start(ask("go", { ...DURABLE, conversationId: "conv_1" }));
    await passUntil(database, hasStatus(a, handle.id, "completed"), 5_000);
    await a.close();
  });

  test("of a gateway that died nothing is left once its runs are taken over, and it joins above its last fence", async () => {
    const database = createSharedDatabase();
    const { tool, begun, end } = slowTool("read");
    const a = await joinGateway(database, [CALL, "from A", "again"], { seed: 1, tools: [tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2, tools: [{ name: "work" }] });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    const fence = a.cluster.lease.own()?.fence ?? 0;
    a.link.isCut = true;
    await passUntil(database, hasStatus(b, id, "completed"));
    await database.clock.advance(120_000);
    const rows = async () => (await database.store.scan(GATEWAY_FENCES.name, { limit: 9 })).map(({ key }) => key);
    assert.deepEqual(await rows(), [b.cluster.id]);
    a.link.isCut = false;
    end();
    await passUntil(database, () => (a.cluster.lease.own()?.fence ?? 0) > fence);
    assert.ok(a.cluster.lease.mayAct());
    await Promise.all([a.close(), b.close()]);
  });

  test("a person's review counts once, at whichever gateway it is given, and wherever the run goes on", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = slowTool();
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2, tools: [{ name: "work", access: "write" }] });
    const c = await joinGateway(database, ["from C"], { seed: 3, tools: [{ name: "work", access: "write" }] });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    a.link.isCut = true;
    a.cluster.lease.abandon();
    await passUntil(database, hasStatus(c, id, "needs_review"));
    const review = { action: "resume", outcome: "done", by: { via: "http", tokenId: "tok_1" } } as const;
    const answers = await Promise.allSettled([b.runs.resolve(id, review), c.runs.resolve(id, review)]);
    assert.deepEqual(answers.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
    await passUntil(database, hasStatus(b, id, "completed"));
    const reviews = (await eventsOf(c, id)).filter((type) => type === "review_answered");
    assert.equal(reviews.length, 1);
    assert.equal(b.provider.requests.length + c.provider.requests.length, 1);
    await Promise.all([b.close(), c.close()]);
  });

  test("a gateway that was paused for three leases comes back and writes nothing", async () => {
    const database = createSharedDatabase();
    const slow = slowTool("read");
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [slow.tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2, tools: [{ name: "work" }] });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => slow.begun() === 1);
    // Nothing of A happens for three leases, not even an error
    a.link.isCut = true;
    await passUntil(database, hasStatus(b, id, "completed"));
    const events = await eventsOf(b, id);
    a.link.isCut = false;
    slow.end();
    await database.clock.advance(3 * LEASE_MS);
    assert.deepEqual(await eventsOf(b, id), events);
    assert.equal((await a.runs.get(id))?.result, "from B");
    // A has joined again, with a new fence, and works
    const next = await a.runs.start(ask("more", DURABLE));
    await passUntil(database, hasStatus(b, next.id, "completed"));
    assert.equal((await b.runs.get(next.id))?.result, "from A");
    await Promise.all([a.close(), b.close()]);
  });

  test("a gateway that was fenced off writes nothing to a journal, while it still believes that it may act", async () => {
    const database = createSharedDatabase();
    const slow = slowTool("read");
    const a = await joinGateway(database, [CALL, "from A", "from A"], { seed: 1, tools: [slow.tool] });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => slow.begun() === 1);
    const journal = () => database.store.read(`run/${id}`, { afterSeq: 0, limit: 100 });
    const before = await journal();
    await database.store.batch([{ op: "put", collection: GATEWAY_FENCES.name, key: a.cluster.id, body: { v: 1 } }]);
    assert.equal(a.cluster.lease.mayAct(), true);
    slow.end();
    await until(() => a.runs.active() === 0);
    assert.deepEqual(await journal(), before);
    const errors = a.clusterLog.map(({ fields }) => String((fields["error"] as Error | undefined)?.message));
    assert.match(errors.join(), /has lost its lease and joins the cluster again/);
    assert.doesNotMatch(errors.join(), /another writer/);
    // It joins again, and goes on with the run as the next owner
    await passUntil(database, () => slow.begun() === 1);
    slow.end();
    await passUntil(database, hasStatus(a, id, "completed"));
    await a.close();
  });

  test("the database is down for 60 s: no run changes its owner, and none becomes needs_review", async () => {
    const database = createSharedDatabase();
    const slow = slowTool();
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [slow.tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2 });
    await database.clock.advance(3 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => slow.begun() === 1);
    const followed = [a, b].map((gateway) => eventsOf(gateway, id));
    const ended = a.runs.ended(id, new AbortController().signal);
    await database.clock.advance(100);
    database.isAway = true;
    await database.clock.advance(20_000);
    await assert.rejects(eventsOf(b, id), { code: "storage_unavailable" });
    assert.equal((await a.runs.get(id))?.status, "running");
    // The effect ends in the outage: its end waits for the database
    slow.end();
    await database.clock.advance(40_000);
    database.isAway = false;
    await passUntil(database, hasStatus(b, id, "completed"));
    assert.equal((await b.runs.get(id))?.result, "from A");
    assert.equal(b.provider.requests.length, 0);
    // Followers and waiting callers have been told nothing of the outage
    const whole = await eventsOf(b, id);
    await database.clock.advance(2_000);
    for (const types of await Promise.all(followed)) assert.deepEqual(types, whole);
    assert.equal((await ended)?.status, "completed");
    await Promise.all([a.close(), b.close()]);
  });

  test("a gateway that leaves gives its runs to the others at once", async () => {
    const database = createSharedDatabase();
    const slow = slowTool("read");
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [slow.tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2, tools: [{ name: "work" }] });
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => slow.begun() === 1);
    const drained = a.runs.drain(0);
    await database.clock.advance(100);
    slow.end();
    await database.clock.advance(3_000);
    await drained;
    await a.close();
    const passed = await passUntil(database, hasStatus(b, id, "completed"));
    assert.ok(passed <= 1_050, `it took ${passed} ms`);
    await b.close();
  });

  test("a run that waits is claimed by a gateway with a free slot", async () => {
    const database = createSharedDatabase();
    const slow = slowTool("read");
    const limits = { maxConcurrent: 1, maxQueued: 2 };
    const a = await joinGateway(database, [CALL, "from A", "second of A"], { seed: 1, tools: [slow.tool], limits });
    const first = await a.runs.start(ask("one", DURABLE));
    await until(() => slow.begun() === 1);
    const second = await a.runs.start(ask("two", DURABLE));
    await database.clock.advance(1_100);
    assert.equal((await a.runs.get(second.id))?.status, "queued");
    const b = await joinGateway(database, ["from B"], { seed: 2, limits });
    await passUntil(database, hasStatus(a, second.id, "completed"));
    assert.equal((await a.runs.get(second.id))?.result, "from B");
    slow.end();
    await passUntil(database, hasStatus(b, first.id, "completed"));
    await Promise.all([a.close(), b.close()]);
  });

  test("a cluster whose queue is full refuses", async () => {
    const database = createSharedDatabase();
    const slow = slowTool("read");
    const limits = { maxConcurrent: 1, maxQueued: 1 };
    const a = await joinGateway(database, [CALL, "from A", "two"], { seed: 1, tools: [slow.tool], limits });
    await a.runs.start(ask("one", DURABLE));
    await until(() => slow.begun() === 1);
    await a.runs.start(ask("two", DURABLE));
    await database.clock.advance(1_100);
    await assert.rejects(a.runs.start(ask("three", DURABLE)), { code: "overloaded" });
    await a.close();
  });

  test("runs of one conversation work one at a time across gateways, in their order", async () => {
    const database = createSharedDatabase();
    const order: string[] = [];
    const script = (name: string) => () => {
      order.push(name);
      return name;
    };
    const a = await joinGateway(database, script("A"), { seed: 1 });
    const b = await joinGateway(database, script("B"), { seed: 2 });
    const caller = { via: "http", tokenId: "tok_1", scopes: ["chat", "runs"] } as const;
    const talk = { ...DURABLE, caller, conversationId: "conv_1" };
    const handles = [];
    for (let n = 0; n < 6; n++) handles.push(await [a, b][n % 2]?.runs.start(ask(`message ${n}`, talk)));
    const ids = handles.map((handle) => handle?.id ?? "");
    await passUntil(database, async () => {
      const runs = await Promise.all(ids.map((id) => a.runs.get(id)));
      return runs.every((run) => run?.status === "completed");
    });
    const last = [...a.provider.requests, ...b.provider.requests].find(({ messages }) => messages.length === 12);
    const said = last?.messages.filter(({ role }) => role === "user").map(({ content }) => content);
    assert.deepEqual(said, [0, 1, 2, 3, 4, 5].map((n) => `message ${n}`), "each run has read those before it");
    await Promise.all([a.close(), b.close()]);
  });

  for (const isMute of [false, true]) {
    test(`a cancellation at any gateway reaches the owner${isMute ? " within 1 s when the note is lost" : " by a note"}`, async () => {
      const database = createSharedDatabase();
      const slow = slowTool("read");
      const a = await joinGateway(database, [CALL, "from A"], {
        seed: 1,
        tools: [{
          ...slow.tool,
          run: (_, { signal }) =>
            new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
        }],
      });
      const b = await joinGateway(database, ["from B"], { seed: 2 });
      const { id } = await a.runs.start(ask("go", DURABLE));
      await until(() => a.executor.calls.length === 1);
      database.isMute = isMute;
      assert.equal(await b.runs.cancel(id, "cancelled"), true);
      const passed = await passUntil(database, hasStatus(b, id, "cancelled"));
      assert.ok(passed <= (isMute ? 1_100 : 50), `it took ${passed} ms`);
      await Promise.all([a.close(), b.close()]);
    });
  }

  test("a run that waits for a gateway is cancelled at any", async () => {
    const database = createSharedDatabase();
    const slow = slowTool("read");
    const limits = { maxConcurrent: 1 };
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [slow.tool], limits });
    const first = await a.runs.start(ask("one", DURABLE));
    await until(() => slow.begun() === 1);
    const second = await a.runs.start(ask("two", DURABLE));
    const b = await joinGateway(database, ["from B"], { seed: 2, limits: { maxConcurrent: 0 } });
    assert.equal(await b.runs.cancel(second.id, "cancelled"), true);
    await passUntil(database, hasStatus(a, second.id, "cancelled"));
    slow.end();
    await passUntil(database, hasStatus(a, first.id, "completed"));
    assert.equal(a.provider.requests.length, 2);
    await Promise.all([a.close(), b.close()]);
  });

  test("ended() at one gateway hears of the end at another", async () => {
    const database = createSharedDatabase();
    const slow = slowTool("read");
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [slow.tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2 });
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => slow.begun() === 1);
    const ended = b.runs.ended(id, new AbortController().signal);
    slow.end();
    let run: Run | undefined;
    void ended.then((end) => run = end);
    await passUntil(database, () => run !== undefined);
    assert.equal(run?.status, "completed");
    await Promise.all([a.close(), b.close()]);
  });

  test("a run that ends while a look has read its claim is not taken up again", async () => {
    const database = createSharedDatabase();
    const slow = slowTool("read");
    const a = await joinGateway(database, [CALL, "from A", "again"], { seed: 1, tools: [slow.tool] });
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => slow.begun() === 1);
    let isHeld = false;
    let records = 0;
    database.onResult = async (operation, collection) => {
      if (operation !== "scan" || collection !== RUN_CLAIMS.name || isHeld) return;
      isHeld = true;
      slow.end();
      await until(hasStatus(a, id, "completed"));
      await until(() => a.runs.active() === 0);
      records = (await database.store.read(`run/${id}`, { afterSeq: 0, limit: 100 })).length;
    };
    await database.clock.advance(1_050);
    await until(() => isHeld);
    database.onResult = async () => {};
    await database.clock.advance(3_000);
    assert.deepEqual(a.clusterLog.map(({ message }) => message), []);
    assert.equal((await database.store.read(`run/${id}`, { afterSeq: 0, limit: 100 })).length, records);
    await a.close();
  });

  test("an attached run that was at work when its gateway died is ended by another", async () => {
    const database = createSharedDatabase();
    const slow = slowTool();
    const a = await joinGateway(database, [CALL, "from A"], { seed: 1, tools: [slow.tool] });
    const b = await joinGateway(database, ["from B"], { seed: 2 });
    await database.clock.advance(2 * LEASE_MS);
    const handle = await a.runs.start(ask("go"));
    void (async () => {
      for await (const _ of handle.events()) void _;
    })().catch(() => {});
    await until(() => slow.begun() === 1);
    a.link.isCut = true;
    a.cluster.lease.abandon();
    await passUntil(database, hasStatus(b, handle.id, "needs_review"));
    await b.close();
  });
});

test("a gateway has started after one look at what it may claim, though each look takes longer than the pause to the next", async () => {
  const database = createSharedDatabase();
  let looks = 0;
  let isMoving = false;
  database.onResult = async (_name, collection) => {
    if (collection !== "run_claims" || isMoving || ++looks > 20) return;
    isMoving = true;
    await database.clock.advance(LEASE_MS);
    isMoving = false;
  };
  const gateway = await joinGateway(database, []);
  assert.ok(looks > 0 && looks < 20, `${looks} looks before the start was over`);
  database.onResult = async () => {};
  await gateway.close();
});
