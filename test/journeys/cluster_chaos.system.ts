import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { spendThroughFailures } from "./cluster_budget.ts";
import { workThroughFailures } from "../support/cluster_place.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres_server.ts";

/** `test:long` has 300 kills */
const KILLS = 5;

describe("three gateways over one PostgreSQL, each in a process of its own", { skip: NO_POSTGRES }, () => {
  let server: PostgresServer;
  before(async () => void (server = await startPostgres()));
  after(() => server.end());

  test(`work survives ${KILLS} kills of gateways with SIGKILL: nothing is lost, nothing is done twice`, async (context) => {
    const done = await workThroughFailures({
      ...{ server, failures: ["kill"], strikes: KILLS, pieces: 4, maxWorkMs: 1_000, seed: 12 },
    });
    assert.equal(done.pieces, KILLS * 4);
    context.diagnostic(`${done.effects} effects, ${done.reviews} reviews, tokens ${JSON.stringify(done.tokens)}`);
  });

  test("no more is spent than the budget of a day has, whichever gateways are killed", async (context) => {
    const { used, recorded, limit, calls } = await spendThroughFailures({
      ...{ server, failures: ["kill"], strikes: 3, seed: 3 },
    });
    context.diagnostic(`${calls} calls used ${used} of ${limit} tokens; ${recorded} are recorded`);
  });
});
