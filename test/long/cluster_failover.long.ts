import assert from "node:assert/strict";
import { test } from "node:test";
import { workThroughFailures } from "../support/cluster_place.ts";
import { NO_POSTGRES, startPostgres } from "../support/postgres_server.ts";
import { until } from "../support/world.ts";

test("PostgreSQL crashes and its synchronous standby is promoted: nothing is lost or done twice", {
  skip: NO_POSTGRES,
}, async (context) => {
  const server = await startPostgres({ settings: { synchronous_commit: "on" } });
  await server.stop();
  const standby = await startPostgres({ standbyOf: server, settings: { synchronous_commit: "on" } });
  try {
    await server.start();
    await server.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
    await server.run("SELECT pg_reload_conf()");
    await until(async () => {
      const [row] = await server.run("SELECT count(*)::int AS n FROM pg_stat_replication WHERE sync_state = 'sync'");
      return row?.["n"] === 1;
    });
    const done = await workThroughFailures({
      ...{ server, standby, failures: ["failover"], strikes: 1, pieces: 10, maxWorkMs: 500, seed: 5 },
    });
    assert.equal(done.pieces, 10);
    context.diagnostic(`${done.effects} effects, ${done.reviews} reviews`);
  } finally {
    await standby.end();
    await server.end();
  }
});
