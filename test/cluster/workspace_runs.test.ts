import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Run } from "../../lib/base/records/run.ts";
import { RUN_CLAIMS } from "../../lib/cluster/cluster_records.ts";
import {
  type ClusteredGateway,
  createSharedDatabase,
  joinGateway,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import type { FakeTool } from "../support/fake_tool_executor.ts";
import { ask, type AskOptions } from "../support/supervised.ts";
import { until } from "../support/until.ts";

const DURABLE: AskOptions = { durable: true };
const CALL = { toolCalls: [{ name: "work", arguments: "{}" }] };

/** A tool that needs the workspace, and never ends. */
function hangingTool(access: FakeTool["access"] = "read") {
  let begun = 0;
  const tool: FakeTool = {
    name: "work",
    access,
    local: true,
    run: () => {
      begun++;
      return new Promise(() => {});
    },
  };
  return { tool, begun: () => begun };
}

async function passUntil(database: SharedDatabase, holds: () => boolean | Promise<boolean>, atMostMs = 60_000) {
  for (let passed = 0; !await holds(); passed += 50) {
    assert.ok(passed < atMostMs, `it did not come to pass within ${atMostMs} ms`);
    await database.clock.advance(50);
  }
}

function hasStatus(gateway: ClusteredGateway, id: string, status: Run["status"]): () => Promise<boolean> {
  return async () => (await gateway.runs.get(id))?.status === status;
}

/** Has a gateway let go of its work, as DrainWatch does. */
async function drain(database: SharedDatabase, { cluster, runs }: ClusteredGateway): Promise<void> {
  const { lease, giveWorkBack } = cluster;
  let isOver = false;
  void lease.announceDrain("draining").then(() => runs.drain(100)).then(giveWorkBack).then(() =>
    lease.joinAgain("drained")
  )
    .then(() => isOver = true);
  await passUntil(database, () => isOver);
}

/** Ends a gateway as a crash does. */
function kill(gateway: ClusteredGateway): void {
  gateway.link.isCut = true;
  gateway.cluster.lease.abandon();
}

describe("a run whose tools need the workspace", () => {
  test("waits for it when its gateway was drained, which claims nothing, and goes on when another one comes", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = hangingTool();
    const a = await joinGateway(database, [CALL], { seed: 1, tools: [tool], workspace: "one" });
    const b = await joinGateway(database, [], { seed: 2, workspace: "two" });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    await drain(database, a);
    await passUntil(database, () => a.cluster.ownership.provenWorkspace() === "one");
    await passUntil(database, async () => (await b.runs.get(id))?.waiting_for === "workspace");
    await database.clock.advance(10_000);
    assert.equal(b.cluster.ownership.queue().waiting, 0);
    let c: ClusteredGateway | undefined;
    void joinGateway(database, ["from C"], { seed: 3, tools: [{ name: "work", local: true }], workspace: "one" })
      .then((joined) => c = joined);
    await passUntil(database, hasStatus(b, id, "completed"));
    await Promise.all([a.close(), b.close(), c?.close()]);
  });

  test("ends after its time when the only gateway of its workspace stays drained", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = hangingTool();
    const a = await joinGateway(database, [CALL], { seed: 1, tools: [tool], workspace: "one" });
    const b = await joinGateway(database, [], { seed: 2, workspace: "two", workspaceWaitMs: 20_000 });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    await drain(database, a);
    await passUntil(database, hasStatus(b, id, "failed"));
    assert.equal((await b.runs.get(id))?.error?.code, "workspace_unavailable");
    await Promise.all([a.close(), b.close()]);
  });

  test("goes on at another gateway of the workspace, and never at one of another workspace", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = hangingTool();
    const a = await joinGateway(database, [CALL], { seed: 1, tools: [tool], workspace: "one" });
    const b = await joinGateway(database, ["from B"], {
      seed: 2,
      tools: [{ name: "work", local: true }],
      workspace: "two",
    });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    kill(a);
    await database.clock.advance(5 * LEASE_MS);
    assert.equal(b.provider.requests.length, 0);
    const c = await joinGateway(database, ["from C"], {
      seed: 3,
      tools: [{ name: "work", local: true }],
      workspace: "one",
    });
    await passUntil(database, hasStatus(b, id, "completed"));
    assert.equal((await b.runs.get(id))?.result, "from C");
    await Promise.all([b.close(), c.close()]);
  });

  test("goes on in its own folder alone: a gateway with the same workspace_id and another folder gets neither it nor the name", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = hangingTool();
    const tools = [{ name: "work", local: true }];
    const a = await joinGateway(database, [CALL], { seed: 1, tools: [tool], workspace: "office", folder: "right" });
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    kill(a);
    const join = async (seed: number, folder: string) => {
      let isOver = false;
      const joining = joinGateway(database, ["from the right folder"], { seed, tools, workspace: "office", folder });
      const settled = joining.then((gateway) => ({ gateway }), (error: unknown) => ({ error }))
        .finally(() => isOver = true);
      while (!isOver) await database.clock.advance(250);
      return await settled;
    };
    const wrong = await join(2, "wrong");
    assert.equal("error" in wrong && (wrong.error as { code: string }).code, "workspace_mismatch");
    assert.equal((await database.store.get(RUN_CLAIMS.name, id))?.key, id, "it waits");
    const right = await join(3, "right");
    assert.ok("gateway" in right);
    await passUntil(database, hasStatus(right.gateway, id, "completed"));
    assert.equal((await right.gateway.runs.get(id))?.result, "from the right folder");
    await right.gateway.close();
  });

  test("a run without such tools goes on anywhere", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = hangingTool();
    const anywhere = { ...tool, local: false };
    const a = await joinGateway(database, [CALL], { seed: 1, tools: [anywhere], workspace: "one" });
    const b = await joinGateway(database, ["from B"], {
      seed: 2,
      tools: [{ name: "work" }],
      workspace: "two",
    });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    kill(a);
    await passUntil(database, hasStatus(b, id, "completed"));
    assert.equal((await b.runs.get(id))?.result, "from B");
    await b.close();
  });
});

