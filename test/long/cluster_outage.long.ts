import { test } from "node:test";
import { withstandOutage } from "../support/cluster_outage.ts";
import { NO_POSTGRES, startPostgres } from "../support/postgres_server.ts";

test("the database is down for a minute, thirty leases: no run changes its gateway, none is left for a person", {
  skip: NO_POSTGRES,
}, async () => {
  const server = await startPostgres({ settings: { synchronous_commit: "on" } });
  try {
    await withstandOutage(server, 60);
  } finally {
    await server.end();
  }
});
