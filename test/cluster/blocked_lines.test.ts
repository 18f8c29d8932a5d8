/** Runs that wait for their conversation or for their parent's gateway hold up no other run, however many there are. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { BlockedLines } from "../../lib/cluster/blocked_lines.ts";
import type { ClaimableRun } from "../../lib/cluster/run_claims.ts";
import {
  type ClusterLink,
  createSharedDatabase,
  joinLink,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";

const ROOM: Parameters<ClusterLink["cluster"]["ownership"]["claim"]>[0] = {
  isWhole: true,
  limit: 1_000,
  takesNoSlot: () => false,
  isKnown: () => false,
};

function runOf(id: string, conversationId: string | null, parentId: string | null = null): ClaimableRun {
  return { id, conversationId, parentId, workspace: null };
}

async function accept(database: SharedDatabase, { cluster }: ClusterLink, runs: readonly ClaimableRun[]) {
  for (const run of runs) await database.store.batch([...cluster.ownership.opening(run)]);
}

/** Two gateways; the first one has a run at work in each of some conversations, behind each of which one more run waits. */
async function blockedConversations(count: number) {
  const database = createSharedDatabase();
  const a = await joinLink(database, { seed: 1 });
  const b = await joinLink(database, { seed: 2 });
  await database.clock.advance(2 * LEASE_MS);
  const lines = Array.from({ length: count }, (_, index) => `c${index}`);
  await accept(database, a, lines.map((line) => runOf(`run_at_${line}`, line)));
  while (a.cluster.ownership.count() < count) await a.cluster.ownership.claim(ROOM);
  await accept(database, a, lines.map((line) => runOf(`run_behind_${line}`, line)));
  return { database, a, b, close: () => Promise.all([a.close(), b.close()]) };
}

async function claim({ cluster }: ClusterLink, options: Partial<typeof ROOM> = {}): Promise<readonly string[]> {
  return (await cluster.ownership.claim({ ...ROOM, ...options })).map(({ id }) => id);
}

describe("runs of conversations that are at work", () => {
  for (const [count, limit] of [[1, 1], [20, 16], [120, 16], [1_100, 1]] as const) {
    test(`${count} of them leave ${limit} free slots to a run that was accepted later`, async () => {
      const { database, a, b, close } = await blockedConversations(count);
      await accept(database, a, [runOf("run_free", null)]);
      const claimed: string[] = [];
      for (let look = 0; look < 2; look++) claimed.push(...await claim(b, { limit }));
      assert.deepEqual(claimed, ["run_free"]);
      await close();
    });
  }

  test("are no part of what waits for this gateway: a new run may begin here at once", async () => {
    const { b, close } = await blockedConversations(250);
    for (let look = 0; look < 3; look++) await claim(b);
    const { waiting, waitingHere } = b.cluster.ownership.queue();
    assert.deepEqual([waiting, waitingHere, b.cluster.ownership.mayBegin()], [250, 0, true]);
    await close();
  });

  test("are claimed within three looks once their conversation is free, whichever of 250 it is", async () => {
    const { database, a, b, close } = await blockedConversations(250);
    for (let look = 0; look < 4; look++) await claim(b);
    for (const line of ["c0", "c130", "c249"]) {
      await database.store.batch([...a.cluster.ownership.ending({ id: `run_at_${line}`, conversationId: line })]);
      const claimed: string[] = [];
      for (let look = 0; look < 3; look++) claimed.push(...await claim(b));
      assert.deepEqual(claimed, [`run_behind_${line}`]);
    }
    await close();
  });

  test("are no blocked ones while none is at work: the first of each of 150 conversations is claimed by one look", async () => {
    const database = createSharedDatabase();
    const a = await joinLink(database, { seed: 1 });
    await database.clock.advance(2 * LEASE_MS);
    // The first look of a gateway reads claims in another order too
    await claim(a);
    const lines = Array.from({ length: 150 }, (_, index) => `c${index}`);
    await accept(database, a, lines.flatMap((line) => ["first", "second"].map((n) => runOf(`run_${n}_${line}`, line))));
    assert.deepEqual((await claim(a)).toSorted(), lines.map((line) => `run_first_${line}`).toSorted());
    await a.close();
  });

  test("cost a look a bounded number of reads", async () => {
    const { database, b, close } = await blockedConversations(500);
    let reads = 0;
    database.onResult = async (_operation, _first, link) => void (link === b.link && reads++);
    await claim(b);
    assert.ok(reads < 500, `${reads} reads`);
    await close();
  });
});

test("sub-agents that wait for the gateway of their parent hold up no run that was accepted later", async () => {
  const database = createSharedDatabase();
  const a = await joinLink(database, { seed: 1 });
  const b = await joinLink(database, { seed: 2 });
  await database.clock.advance(2 * LEASE_MS);
  await accept(database, a, [runOf("run_parent", null)]);
  await claim(a);
  await accept(database, a, Array.from({ length: 150 }, (_, index) => runOf(`run_child${index}`, null, "run_parent")));
  await accept(database, a, [runOf("run_free", null)]);
  assert.deepEqual(await claim(b, { limit: 1, staysWithParent: true }), ["run_free"]);
  assert.equal(b.cluster.ownership.mayBegin(), true);
  assert.equal((await claim(a, { limit: 0, staysWithParent: true, takesNoSlot: () => true })).length, 150);
  await Promise.all([a.close(), b.close()]);
});

test("lines are asked in turn: those that a look leaves out are the first of the next one", () => {
  const blocked = new BlockedLines();
  const lines = Array.from({ length: 250 }, (_, index) => `line ${index}`);
  const look = () => {
    blocked.begin(true);
    const asked = lines.filter((line) => {
      if (!blocked.mayAsk(line)) return false;
      blocked.note(line, true);
      return true;
    });
    blocked.end();
    return [asked.length, asked[0], asked.at(-1)];
  };
  assert.deepEqual([look(), look(), look(), look()], [
    [100, "line 0", "line 99"],
    [100, "line 100", "line 199"],
    [50, "line 200", "line 249"],
    [100, "line 0", "line 99"],
  ]);
  assert.ok(lines.every((line) => blocked.has(line)));
});