describe("a run whose workspace has no gateway", () => {
  const WAIT_MS = 20_000;
  const WORK = [{ name: "work", local: true }];
  const runAt = async (gateway: ClusteredGateway, id: string) => await gateway.runs.get(id);
  const isWaiting = (gateway: ClusteredGateway, id: string) => async () =>
    (await runAt(gateway, id))?.waiting_for === "workspace";

  /** Leaves a run behind at a gateway that dies in the middle of it. */
  async function strand(database: SharedDatabase, options: { access?: FakeTool["access"]; more?: number } = {}) {
    const { tool, begun } = hangingTool(options.access);
    const a = await joinGateway(database, [CALL], {
      seed: 1,
      tools: [tool],
      workspace: "one",
      limits: { maxConcurrent: 1 },
    });
    const b = await joinGateway(database, () => "from B", {
      seed: 2,
      tools: WORK,
      workspace: "two",
      workspaceWaitMs: WAIT_MS,
    });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", DURABLE));
    await until(() => begun() === 1);
    const more: string[] = [];
    for (let n = 0; n < (options.more ?? 0); n++) more.push((await a.runs.start(ask(`more ${n}`, DURABLE))).id);
    kill(a);
    return { b, id, more };
  }

  test("waits, says so everywhere, and goes on as it was when one comes back", async () => {
    const database = createSharedDatabase();
    const { b, id } = await strand(database);
    await passUntil(database, isWaiting(b, id));
    assert.equal((await runAt(b, id))?.status, "queued");
    const { runs } = await b.runs.list({ status: "queued", limit: 10 });
    assert.deepEqual(runs.map((run) => [run.id, run.waiting_for]), [[id, "workspace"]]);
    assert.equal(b.provider.requests.length, 0);
    const queue = async () => (await b.cluster.overview.status()).queue;
    const { open, waiting, workspaces_without_gateway: stranded } = await queue();
    const last_gateway = { host: "test", folder: "/home/one", data_dir: "/data/1" };
    assert.deepEqual([open, waiting, stranded], [1, 0, [{ workspace: "one", runs: 1, last_gateway }]]);
    const c = await joinGateway(database, ["from C"], { seed: 3, tools: WORK, workspace: "one" });
    await passUntil(database, hasStatus(b, id, "completed"));
    assert.deepEqual((await queue()).workspaces_without_gateway, []);
    const run = await runAt(b, id);
    assert.deepEqual([run?.result, run?.waiting_for], ["from C", undefined]);
    assert.equal(await database.store.get("run_claims", id), undefined);
    await Promise.all([b.close(), c.close()]);
  });

  test("ends after its time, once, by the database's clock, with the reason", async () => {
    const database = createSharedDatabase();
    const { b, id } = await strand(database);
    const c = await joinGateway(database, [], { seed: 3, tools: WORK, workspace: "three", workspaceWaitMs: WAIT_MS });
    await passUntil(database, isWaiting(b, id));
    await database.clock.advance(WAIT_MS - 1_500);
    assert.equal((await runAt(b, id))?.status, "queued");
    await passUntil(database, hasStatus(b, id, "failed"), 60_000);
    const { error } = await runAt(b, id) ?? {};
    assert.equal(error?.code, "workspace_unavailable");
    assert.match(error?.message ?? "", /no gateway for 20 s.*workspace_wait_secs/);
    const ends = [...b.clusterLog, ...c.clusterLog].filter(({ message }) => message === "Interrupted run was ended");
    assert.equal(ends.length, 1);
    await Promise.all([b.close(), c.close()]);
  });

  test("waits also when the database goes away while many are found: the look ends, and the next one goes on", async () => {
    const database = createSharedDatabase();
    const { b, id, more } = await strand(database, { more: 120 });
    const { ownership } = b.cluster;
    const claimToEnd = ownership.claimToEnd.bind(ownership);
    let tries = 0;
    ownership.claimToEnd = async (run) => {
      if (++tries === 20) b.link.isCut = true;
      // A look that never ends would let no timer fire, not even those of this test
      assert.ok(tries < 10_000, "the look goes round");
      return await claimToEnd(run);
    };
    await passUntil(database, () => b.link.isCut);
    await database.clock.advance(2 * LEASE_MS);
    assert.ok(tries < 100, `${tries} tries to claim while the database is down`);
    assert.equal(ownership.stranded().length, 0, "what the last look found does not count any more");
    b.link.isCut = false;
    for (const run of [id, ...more]) await passUntil(database, isWaiting(b, run));
    await b.close();
  });

  test("is cancelled at any gateway", async () => {
    const database = createSharedDatabase();
    const { b, id } = await strand(database);
    await passUntil(database, isWaiting(b, id));
    assert.equal(await b.runs.cancel(id, "cancelled"), true);
    await passUntil(database, hasStatus(b, id, "cancelled"), 2_000);
    assert.equal((await runAt(b, id))?.waiting_for, undefined);
    await b.close();
  });

  test("waits for a person at once when an effect was at work", async () => {
    const database = createSharedDatabase();
    const { b, id } = await strand(database, { access: "write" });
    await passUntil(database, hasStatus(b, id, "needs_review"));
    await b.runs.resolve(id, { action: "resume", outcome: "done", by: { via: "http", tokenId: "tok_1" } });
    await passUntil(database, isWaiting(b, id));
    await b.close();
  });

  test("takes no place in the queue, whatever their number", async () => {
    const database = createSharedDatabase();
    const { b, id, more } = await strand(database, { more: 120 });
    const limits = { maxConcurrent: 1, maxQueued: 2 };
    const c = await joinGateway(database, () => "from C", { seed: 3, tools: WORK, workspace: "two", limits });
    for (const one of [id, ...more]) await passUntil(database, isWaiting(b, one));
    const fresh = await c.runs.start(ask("new", DURABLE));
    await passUntil(database, hasStatus(c, fresh.id, "completed"), 2_000);
    await Promise.all([b.close(), c.close()]);
  });

  test("holds up its conversation, and no other", async () => {
    const database = createSharedDatabase();
    const { tool, begun } = hangingTool();
    const caller = { via: "http", tokenId: "tok_1", scopes: ["chat", "runs"] } as const;
    const talk = { ...DURABLE, caller, conversationId: "conv_1" };
    const a = await joinGateway(database, [CALL], { seed: 1, tools: [tool], workspace: "one" });
    const b = await joinGateway(database, () => "from B", { seed: 2, tools: WORK, workspace: "two" });
    await database.clock.advance(2 * LEASE_MS);
    const first = await a.runs.start(ask("first", talk));
    await passUntil(database, () => begun() === 1);
    kill(a);
    const second = await b.runs.start(ask("second", talk));
    const other = await b.runs.start(ask("other", { ...talk, conversationId: "conv_2" }));
    await passUntil(database, isWaiting(b, first.id));
    await passUntil(database, hasStatus(b, other.id, "completed"));
    assert.equal((await runAt(b, second.id))?.status, "queued");
    await b.runs.cancel(first.id, "cancelled");
    await passUntil(database, hasStatus(b, second.id, "completed"));
    await b.close();
  });
});

