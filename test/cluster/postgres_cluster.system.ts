import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import type { Script } from "../../fixtures/scripted_provider.ts";
import type { ClusterNote } from "../../lib/cluster/cluster_news.ts";
import { Leases } from "../../lib/cluster/leases.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { startCuttingProxy } from "../support/cutting_proxy.ts";
import { NO_POOLER, withPooler } from "../support/pgbouncer.ts";
import { NO_POSTGRES, startPostgres } from "../support/postgres_server.ts";
import { LEASE_MS, openLink, startMember } from "../support/postgres_gateways.ts";
import { withSchema } from "../support/postgres_stores.ts";
import { ask } from "../support/supervised.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const TERMS = { leaseMs: LEASE_MS, marginMs: 250 };
const ABOUT = { about: { host: "test", pid: 1, version: "0.0.0-test", started_at: "2026-01-01T00:00:00.000Z" } };

/** Listens to the heartbeats of a gateway. @returns a function that gives the longest time without one that succeeded, in ms */
function beatsOf({ cluster }: GatewayServices): () => number {
  let last = systemClock.monotonic();
  let longest = 0;
  const look = () => longest = Math.max(longest, systemClock.monotonic() - last);
  cluster.shown?.lease.onRoundTrip(() => {
    look();
    last = systemClock.monotonic();
  });
  return look;
}

