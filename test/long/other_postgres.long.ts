import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import process from "node:process";
import { test } from "node:test";
import { RUN } from "../support/gateway_process.ts";
import { NO_EMBEDDED_POSTGRES, NO_POSTGRES } from "../support/postgres_server.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";

const STORE = ["test/storage/postgres_contract.system.ts", "test/storage/store_contract.test.ts"];
const SERVER = [
  ...STORE,
  "test/storage/open_postgres_store.system.ts",
  "test/storage/moving/move_records.system.ts",
  "test/cluster/postgres_cluster.system.ts",
  "test/cluster/postgres_loops.system.ts",
  "test/journeys/cluster_chaos.system.ts",
  "test/journeys/cluster_outages.system.ts",
];

/** Runs test files with other binaries of PostgreSQL than the tests of this machine have. */
function runWith(binaries: "embedded" | "none", files: readonly string[]): string {
  const [command = "", ...options] = RUN;
  const env = { ...process.env, TEST_POSTGRES: binaries, NODE_TEST_CONTEXT: undefined };
  const argv = [...options, "scripts/test.ts", "node", ...files];
  const { status, stdout, stderr } = spawnSync(command, argv, { cwd: PROJECT_ROOT, env, encoding: "utf8" });
  assert.equal(status, 0, stdout + stderr);
  return stdout;
}

test("the newer PostgreSQL of the package passes the store contract and the tests of clusters", {
  skip: NO_EMBEDDED_POSTGRES,
}, () => {
  const output = runWith("embedded", SERVER);
  assert.match(output, /^▶ the postgres store$/m);
  assert.doesNotMatch(output, /no PostgreSQL was found/);
});

test("without a server the store contract passes on PGlite, and the rest is skipped", { skip: NO_POSTGRES }, () => {
  const output = runWith("none", STORE);
  assert.match(output, /^▶ the pglite store$/m);
  assert.match(output, /the postgres store .* # no PostgreSQL was found/);
});