test("a run of a conversation whose gateway comes into the workspace while the run is made to wait for it goes on at once", async () => {
  const database = createSharedDatabase();
  const a = await joinGateway(database, ["done"], { seed: 1, tools: [{ name: "work", local: true }] });
  let isIn = false;
  const { ownership } = a.cluster;
  ownership.membership = () => ({
    id: "home",
    proven: () => isIn ? "home" : null,
    refusal: () => undefined,
    whyUnproven: () => undefined,
    isThere: () => Promise.resolve(isIn),
  });
  database.onResult = (operation, writes) => {
    // The run is claimed, so that it waits for the workspace: this gateway is let in at this moment
    if (operation === "batch" && JSON.stringify(writes).includes(`"gateway":"${a.cluster.id}"`)) {
      isIn = JSON.stringify(writes).includes(RUN_CLAIMS.name) || isIn;
    }
    return Promise.resolve();
  };
  const { id } = await a.runs.start(ask("go", { durable: true, conversationId: "c1" }));
  for (let passed = 0; (await a.runs.get(id))?.status !== "completed"; passed += 100) {
    assert.ok(passed < 20_000, `it is ${(await a.runs.get(id))?.status}`);
    await database.clock.advance(100);
  }
  assert.equal(isIn, true);
  await a.close();
});
