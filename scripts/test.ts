/**
 * Runs the tests on Node and on Deno: `node scripts/test.ts [node|deno] [--long] [files...]`.
 *
 * Deno comes through npm at the version of deno.ts; where it cannot be had its half is skipped with a printed reason.
 * Without names it runs all files, many of them in groups (test_groups.ts); a named file has a process of its own.
 * The exit code is 0 when every runtime that ran has passed. A file that is not there is refused, and nothing runs: Node would
 * leave it out without a word.
 */
import { spawnSync } from "node:child_process";
import { globSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { denoCommand } from "./deno.ts";
import { groupTestFiles } from "./test_groups.ts";

const words = process.argv.slice(2);
const long = words.includes("--long");
const runtimes = words.filter((word) => word === "node" || word === "deno");
const named = words.filter((word) => !word.startsWith("--") && !runtimes.some((runtime) => runtime === word));
const missing = named.filter((path) => globSync(path).length === 0);
/** Holds the files that stand for groups of test files */
const groups = mkdtempSync(join(tmpdir(), "postern-tests-"));
const files = filesToRun();

/** Files that run at the same time: many wait for other processes. On Deno they are threads of one process, which share more. */
const WIDTH = { node: "4", deno: "3" };
/** Nothing takes so long: a test that hangs fails instead of all that follow it. Milliseconds; Deno has no such limit */
const LIMIT_MS = long ? 3_600_000 : 600_000;
/** Node keeps here what it made of each module. Hundreds of processes would each remove the types of the same sources otherwise */
const COMPILE_CACHE = fileURLToPath(new URL("../node_modules/.cache/compile/", import.meta.url));
/** Only of the whole suite: a file that is named says which of its tests let an error go by */
const LIGHT_HOOKS = named.length > 0 ? [] : [`--import=${new URL("light_hooks.js", import.meta.url).href}`];

function filesToRun(): readonly string[] {
  if (named.length > 0) return named;
  if (long) return globSync("test/**/*.long.ts").sort();
  return groupTestFiles(globSync("test/**/*.test.ts").sort(), groups);
}

const run = (command: readonly string[]): number => {
  const [program = "", ...rest] = command;
  const { status, error } = spawnSync(program, rest, {
    stdio: "inherit",
    env: { ...process.env, DENO_JOBS: WIDTH.deno, NODE_COMPILE_CACHE: COMPILE_CACHE },
  });
  if (error !== undefined) console.error(`Cannot run "${program}": ${error.message}`);
  return status ?? 1;
};

for (const path of missing) console.error(`Cannot run "${path}": no file has this path`);
let failed = missing.length > 0;
const runsOn = (runtime: "node" | "deno") =>
  missing.length === 0 && (runtimes.length === 0 || runtimes.includes(runtime));
if (runsOn("node")) {
  console.log(`Tests on Node ${process.versions.node}`);
  failed = run([
    process.execPath,
    ...LIGHT_HOOKS,
    "--test",
    "--test-reporter=spec",
    `--test-concurrency=${WIDTH.node}`,
    `--test-timeout=${LIMIT_MS}`,
    ...files,
  ]) !== 0;
}
if (runsOn("deno")) {
  const probe = spawnSync(denoCommand[0], [...denoCommand.slice(1), "--version"], { encoding: "utf8" });
  if (probe.status === 0) {
    console.log(`Tests on ${probe.stdout.split("\n")[0]}`);
    failed = run([...denoCommand, "test", "--allow-all", "--no-check", "--quiet", "--parallel", ...files]) !== 0 ||
      failed;
  } else if (runtimes.includes("deno")) {
    console.error(`Cannot run Deno through npm:\n${probe.stderr}`);
    failed = true;
  } else {
    console.log("Tests on Deno: skipped, since npm could not provide it on this machine");
  }
}
rmSync(groups, { recursive: true, force: true });
process.exitCode = failed ? 1 : 0;
