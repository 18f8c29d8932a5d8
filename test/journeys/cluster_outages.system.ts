import { after, before, describe, test } from "node:test";
import { LEASE_SECS, withstandOutage } from "../support/cluster_outage.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres_server.ts";

/** Seconds that the database is down. `test:long` has a minute */
const AWAY_SECS = 3.2 * LEASE_SECS;

describe("gateways in processes of their own, whose PostgreSQL", { skip: NO_POSTGRES }, () => {
  let server: PostgresServer;
  before(async () => void (server = await startPostgres({ settings: { synchronous_commit: "on" } })));
  after(() => server.end());

  test(`is away for ${AWAY_SECS} s, over three leases: no run changes its gateway, none is left for a person`, () =>
    withstandOutage(server, AWAY_SECS));
});
