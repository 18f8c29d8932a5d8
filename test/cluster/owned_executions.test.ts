import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { nextTick } from "../../lib/base/tick.ts";
import { GATEWAY_FENCES } from "../../lib/cluster/cluster_records.ts";
import { OPEN_SOPS, SOP_EXECUTIONS } from "../../lib/automation/sops/execution_record.ts";
import type { Store } from "../../lib/storage/store.ts";
import type { SopExecutionView } from "../../lib/tools/sops/sops.ts";
import { BY_AGENT, BY_PERSON, createSopBench, type SopBench } from "../automation/sops/sop_bench.ts";
import {
  awayError,
  type ClusterLink,
  createSharedDatabase,
  joinLink,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import { type CrashingStore, createCrashingStore } from "../support/crashing_store.ts";
import { until } from "../support/until.ts";
import { withWorkspace, type Workspace } from "../support/workspace.ts";

const PROCEDURE = `
[[steps]]
id = "look"
tool = "look"

[[steps]]
id = "push"
tool = "push"
input = { what = "{{steps.look.output}}" }
requires_approval = true

[[steps]]
id = "call"
manual = "Call"

[[steps]]
id = "tell"
instructions = "Tell about {{steps.push.output}}"
`;

interface Member extends SopBench, ClusterLink {
  /** Stops as a process does that is killed. */
  die(): void;
}

interface World {
  readonly workspace: Workspace;
  readonly database: SharedDatabase;
  readonly effects: string[];
}

/** Starts a gateway with procedures. @param wrap wraps the store that everything but its lease uses */
async function join(
  world: World,
  seed: number,
  { wrap = (store) => store, ...place }: {
    readonly wrap?: (store: Store) => Store;
    readonly workspace?: string;
    readonly isLocal?: boolean;
    readonly workspaceWaitMs?: number;
  } = {},
): Promise<Member> {
  const { workspace, database, effects } = world;
  const plain = database.link();
  const link = { ...plain, store: wrap(plain.store) };
  Object.defineProperty(link, "isCut", { get: () => plain.isCut, set: (isCut: boolean) => void (plain.isCut = isCut) });
  const member = await joinLink(database, { seed, link, ...place });
  const bench = createSopBench({
    workspace,
    clock: database.clock,
    store: link.store,
    seed,
    cluster: member,
    tools: [
      { name: "look", local: place.isLocal ?? false, run: () => "seen" },
      { name: "push", access: "state", decision: "ask", run: ({ what }) => `pushed ${effects.push(String(what))}` },
    ],
    script: () => "Told",
  });
  await bench.runs.recover();
  await bench.sops.start();
  return {
    ...bench,
    ...member,
    die() {
      plain.isCut = true;
      member.cluster.lease.abandon();
    },
  };
}

async function withCluster(work: (world: World) => Promise<void>): Promise<void> {
  await withWorkspace({}, async (workspace) => {
    await workspace.write("own/release.toml", PROCEDURE);
    await work({ workspace, database: createSharedDatabase(), effects: [] });
  });
}

/** Moves the time on until the execution reads like this at a gateway. */
async function passUntil(
  { database }: World,
  { sops }: Pick<SopBench, "sops">,
  { id, holds, atMostMs = 60_000 }: {
    readonly id: string;
    readonly holds: (view: SopExecutionView) => boolean;
    readonly atMostMs?: number;
  },
): Promise<SopExecutionView> {
  for (let passed = 0;; passed += 50) {
    const view = await sops.status(id, BY_AGENT);
    if (holds(view)) return view;
    assert.ok(passed < atMostMs, `it did not come to that: ${JSON.stringify(view, null, 1)}`);
    await database.clock.advance(50);
  }
}

/** Reads by which a gateway learns that an approval was settled. */
const LOOKS = ["get approvals", "scan open_approvals"];

const asksFor = (step: string) => (view: SopExecutionView) =>
  view.approval !== null && view.steps.some(({ id, status }) => id === step && status === "waiting_for_approval");
const waitsFor = (step: string) => (view: SopExecutionView) =>
  view.steps.some(({ id, status }) => id === step && status === "waiting");
const isCompleted = ({ status }: SopExecutionView) => status === "completed";

async function close(...members: readonly Member[]): Promise<void> {
  for (const { sops } of members) await sops.stop();
  for (const member of members) await member.close();
}

/** Begins an execution whose only gateway of its workspace dies, and passes the time until it waits for a workspace. */
async function stranded(world: World, wait: { readonly workspaceWaitMs?: number } = {}) {
  const { database } = world;
  const a = await join(world, 1, { workspace: "ws_a", isLocal: true, ...wait });
  const b = await join(world, 2, { workspace: "ws_b", isLocal: true, ...wait });
  await database.clock.advance(2 * LEASE_MS);
  const id = await a.execute("release");
  await passUntil(world, b, { id, holds: asksFor("push") });
  a.die();
  await a.sops.stop();
  await passUntil(world, b, { id, holds: (view) => view.waiting_for === "workspace", atMostMs: 10_000 });
  return { b, id };
}

describe("an execution in a cluster", () => {
  test("begun at one gateway, it is approved, advanced and read at another, by notes alone", async () => {
    await withCluster(async (world) => {
      const [a, b] = [await join(world, 1), await join(world, 2)];
      const id = await a.execute("release");
      await until(async () => asksFor("push")(await b.sops.status(id, BY_AGENT)));
      await b.sops.approve(id, BY_PERSON);
      await until(async () => waitsFor("call")(await b.sops.status(id, BY_AGENT)));
      await b.sops.advance(id, BY_PERSON);
      // The clock has stood still all the time
      await until(async () => isCompleted(await b.sops.status(id, BY_AGENT)));
      assert.deepEqual(world.effects, ["seen"]);
      assert.equal(await world.database.store.count(OPEN_SOPS.name), 0);
      await close(a, b);
    });
  });

  test("what a person does at another gateway reaches the owner within a second when no note arrives", async () => {
    await withCluster(async (world) => {
      const [a, b] = [await join(world, 1), await join(world, 2)];
      world.database.isMute = true;
      const id = await a.execute("release");
      await passUntil(world, b, { id, holds: asksFor("push"), atMostMs: 4_000 });
      await b.sops.approve(id, BY_PERSON);
      await passUntil(world, b, { id, holds: waitsFor("call"), atMostMs: 4_000 });
      await b.sops.advance(id, BY_PERSON);
      await passUntil(world, b, { id, holds: isCompleted, atMostMs: 4_000 });
      await close(a, b);
    });
  });

  test("cancelled at another gateway, it ends at its owner", async () => {
    await withCluster(async (world) => {
      const [a, b] = [await join(world, 1), await join(world, 2)];
      const id = await a.execute("release");
      await until(async () => asksFor("push")(await b.sops.status(id, BY_AGENT)));
      await b.sops.cancel(id, BY_PERSON);
      await until(async () => (await b.sops.status(id, BY_AGENT)).status === "cancelled");
      assert.deepEqual(world.effects, []);
      await close(a, b);
    });
  });

  test("only its owner works on it, and another takes it over when the owner dies", async () => {
    await withCluster(async (world) => {
      const { database } = world;
      const [a, b, c] = [await join(world, 1), await join(world, 2), await join(world, 3)];
      await database.clock.advance(2 * LEASE_MS);
      const id = await a.execute("release");
      await passUntil(world, b, { id, holds: asksFor("push") });
      const [mark] = await database.store.scan(OPEN_SOPS.name, { limit: 1 });
      assert.deepEqual(mark?.body, { v: 1, gateway: a.cluster.id, fence: 1 });
      a.die();
      await database.clock.advance(2 * LEASE_MS + 1_000);
      const [taken] = await database.store.scan(OPEN_SOPS.name, { limit: 1 });
      assert.notEqual(JSON.stringify(taken?.body), JSON.stringify(mark?.body));
      await c.sops.approve(id, BY_PERSON);
      await passUntil(world, b, { id, holds: waitsFor("call") });
      await c.sops.advance(id, BY_PERSON);
      await passUntil(world, c, { id, holds: isCompleted });
      assert.deepEqual(world.effects, ["seen"]);
      await a.sops.stop();
      await close(b, c);
    });
  });

  test("an owner that was cut off for three leases comes back and moves nothing", async () => {
    await withCluster(async (world) => {
      const { database } = world;
      const [a, b] = [await join(world, 1), await join(world, 2)];
      await database.clock.advance(2 * LEASE_MS);
      const id = await a.execute("release");
      await passUntil(world, b, { id, holds: asksFor("push") });
      a.link.isCut = true;
      await database.clock.advance(3 * LEASE_MS);
      await b.sops.approve(id, BY_PERSON);
      await passUntil(world, b, { id, holds: waitsFor("call") });
      const before = await database.store.get(SOP_EXECUTIONS.name, id);
      a.link.isCut = false;
      await database.clock.advance(3 * LEASE_MS);
      assert.deepEqual(await database.store.get(SOP_EXECUTIONS.name, id), before);
      await a.sops.advance(id, BY_PERSON);
      await passUntil(world, a, { id, holds: isCompleted });
      assert.deepEqual(world.effects, ["seen"]);
      await close(a, b);
    });
  });

  test("an owner that was fenced off moves nothing, while it still believes that it may act", async () => {
    await withCluster(async (world) => {
      const { database } = world;
      const a = await join(world, 1);
      const id = await a.execute("release");
      await passUntil(world, a, { id, holds: asksFor("push") });
      await database.store.batch([{ op: "put", collection: GATEWAY_FENCES.name, key: a.cluster.id, body: { v: 1 } }]);
      const before = await database.store.get(SOP_EXECUTIONS.name, id);
      const approving = a.sops.approve(id, BY_PERSON);
      for (let tick = 0; tick < 50; tick++) await nextTick();
      assert.equal(a.cluster.lease.mayAct(), true);
      assert.deepEqual(await database.store.get(SOP_EXECUTIONS.name, id), before);
      assert.deepEqual(world.effects, []);
      // It joins again, and goes on as the next owner
      await passUntil(world, a, { id, holds: waitsFor("call") });
      await approving;
      assert.deepEqual(world.effects, ["seen"]);
      await close(a);
    });
  });

  test("the database is down for a minute: the owner goes on with its execution", async () => {
    await withCluster(async (world) => {
      const { database } = world;
      const [a, b] = [await join(world, 1), await join(world, 2)];
      await database.clock.advance(2 * LEASE_MS);
      const id = await a.execute("release");
      await passUntil(world, b, { id, holds: asksFor("push") });
      const mark = await database.store.get(OPEN_SOPS.name, id);
      database.isAway = true;
      await database.clock.advance(60_000);
      database.isAway = false;
      await database.clock.advance(3 * LEASE_MS);
      assert.deepEqual(await database.store.get(OPEN_SOPS.name, id), mark);
      await b.sops.approve(id, BY_PERSON);
      await passUntil(world, b, { id, holds: waitsFor("call"), atMostMs: 120_000 });
      await close(a, b);
    });
  });

  test("the database is down for one look of each kind at its approval: it goes on waiting", async () => {
    await withCluster(async (world) => {
      const { database } = world;
      const [a, b] = [await join(world, 1), await join(world, 2)];
      await database.clock.advance(2 * LEASE_MS);
      const id = await a.execute("release");
      const { approval } = await passUntil(world, b, { id, holds: asksFor("push") });
      const failed = new Set<string>();
      database.onResult = (operation, collection) => {
        const look = `${operation} ${String(collection)}`;
        if (failed.has(look) || !LOOKS.includes(look)) return Promise.resolve();
        failed.add(look);
        return Promise.reject(awayError());
      };
      // A note that tells of nothing new lets the approval be read
      b.cluster.bus.tell("approval", approval?.id ?? "");
      await database.clock.advance(3_000);
      assert.deepEqual([...failed].sort(), LOOKS);
      await b.sops.approve(id, BY_PERSON);
      await passUntil(world, b, { id, holds: waitsFor("call") });
      await close(a, b);
    });
  });

  test("with steps that need the workspace it is taken over by a gateway of that workspace alone", async () => {
    await withCluster(async (world) => {
      const { database } = world;
      const a = await join(world, 1, { workspace: "ws_a", isLocal: true });
      const b = await join(world, 2, { workspace: "ws_b", isLocal: true });
      await database.clock.advance(2 * LEASE_MS);
      const id = await a.execute("release");
      await passUntil(world, b, { id, holds: asksFor("push") });
      a.die();
      await a.sops.stop();
      await database.clock.advance(2 * LEASE_MS + 1_000);
      await b.sops.approve(id, BY_PERSON);
      await database.clock.advance(5_000);
      assert.equal((await b.sops.status(id, BY_AGENT)).steps[1]?.status, "waiting_for_approval");
      const restarted = await join(world, 3, { workspace: "ws_a", isLocal: true });
      await passUntil(world, b, { id, holds: waitsFor("call") });
      assert.deepEqual(world.effects, ["seen"]);
      await close(b, restarted);
    });
  });

  test("while its workspace has no gateway it says so, and goes on when one comes", async () => {
    await withCluster(async (world) => {
      const { database } = world;
      const { b, id } = await stranded(world);
      const waiting = await b.sops.status(id, BY_AGENT);
      assert.match(waiting.waits_for, /a workspace that has no gateway now: start a gateway of that workspace/);
      const { body } = await database.store.get(OPEN_SOPS.name, id) ?? assert.fail("there is no mark");
      const { waiting_since: since, ...mark } = body as { waiting_since: number };
      assert.deepEqual(mark, { v: 1, gateway: "@ws_a", fence: 0, workspace: "ws_a" });
      assert.ok(since <= database.clock.now());
      // A person answers meanwhile: the wait has begun when it has
      await b.sops.approve(id, BY_PERSON);
      await database.clock.advance(40_000);
      assert.deepEqual((await database.store.get(OPEN_SOPS.name, id))?.body, body);
      const restarted = await join(world, 3, { workspace: "ws_a", isLocal: true });
      await passUntil(world, b, { id, holds: waitsFor("call") });
      const after = await b.sops.status(id, BY_AGENT);
      assert.equal("waiting_for" in after, false);
      assert.equal("waiting_since" in ((await database.store.get(OPEN_SOPS.name, id))?.body as object), false);
      assert.deepEqual(world.effects, ["seen"]);
      await close(b, restarted);
    });
  });

  test("after its time it fails at any gateway, and asks nobody any more", async () => {
    await withCluster(async (world) => {
      const { b, id } = await stranded(world, { workspaceWaitMs: 60_000 });
      const { approval } = await b.sops.status(id, BY_AGENT);
      const ended = await passUntil(world, b, { id, holds: ({ status }) => status === "failed", atMostMs: 120_000 });
      assert.equal(ended.error?.code, "workspace_unavailable");
      assert.match(ended.error?.message ?? "", /no gateway for 60 s.*workspace_wait_secs/);
      assert.equal(await world.database.store.count(OPEN_SOPS.name), 0);
      assert.equal((await b.approvals.get(approval?.id ?? ""))?.status, "cancelled");
      assert.equal((await b.sops.status(id, BY_AGENT)).waits_for, "");
      await close(b);
    });
  });

  test("cancelled while its workspace has no gateway, it ends at any other", async () => {
    await withCluster(async (world) => {
      const { b, id } = await stranded(world);
      world.database.isMute = true;
      await b.sops.cancel(id, BY_PERSON);
      await passUntil(world, b, { id, holds: ({ status }) => status === "cancelled", atMostMs: 3_000 });
      assert.equal(await world.database.store.count(OPEN_SOPS.name), 0);
      await close(b);
    });
  });

  test("an execution of a gateway that was alone is claimed by one of the cluster", async () => {
    await withCluster(async (world) => {
      const { database, workspace } = world;
      const alone = createSopBench({ workspace, clock: database.clock, store: database.store, seed: 9 });
      const { id } = await alone.sops.execute({ ...BY_AGENT, sop: "release", inputs: {} });
      await alone.sops.stop();
      await alone.runs.drain(0);
      const [a, b] = [await join(world, 1), await join(world, 2)];
      await passUntil(world, a, { id, holds: (view) => view.steps[0]?.status !== "pending" });
      await close(a, b);
    });
  });
});

/** Does what a person has to do, as often as it takes. @returns how the execution ended */
async function help({ sops, approvals, runs, clock }: Member, id: string, effects: readonly string[]): Promise<string> {
  for (let i = 0; i < 300; i++) {
    const view = await sops.status(id, BY_AGENT);
    if (["completed", "failed", "cancelled"].includes(view.status)) return view.status;
    try {
      if (view.approval !== null) {
        await approvals.answer(view.approval.id, { decision: "approve", by: BY_PERSON.caller });
      }
      if (view.steps.some(({ status }) => status === "waiting")) await sops.advance(id, BY_PERSON);
      const review = view.steps.find(({ status }) => status === "needs_review");
      if (review !== undefined) {
        const outcome = effects.length > 0 ? "done" : "not_done";
        await runs.resolve(review.run_id ?? "", { action: "resume", outcome, by: BY_PERSON.caller });
      }
    } catch {
      // Answered before, or too soon after the death of a gateway: tried again
    }
    await clock.advance(500);
  }
  return "open";
}

/** Lets the owner of an execution die at one of its writes, and another complete it. @returns the writes that the owner made */
async function executeThroughDeath(crashAt: number, when: "before" | "after"): Promise<number> {
  let writes = 0;
  await withCluster(async (world) => {
    const { database, effects } = world;
    const b = await join(world, 2);
    const dying: CrashingStore[] = [];
    const a = await join(world, 1, {
      wrap(store) {
        const crashing = createCrashingStore(store, { crashAt, when });
        dying.push(crashing);
        return crashing;
      },
    });
    void dying[0]?.crashed.then(() => a.die());
    await database.clock.advance(2 * LEASE_MS);
    let id = await a.execute("release").catch(() => undefined);
    await database.clock.advance(100);
    id ??= (await database.store.scan(SOP_EXECUTIONS.name, { limit: 1 }))[0]?.key;
    if (id !== undefined) {
      const shown = `killed ${when} write ${crashAt}`;
      assert.equal(await help(b, id, effects), "completed", shown);
      assert.deepEqual(effects, ["seen"], shown);
      assert.equal(await database.store.count(OPEN_SOPS.name), 0, shown);
    }
    writes = dying[0]?.writes() ?? 0;
    await a.sops.stop();
    await close(b);
    if (crashAt === Infinity) await a.close();
  });
  return writes;
}

for (const [from, when] of [[1, "before"], [2, "after"]] as const) {
  test(`an execution whose owner dies ${when} one of its writes is completed by another, with one effect`, async () => {
    const writes = await executeThroughDeath(Infinity, when);
    assert.ok(writes > 10, `${writes} writes`);
    for (let crashAt = from; crashAt <= writes; crashAt += 2) await executeThroughDeath(crashAt, when);
  });
}
