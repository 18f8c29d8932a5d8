/**
 * Ends a test file that something keeps alive after its tests: preloaded for all runs of tests on Node.
 *
 * A test that fails often leaves a server or a connection open. The runner would wait for its process without a bound: its own
 * `--test-timeout` counts for tests alone. The process ends as failed, and says what was open.
 * The address of this module may have the time to wait, in milliseconds: `end_leaky_files.js?ms=100`.
 */
import process from "node:process";
import { after } from "node:test";

/** Longest time that handles need which end by themselves, as idle connections do. Milliseconds */
const DEFAULT_MS = 60_000;

// The runner itself loads this module too, and ends when its files have
if (process.env["NODE_TEST_CONTEXT"] !== undefined) {
  const waitMs = Number(new URL(import.meta.url).searchParams.get("ms") ?? DEFAULT_MS);
  after(() => {
    setTimeout(() => {
      const open = process.getActiveResourcesInfo().join(", ");
      console.error(`${process.argv[1]}: the tests are over, and something is still open after ${waitMs} ms: ${open}`);
      process.exit(1);
    }, waitMs).unref();
  });
}
