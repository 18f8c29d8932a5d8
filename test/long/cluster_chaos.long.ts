import assert from "node:assert/strict";
import process from "node:process";
import { after, before, describe, test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { workThroughFailures } from "../support/cluster_place.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres_server.ts";
import type { ClusterFailure } from "../support/struck_cluster.ts";

/** Strikes of each test. Variable `STRIKES` */
const STRIKES = Number(process.env["STRIKES"] ?? 300);
const SEED = Number(process.env["SEED"] ?? 300);
const KILLS: readonly ClusterFailure[] = ["kill"];
const ALL: readonly ClusterFailure[] = ["kill", "pause", "pause", "cut", "cut", "restart"];
/** Failures of each test. Variable `FAILURES` gives one test of those alone, such as `kill,pause` */
const CHOSEN = process.env["FAILURES"]?.split(",").map(toFailure);
const TIMEOUT_MS = 7_200_000;

describe("three gateways over one PostgreSQL, each in a process of its own", {
  skip: NO_POSTGRES,
  timeout: 2 * TIMEOUT_MS,
}, () => {
  let server: PostgresServer;
  before(async () => void (server = await startPostgres()));
  after(() => server.end());

  for (const failures of CHOSEN === undefined ? [KILLS, ALL] : [CHOSEN]) {
    const kinds = [...new Set(failures)].join(", ");
    test(
      `work survives ${STRIKES} times ${kinds}: nothing is lost, nothing is done twice`,
      { timeout: TIMEOUT_MS },
      async () => {
        const progress = startProgress();
        const done = await workThroughFailures({
          ...{ server, failures, strikes: STRIKES, pieces: 4, maxWorkMs: 600, seed: SEED },
          tell: progress.tell,
        });
        const { pieces, effects, reviews, firings, tokens } = done;
        progress.end(
          `${pieces} pieces of work, ${effects} effects, ${reviews} reviews, ${firings} firings, tokens ${
            JSON.stringify(tokens)
          }`,
        );
        assert.equal(done.pieces, 4 * STRIKES);
      },
    );
  }
});

/** Prints a line for each failure, and one with their numbers in the end. */
function startProgress() {
  const begunAt = systemClock.monotonic();
  const counts = new Map<ClusterFailure, number>();
  let strikes = 0;
  const say = (text: string) => {
    console.log(`${new Date().toISOString()} ${Math.round((systemClock.monotonic() - begunAt) / 1_000)} s: ${text}`);
  };
  return {
    tell(failure: ClusterFailure, gateway: number) {
      counts.set(failure, (counts.get(failure) ?? 0) + 1);
      say(`${++strikes}/${STRIKES} ${failure} ${failure === "restart" ? "of the database" : `of gateway ${gateway}`}`);
    },
    end(done: string) {
      say(`${[...counts].map(([failure, count]) => `${count} x ${failure}`).join(", ")} (seed ${SEED}); ${done}`);
    },
  };
}

function toFailure(name: string): ClusterFailure {
  const known = ALL.find((failure) => failure === name);
  return known ?? assert.fail(`FAILURES has "${name}", which is none of ${[...new Set(ALL)].join(", ")}`);
}
