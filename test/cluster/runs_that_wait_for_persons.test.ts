import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { APPROVALS } from "../../lib/guard/approval_records.ts";
import { SharedApprovalNews } from "../../lib/guard/approval_news.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import { createApprover } from "../../lib/runs/supervisor/create_approver.ts";
import { createSharedDatabase, joinLink, LEASE_MS, type SharedDatabase } from "../support/clustered.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { ask, supervised } from "../support/supervised.ts";
import { until } from "../support/until.ts";

const RUNS = 24;
const SLOTS = 2;
const BY_PERSON = { via: "http", tokenId: "tok_person" } as const;

/** Joins a gateway with few slots, whose runs call a tool that a person is asked about. */
async function joinAsking(database: SharedDatabase, seed: number) {
  const { clock } = database;
  const { link, cluster, member, log, close } = await joinLink(database, { seed });
  const { store } = link;
  const approvals = new StoredApprovals({
    ...{ store, clock, random: createSeededRandom(500 + seed), log: SILENT, metrics: createMetrics() },
    audit: createFakeAudit(store).append,
    news: new SharedApprovalNews({ store, clock, log: SILENT, bus: cluster.bus }),
  });
  const gateway = supervised(
    ({ messages }) => messages.at(-1)?.role === "tool" ? "Done" : { toolCalls: [{ name: "effect", arguments: "{}" }] },
    {
      ...{ clock, store, seed, log, cluster: member, limits: { maxConcurrent: SLOTS } },
      tools: [{ name: "effect", access: "write", decision: "ask" }],
      approverOf: createApprover({ approvals, timeoutMs: () => ({ attached: 60_000, durable: 86_400_000 }) }),
      leftApprovals: {
        pendingApprovals: (runIds) => approvals.ofRuns(runIds, "pending"),
        withdraw: (id) => approvals.cancel(id),
      },
    },
  );
  await gateway.runs.recover();
  return { ...gateway, link, cluster, approvals, close };
}

/** Starts runs at a gateway, until all of them wait for a person. */
async function startAll({ runs, approvals }: Awaited<ReturnType<typeof joinAsking>>): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let at = 0; at < RUNS; at++) ids.push((await runs.start(ask(`work ${at}`, { durable: true }))).id);
  await until(async () => (await approvals.list({ status: "pending", limit: 1_000 })).approvals.length === RUNS);
  return ids;
}

/** Returns the number of runs that wait at a gateway for the answer to an approval. */
async function waitingAt({ runs, cluster }: Awaited<ReturnType<typeof joinAsking>>, ids: readonly string[]) {
  let waiting = 0;
  for (const id of ids) {
    if (cluster.ownership.owns(id) && (await runs.get(id))?.status === "waiting_for_approval") waiting++;
  }
  return waiting;
}

describe("runs that wait for a person", () => {
  test("lend their slots: those of a gateway that is gone are taken up at once, however few slots there are", async () => {
    const database = createSharedDatabase();
    const [a, b] = [await joinAsking(database, 1), await joinAsking(database, 2)];
    await database.clock.advance(2 * LEASE_MS);
    const ids = await startAll(a);
    let reads = 0;
    database.onResult = (operation, collection, link) => {
      if (operation === "get" && collection === APPROVALS.name && link === b.link) reads++;
      return Promise.resolve();
    };
    a.link.isCut = true;
    a.cluster.lease.abandon();
    while (b.cluster.ownership.count() === 0) await database.clock.advance(50);
    // No time passes from here on: no look comes by itself
    await until(async () => await waitingAt(b, ids) === RUNS);
    assert.ok(reads <= 4 * RUNS, `${reads} reads of ${RUNS} approvals: each run reads those of others`);

    for (const { id } of (await b.approvals.list({ status: "pending", limit: 1_000 })).approvals) {
      await b.approvals.answer(id, { decision: "approve", by: BY_PERSON });
    }
    await until(() => b.runs.active() === 0);
    assert.equal(b.executor.calls.length, RUNS);
    for (const id of ids) assert.equal((await b.runs.get(id))?.status, "completed");
    await b.close();
  });

  test("cost one read a second together, and hear of an answer although its note was lost", async () => {
    const database = createSharedDatabase();
    const [a, b] = [await joinAsking(database, 1), await joinAsking(database, 2)];
    await database.clock.advance(2 * LEASE_MS);
    const ids = await startAll(a);
    await until(async () => await waitingAt(a, ids) === RUNS);
    const reads: string[] = [];
    database.onResult = (operation, collection, link) => {
      if (link === a.link && String(collection).endsWith("approvals")) reads.push(`${operation} ${String(collection)}`);
      return Promise.resolve();
    };
    await database.clock.advance(10_000);
    assert.ok(reads.length >= 9 && reads.length <= 11, `${reads.length} reads in ten seconds`);
    assert.deepEqual([...new Set(reads)], ["scan open_approvals"]);

    database.isMute = true;
    const [first] = (await b.approvals.list({ status: "pending", limit: 1 })).approvals;
    assert.ok(first);
    await b.approvals.answer(first.id, { decision: "approve", by: BY_PERSON });
    await database.clock.advance(1_000);
    await until(async () => (await a.runs.get(first.run_id))?.status === "completed");
    assert.equal(await waitingAt(a, ids), RUNS - 1);
    await Promise.all([a.close(), b.close()]);
  });
});
