/**
 * Runs the tests on Node and on Deno: `node scripts/test.ts [node|deno] [--long] [files...]`.
 *
 * Deno comes through npm at the version of deno.ts; where it cannot be had its half is skipped with a printed reason.
 * Without names it runs all files, many of them in groups (test_groups.ts), with the package that it builds first as the program of the
 * processes that tests start. A named file has a process of its own, and starts the program from its source.
 * The exit code is 0 when every runtime that ran has passed. What failed on Node is listed once more at the end, behind the tests on
 * Deno. A file that is not there is refused, and nothing runs: Node would leave it out without a word.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, globSync, mkdirSync, readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { buildPackage } from "../test/support/build_package.ts";
import { denoCommand } from "./deno.ts";
import { makeTemporaryFolder } from "./temporary_files.ts";
import { groupTestFiles } from "./test_groups.ts";

const words = process.argv.slice(2);
const long = words.includes("--long");
const runtimes = words.filter((word) => word === "node" || word === "deno");
const named = words.filter((word) => !word.startsWith("--") && !runtimes.some((runtime) => runtime === word));
const missing = named.filter((path) => globSync(path).length === 0);
/** Names the program of started processes; empty where that is the source */
const packageEnvironment: Readonly<Record<string, string>> = named.length > 0 || long
  ? {}
  : { TEST_PACKAGE: buildPackage() };
/** Holds what the tests keep on the disk, and the files that stand for groups of test files */
const folder = makeTemporaryFolder({ TMPDIR: process.env["TMPDIR"] });
const files = filesToRun();

/** Files that run at the same time: many wait for other processes. On Deno they are threads of one process, which share more. */
const WIDTH = { node: "4", deno: "3" };
/** Nothing takes so long: a test that hangs fails instead of all that follow it. Milliseconds; Deno has no such limit */
const LIMIT_MS = long ? 3_600_000 : 600_000;
/** Several times what all files take on one runtime: the runner is ended then, and Node's names the files that still ran. Milliseconds */
const RUN_LIMIT_MS = long ? undefined : 30 * 60_000;
/** Node keeps here what it made of each module. Hundreds of processes would each remove the types of the same sources otherwise */
const COMPILE_CACHE = fileURLToPath(new URL("../node_modules/.cache/compile/", import.meta.url));
const END_LEAKY_FILES = `--import=${new URL("end_leaky_files.js", import.meta.url).href}`;
const FAILED_TESTS = new URL("failed_tests.js", import.meta.url).href;
const failedOnNode = join(folder, "failed_on_node");
/** Only of the whole suite: a file that is named says which of its tests let an error go by */
const LIGHT_HOOKS = named.length > 0 ? [] : [`--import=${new URL("light_hooks.js", import.meta.url).href}`];

function filesToRun(): readonly string[] {
  if (named.length > 0) return named;
  if (long) return globSync("test/**/*.long.ts").sort();
  const groups = join(folder, "groups");
  mkdirSync(groups);
  return groupTestFiles(globSync("test/**/*.test.ts").sort(), groups);
}

/** Runtime that works now. */
let child: ChildProcess | undefined = undefined;
/** True: somebody ended the run, and what is left does not begin. */
let stopped = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    stopped = true;
    child?.kill(signal);
  });
}

async function run(command: readonly string[]): Promise<number> {
  const [program = "", ...rest] = command;
  child = spawn(program, rest, {
    stdio: "inherit",
    env: {
      ...process.env,
      ...packageEnvironment,
      TMPDIR: folder,
      DENO_JOBS: WIDTH.deno,
      NODE_COMPILE_CACHE: COMPILE_CACHE,
    },
  });
  const limit = RUN_LIMIT_MS === undefined ? undefined : setTimeout(() => {
    console.error(`Tests: ended, since they were not over after ${RUN_LIMIT_MS / 60_000} minutes`);
    child?.kill("SIGTERM");
  }, RUN_LIMIT_MS);
  try {
    const [status] = await once(child, "exit");
    return typeof status === "number" ? status : 1;
  } catch (error) {
    console.error(`Cannot run "${program}": ${error instanceof Error ? error.message : String(error)}`);
    return 1;
  } finally {
    clearTimeout(limit);
  }
}

for (const path of missing) console.error(`Cannot run "${path}": no file has this path`);
let failed = missing.length > 0;
let nodeStatus = 0;
const runsOn = (runtime: "node" | "deno") =>
  missing.length === 0 && (runtimes.length === 0 || runtimes.includes(runtime));
if (runsOn("node")) {
  console.log(`Tests on Node ${process.versions.node}`);
  nodeStatus = await run([
    process.execPath,
    END_LEAKY_FILES,
    ...LIGHT_HOOKS,
    "--test",
    "--test-reporter=spec",
    "--test-reporter-destination=stdout",
    `--test-reporter=${FAILED_TESTS}`,
    `--test-reporter-destination=${failedOnNode}`,
    `--test-concurrency=${WIDTH.node}`,
    `--test-timeout=${LIMIT_MS}`,
    ...files,
  ]);
  failed = nodeStatus !== 0;
}
if (runsOn("deno") && !stopped) {
  const probe = spawnSync(denoCommand[0], [...denoCommand.slice(1), "--version"], { encoding: "utf8" });
  if (probe.status === 0) {
    console.log(`Tests on ${probe.stdout.split("\n")[0]}`);
    failed =
      await run([...denoCommand, "test", "--allow-all", "--no-check", "--quiet", "--parallel", ...files]) !== 0 ||
      failed;
  } else if (runtimes.includes("deno")) {
    console.error(`Cannot run Deno through npm:\n${probe.stderr}`);
    failed = true;
  } else {
    console.log("Tests on Deno: skipped, since npm could not provide it on this machine");
  }
}
// A runner that could not be started has written no list
if (nodeStatus !== 0 && runsOn("deno") && existsSync(failedOnNode)) {
  console.error(`\nTests failed on Node (exit code ${nodeStatus}):\n${readFileSync(failedOnNode, "utf8")}`);
}
// Servers that tests have left to end by themselves remove their own folders at this moment: rmSync would leave the rest, and say nothing
await rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
process.exitCode = failed || stopped ? 1 : 0;