describe("a cluster over PostgreSQL", { skip: NO_POSTGRES }, () => {
  test("leases are joined, renewed, fenced off and given back by the database's clock", async () => {
    await withSchema(async (url, schema) => {
      const [one, two] = [await openLink(url, schema), await openLink(url, schema)];
      try {
        const a = new Leases(one.cluster.leases, TERMS);
        const b = new Leases(two.cluster.leases, { ...TERMS, leaseMs: 60_000 });
        const own = { id: "gw_b", fence: await b.join("gw_b", ABOUT) };
        const other = { id: "gw_a", fence: await a.join("gw_a", ABOUT) };
        assert.deepEqual([own.fence, other.fence], [1, 1]);
        assert.deepEqual(await b.fenceOff(own), [], "a lease that has not run out stays");
        // Work that has all connections of the pool holds up no heartbeat
        const released = Promise.withResolvers<void>();
        const busy = Array.from({ length: 30 }, () => one.database.transaction(() => released.promise));
        await until(() => one.database.pool().waiting >= 20);
        assert.equal(await a.renew(other, ABOUT), true);
        released.resolve();
        await Promise.all(busy);
        const views = await b.list();
        assert.deepEqual(views.map(({ id, leftMs }) => [id, leftMs <= LEASE_MS]), [["gw_a", true], ["gw_b", false]]);
        await systemClock.sleep(LEASE_MS + 50);
        assert.deepEqual(await b.fenceOff(own), ["gw_a"]);
        assert.equal(await a.renew(other, ABOUT), false, "a fence that is not the row's renews nothing");
        assert.equal(
          await one.store.batch([
            { op: "check", collection: "gateway_fences", key: "gw_a", version: other.fence },
            { op: "put", collection: "c", key: "late", body: 1 },
          ]),
          false,
        );
        assert.equal(await a.join("gw_a", ABOUT), 3);
        await b.leave(own);
        assert.deepEqual((await a.list()).map(({ id }) => id), ["gw_a"]);
      } finally {
        await Promise.all([one.close(), two.close()]);
      }
    });
  });

  test("a note reaches every gateway, and again after the connections were cut", async () => {
    await withSchema(async (url, schema) => {
      const [one, two] = [await openLink(url, schema), await openLink(url, schema)];
      try {
        const heard: ClusterNote[] = [];
        await two.cluster.wire.listen((note) => void heard.push(note));
        await one.cluster.wire.send([{ kind: "end", id: "warm", seq: 0 }]);
        await until(() => heard.length === 1);
        // Nobody looks here: the notes alone bring them
        await one.cluster.wire.send([{ kind: "end", id: "run_1", seq: 7 }, { kind: "signal", id: "run_2", seq: 0 }]);
        await until(() => heard.length === 3);
        assert.deepEqual(heard.slice(1), [{ kind: "end", id: "run_1", seq: 7 }, {
          kind: "signal",
          id: "run_2",
          seq: 0,
        }]);
        await one.database.query(
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() AND query LIKE 'LISTEN%' OR query LIKE '%pg_notify(%' AND pid <> pg_backend_pid()",
        );
        let sent = 0;
        await until(async () => {
          await one.cluster.wire.send([{ kind: "run", id: `again_${sent++}`, seq: 0 }]).catch(() => {});
          return heard.some(({ id }) => id.startsWith("again"));
        });
      } finally {
        await Promise.all([one.close(), two.close()]);
      }
    });
  });

  test("behind PgBouncer in transaction mode notes and leases go past it, and runs are shared", {
    skip: NO_POOLER,
  }, () =>
    withSchema((url, schema) =>
      withPooler(url, (port) =>
        withTemporaryFolder(async (folder) => {
          const pooled = new URL(url);
          pooled.port = String(port);
          const [one, two] = [await openLink(pooled.href, schema, url), await openLink(pooled.href, schema, url)];
          const a = await startMember(one, join(folder, "a"), ["from A"]);
          const b = await startMember(two, join(folder, "b"), ["from B"]);
          try {
            const heard: ClusterNote[] = [];
            await two.cluster.wire.listen((note) => void heard.push(note));
            await one.cluster.wire.send([{ kind: "end", id: "run_1", seq: 7 }]);
            await until(() => heard.some(({ id }) => id === "run_1"));
            const handle = await a.agent?.runs.start(ask("go", { durable: true }));
            await until(async () => (await b.agent?.runs.get(handle?.id ?? ""))?.status === "completed");
            assert.equal((await b.cluster.shown?.overview.status())?.gateways.length, 2);
          } finally {
            await Promise.all([a.drain(0), b.drain(0)]);
            await Promise.all([a.close(), b.close()]);
            await Promise.all([one.close(), two.close()]);
          }
        }))
    ));

  test("a request that needs the connection of the lease is told that the database is down, however it is away", async () => {
    await withSchema(async (url, schema) => {
      const address = new URL(url);
      const proxy = await startCuttingProxy(Number(address.port));
      address.port = String(proxy.port);
      const link = await openLink(address.href, schema);
      const leases = new Leases(link.cluster.leases, TERMS);
      const refusal = { name: "HttpError", code: "storage_unavailable", status: 503 };
      try {
        await leases.join("gw_a", ABOUT);
        proxy.freeze(true);
        // The second waits for its turn on a connection that is given up meanwhile
        const asked = [leases.list(), leases.fences(["gw_a"])];
        await Promise.all(asked.map((answer) => assert.rejects(answer, refusal)));
        proxy.freeze(false);
        await until(() => leases.list().then(() => true, () => false));
        proxy.refuse(true);
        await assert.rejects(leases.list(), refusal);
      } finally {
        proxy.refuse(true);
        await link.close();
        await proxy.close();
      }
    });
  });

  test("two gateways: a run of one that is cut off from the database goes on at the other", async () => {
    await withSchema(async (url, schema) => {
      await withTemporaryFolder(async (folder) => {
        const held = Promise.withResolvers<void>();
        const [one, two] = [await openLink(url, schema), await openLink(url, schema)];
        const a = await startMember(one, join(folder, "a"), [{ text: ["from ", "A"], holdUntil: held.promise }]);
        const b = await startMember(two, join(folder, "b"), ["from B", "from B"]);
        try {
          const handle = await a.agent?.runs.start(ask("go", { durable: true }));
          assert.ok(handle);
          const run = () => b.agent?.runs.get(handle.id);
          let status: string | undefined;
          // On an overloaded machine A may have lost its lease before: then B has the run already
          await until(async () => {
            status = (await run())?.status;
            return status === "running" || status === "completed";
          }, () => `${status}; ${a.stateReason() ?? ""}; ${b.stateReason() ?? ""}`);
          // Time in which B's renewals are unbroken for a lease
          await systemClock.sleep(LEASE_MS + 300);
          await one.close();
          await until(async () => (await run())?.status === "completed");
          assert.equal((await run())?.result, "from B");
          // A may have lost its lease before, and joined again
          const left = async () => (await b.cluster.shown?.overview.status())?.gateways.map(({ id }) => id) ?? [];
          await until(async () => (await left()).join() === b.cluster.id);
          held.resolve();
        } finally {
          held.resolve();
          await b.drain(0);
          await b.close();
          await a.drain(0).catch(() => {});
          await a.close().catch(() => {});
        }
      });
    });
  });

  test("the server is down for more than two leases: the run stays with its owner; promoted, every gateway joins again", async () => {
    const server = await startPostgres();
    const link = async () => await openLink(server.url(), "postern");
    await withTemporaryFolder(async (folder) => {
      const [one, two] = [await link(), await link()];
      const held = Promise.withResolvers<void>();
      const script: Script = [{ text: ["from ", "A"], holdUntil: held.promise }, "from A", "from A"];
      const a = await startMember(one, join(folder, "a"), script);
      const b = await startMember(two, join(folder, "b"), ["from B", "from B"]);
      try {
        await systemClock.sleep(1.2 * LEASE_MS);
        const handle = await a.agent?.runs.start(ask("go", { durable: true }));
        assert.ok(handle);
        const run = () => b.agent?.runs.get(handle.id).catch(() => undefined);
        await until(async () => (await run())?.status === "running");
        await server.stop();
        await systemClock.sleep(1.2 * LEASE_MS);
        // The turn ends while the server is down: its record waits
        held.resolve();
        await systemClock.sleep(1.2 * LEASE_MS);
        await server.start();
        const beats = [a, b].map(beatsOf);
        await until(async () => (await run())?.status === "completed");
        const { result } = await run() ?? {};
        // Time in which a takeover would show
        await systemClock.sleep(1.2 * LEASE_MS);
        // Only a gateway whose own heartbeats come a lease late may be taken for gone, as on a machine that is overloaded
        const isLate = beats.map((longestGap) => longestGap() >= LEASE_MS - TERMS.marginMs);
        assert.ok(result === "from A" || isLate[0], `${result}`);
        const next = await b.agent?.runs.start(ask("go", { durable: true }));
        await until(async () => (await a.agent?.runs.get(next?.id ?? ""))?.status === "completed");

        // Promoted, it goes on with another history, which may lack the last commits
        const gateways = [a, b];
        const losses = () => gateways.map(({ cluster }) => cluster.shown?.lease.heartbeats().losses);
        const before = losses();
        for (const [index, late] of isLate.entries()) assert.ok(late || before[index] === 0, `${index} lost its lease`);
        await server.stop();
        writeFileSync(join(server.folder, "data", "standby.signal"), "");
        await server.start();
        await server.run("SELECT pg_promote()");
        await until(() => losses().every((count, index) => (count ?? 0) > (before[index] ?? 0)));
        await until(() => gateways.every(({ cluster }) => cluster?.lease.mayAct() === true));
        // A gateway that found the server away asks for it again after a pause
        await until(() => [one, two].every(({ store }) => store.healthy()));
        const last = await a.agent?.runs.start(ask("go", { durable: true }));
        await until(async () => (await b.agent?.runs.get(last?.id ?? ""))?.status === "completed");
      } finally {
        held.resolve();
        await Promise.all([a.drain(0), b.drain(0)]);
        await Promise.all([a.close(), b.close()]);
        await Promise.all([one.close(), two.close()]);
        await server.end();
      }
    });
  });
});
