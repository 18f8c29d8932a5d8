import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { GATEWAY_FENCES, GATEWAY_LEASES } from "../../lib/cluster/cluster_records.ts";
import { type ClusterLink, createSharedDatabase, joinGateway, joinLink, LEASE_MS } from "../support/clustered.ts";
import { ask, supervised } from "../support/supervised.ts";
import { until } from "../support/until.ts";

function die({ link, cluster }: ClusterLink): void {
  link.isCut = true;
  cluster.lease.abandon();
}

describe("a gateway that died", () => {
  test("is fenced off and forgotten by gateways without an agent", async () => {
    const database = createSharedDatabase();
    const a = await joinLink(database, { seed: 1 });
    const b = await joinLink(database, { seed: 2 });
    await database.clock.advance(2 * LEASE_MS);
    const own = a.cluster.lease.own() ?? assert.fail();
    die(a);
    await database.clock.advance(LEASE_MS + LEASE_MS / 2);
    assert.equal(await b.cluster.ownership.isCurrent(own), false);
    assert.deepEqual((await b.cluster.gateways()).map(({ id }) => id), [b.cluster.id]);
    await database.clock.advance(120_000);
    assert.equal(await database.store.get(GATEWAY_FENCES.name, a.cluster.id), undefined);
    await Promise.all([a.close(), b.close()]);
    assert.equal(database.clock.pending(), 0, "no timer is left");
  });

  test("is fenced off by gateways that are all drained, and its locks of files with it", async () => {
    const database = createSharedDatabase();
    const a = await joinLink(database, { seed: 1, workspace: "shared" });
    let b: ClusterLink | undefined;
    void joinLink(database, { seed: 2, workspace: "shared" }).then((joined) => b = joined);
    while (b === undefined) await database.clock.advance(100);
    await database.clock.advance(2 * LEASE_MS);
    const at = { workspaceRoot: "/w", signal: new AbortController().signal };
    void a.cluster.fileLocks?.hold(["/w/a.txt"], at, () => new Promise(() => {}));
    await database.clock.advance(100);
    await b.cluster.lease.joinAgain("drained");
    die(a);
    let isChanged = false;
    void b.cluster.fileLocks?.hold(["/w/a.txt"], at, async () => void (isChanged = true));
    await database.clock.advance(3 * LEASE_MS);
    assert.equal(isChanged, true);
    await Promise.all([a.close(), b.close()]);
  });

  test("while the database is down it stays, and is fenced off after it, with one line in the log", async () => {
    const database = createSharedDatabase();
    const a = await joinLink(database, { seed: 1 });
    const b = await joinLink(database, { seed: 2 });
    await database.clock.advance(2 * LEASE_MS);
    die(a);
    await database.clock.advance(LEASE_MS / 2);
    database.isAway = true;
    await database.clock.advance(30_000);
    database.isAway = false;
    assert.equal(await database.store.count(GATEWAY_LEASES.name), 2);
    await database.clock.advance(3 * LEASE_MS);
    assert.equal(await database.store.count(GATEWAY_LEASES.name), 1);
    assert.equal(b.clusterLog.filter(({ message }) => message.startsWith("A gateway is gone")).length, 1);
    await b.close();
  });

  test("leaves its runs to the gateway that fenced it off at once, not at the next look for runs", async () => {
    const database = createSharedDatabase();
    const { clock } = database;
    const a = await joinGateway(database, [{ hang: "before" }], { seed: 1 });
    const b = await joinLink(database, { seed: 2 });
    // Looks for runs and looks for gateways at different times
    await clock.advance(LEASE_MS / 4);
    const { runs } = supervised(["from B"], { clock, store: b.link.store, seed: 2, log: b.log, cluster: b.member });
    await runs.recover();
    await clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("go", { durable: true }));
    await until(() => a.provider.requests.length === 1);
    die({ ...a, log: b.log, member: b.member });
    let fencedAt: number | undefined;
    b.cluster.onTakeover(() => fencedAt = clock.monotonic());
    while (fencedAt === undefined) await clock.advance(25);
    await clock.advance(25);
    assert.equal((await runs.get(id))?.status, "completed");
    await runs.drain(0);
    await b.close();
  });
});
