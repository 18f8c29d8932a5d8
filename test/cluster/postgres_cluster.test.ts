import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createScriptedProvider, createScriptedProviders, type Script } from "../../fixtures/scripted_provider.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import type { ClusterNote } from "../../lib/cluster/cluster_news.ts";
import type { ClusterDatabase } from "../../lib/cluster/join_cluster.ts";
import { Leases } from "../../lib/cluster/leases.ts";
import { openPostgresCluster } from "../../lib/cluster/postgres_cluster.ts";
import { createServices } from "../../lib/gateway.ts";
import type { GatewayServices } from "../../lib/services.ts";
import type { PostgresDatabase } from "../../lib/storage/postgres/postgres_database.ts";
import type { Store } from "../../lib/storage/store.ts";
import { toConfig } from "../support/config_edits.ts";
import { NO_POSTGRES, startPostgres } from "../support/postgres_server.ts";
import { openTestDatabase, openTestStore, withSchema } from "../support/postgres_stores.ts";
import { ask } from "../support/supervised.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const LEASE_MS = 1_000;
const TERMS = { leaseMs: LEASE_MS, marginMs: 250 };
const ABOUT = { host: "test", pid: 1, version: "0.0.0-test", started_at: "2026-01-01T00:00:00.000Z" };

interface Link {
  readonly database: PostgresDatabase;
  readonly store: Store;
  readonly cluster: ClusterDatabase;
  close(): Promise<void>;
}

async function openLink(url: string, schema: string): Promise<Link> {
  const database = await openTestDatabase(url);
  const store = await openTestStore(database, schema);
  const cluster = openPostgresCluster({
    ...{ database, schema, leaseMs: LEASE_MS, clock: systemClock, random: createSystemRandom(), log: SILENT },
  });
  return {
    database,
    store,
    cluster,
    async close() {
      await cluster.close?.();
      await store.close();
    },
  };
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
        assert.equal(await a.renew(other, ABOUT), true);
        const views = await b.list();
        assert.deepEqual(views.map(({ id, leftMs }) => [id, leftMs > 0]), [["gw_a", true], ["gw_b", true]]);
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

  test("a note reaches every gateway within 100 ms, and again after the connections were cut", async () => {
    await withSchema(async (url, schema) => {
      const [one, two] = [await openLink(url, schema), await openLink(url, schema)];
      try {
        const heard: ClusterNote[] = [];
        await two.cluster.wire.listen((note) => void heard.push(note));
        await one.cluster.wire.send([{ kind: "end", id: "warm", seq: 0 }]);
        await until(() => heard.length === 1);
        const begun = systemClock.monotonic();
        await one.cluster.wire.send([{ kind: "end", id: "run_1", seq: 7 }, { kind: "signal", id: "run_2", seq: 0 }]);
        await until(() => heard.length === 3);
        const took = systemClock.monotonic() - begun;
        assert.ok(took < 100, `it took ${took} ms`);
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
          await until(async () => (await run())?.status === "running");
          // Time in which B's renewals are unbroken for a lease
          await systemClock.sleep(LEASE_MS + 300);
          const begun = systemClock.monotonic();
          await one.close();
          await until(async () => (await run())?.status === "completed");
          const took = systemClock.monotonic() - begun;
          assert.equal((await run())?.result, "from B");
          assert.ok(took < 1.5 * LEASE_MS + 1_500, `it took ${Math.round(took)} ms`);
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

  test("the server stops and is away for more than two leases: the run stays with its owner, and goes on", async () => {
    const server = await startPostgres();
    const link = async () => await openLink(server.url(), "postern");
    await withTemporaryFolder(async (folder) => {
      const [one, two] = [await link(), await link()];
      const held = Promise.withResolvers<void>();
      const script: Script = [{ text: ["from ", "A"], holdUntil: held.promise }];
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
        // The turn ends while the server is away: its record waits
        held.resolve();
        await systemClock.sleep(1.2 * LEASE_MS);
        await server.start();
        await until(async () => (await run())?.status === "completed");
        assert.equal((await run())?.result, "from A");
        // Time in which a takeover would show
        await systemClock.sleep(1.2 * LEASE_MS);
        const next = await b.agent?.runs.start(ask("go", { durable: true }));
        await until(async () => (await a.agent?.runs.get(next?.id ?? ""))?.status === "completed");
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

function startMember(link: Link, folder: string, script: Script): Promise<GatewayServices> {
  const workspaceRoot = join(folder, "work");
  mkdirSync(workspaceRoot, { recursive: true });
  return createServices({
    config: toConfig({
      storage: { driver: "memory" },
      cluster: { lease_secs: LEASE_MS / 1_000 },
    }),
    dataDir: join(folder, "data"),
    workspaceRoot,
    home: folder,
    environment: {},
    version: "0.0.0-test",
    logSink: () => {},
    database: link,
    providers: createScriptedProviders(createScriptedProvider(script)),
  });
}
