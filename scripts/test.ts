/**
 * Runs tests: `node scripts/test.ts [node|deno] [--system|--long] [files...]`.
 *
 * - Without words: every `*.test.ts` on Node, and those on Deno that reach the runtime (deno_files.ts).
 * - `node`, `deno`: every `*.test.ts` and `*.system.ts` on this runtime.
 * - `--system`: every `*.system.ts`, whose tests start many processes, servers or browsers, or take longer than ten seconds. On Node, unless a
 *   runtime is named.
 * - `--long`: every `*.long.ts`: big counts and soaks. On both runtimes, unless one is named.
 *
 * Node's runner starts the processes of both runtimes, the longest first (test_plan.ts). Deno comes through npm at the version of deno.ts; where it
 * cannot be had, its files are skipped with a printed reason. Named and long files have a process each, and start the program from its source; all
 * others share processes, and start the package that is built meanwhile. The exit code is 0 when every test has passed. What failed is listed
 * once more at the end. A file that is not there is refused, and nothing runs: Node would leave it out without a word.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, globSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { buildPackage, packageFolder } from "../test/support/build_package.ts";
import { NO_POSTGRES, SHARED_SERVER, startPostgres } from "../test/support/postgres_server.ts";
import { denoCommand } from "./deno.ts";
import { chooseForDeno } from "./deno_files.ts";
import { DENO_PROGRAM } from "./run_on_deno.ts";
import { makeTemporaryFolder } from "./temporary_files.ts";
import {
  planTests,
  readTimes,
  type Runtime,
  type TestFiles,
  type TestProcess,
  timesOfMachine,
  WIDTH,
  writeTestProcesses,
} from "./test_plan.ts";

const words = process.argv.slice(2);
const named = words.filter((word) => !word.startsWith("--") && word !== "node" && word !== "deno");
const runtimes = (["node", "deno"] as const).filter((runtime) => words.includes(runtime));
const long = words.includes("--long");
const missing = named.filter((path) => globSync(path).length === 0);

/**
 * V8 gives new objects 1 MiB at first, and collects them each time it is full. Tests make many that last longer than that: with 16 MiB from
 * the begin on a process takes a tenth less processor time.
 */
const V8_OPTION = "--min-semi-space-size=16";
/** Nothing takes so long: a test that hangs fails instead of all that follow it. Milliseconds */
const LIMIT_MS = long ? 3_600_000 : 900_000;
/** Several times what all files take: the runner is ended then, and names the files that still ran. Milliseconds */
const RUN_LIMIT_MS = long ? undefined : 30 * 60_000;
const CACHE = fileURLToPath(new URL("../node_modules/.cache/", import.meta.url));
/** Times of the last run on this machine, which go before those that come with the project */
const LAST_TIMES = join(CACHE, "test_times.json");
const PROJECT_TIMES = fileURLToPath(new URL("test_times.json", import.meta.url));
/** Aborts when somebody ends the run: what has begun is ended, and nothing begins */
const stopped = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => stopped.abort(signal));
/** The runs whose processes share what takes long to make */
const whole = named.length === 0 && !long;
const addressOf = (script: string) => new URL(script, import.meta.url).href;

function filesToRun(): TestFiles {
  const [quick, system, longest] = ["test", "system", "long"].map((kind) => globSync(`test/**/*.${kind}.ts`).sort());
  const onBoth = (files: readonly string[] = []) => ({
    node: runsOn("node") ? files : [],
    deno: runsOn("deno") ? files : [],
  });
  if (named.length > 0) return onBoth(named);
  if (long) return onBoth(longest);
  if (runtimes.length > 0) return onBoth([...words.includes("--system") ? [] : quick ?? [], ...system ?? []]);
  if (words.includes("--system")) return { node: system ?? [], deno: [] };
  return { node: quick ?? [], deno: chooseForDeno(quick ?? []) };
}

function runsOn(runtime: Runtime): boolean {
  return runtimes.length === 0 || runtimes.includes(runtime);
}

/** Returns Deno's own program: npm takes half a second to find it, each time. Undefined where npm cannot provide it. */
function findDeno(): string | undefined {
  const [npm, ...options] = denoCommand;
  const found = spawnSync(npm, [...options, "eval", "console.log(Deno.execPath())"], { encoding: "utf8" });
  if (found.status === 0) return found.stdout.trim();
  if (runtimes.includes("deno")) throw new Error(`Cannot run Deno through npm:\n${found.stderr}`);
  console.log("Tests on Deno: skipped, since npm could not provide it on this machine");
  return undefined;
}

/** Plans the run. A file that is named, or long, has a process of its own. */
function planProcesses(files: TestFiles): readonly TestProcess[] {
  if (whole) return planTests(files, timesOfMachine(readTimes([PROJECT_TIMES]), readTimes([LAST_TIMES])));
  return (["node", "deno"] as const).flatMap((runtime) =>
    files[runtime].map((file) => ({ runtime, files: [file], seconds: 0 }))
  );
}

/** Runs Node's runner over the planned processes. @returns its exit code */
async function run(files: TestFiles, folder: string): Promise<number> {
  const deno = files.deno.length > 0 ? findDeno() : undefined;
  const processes = planProcesses({ node: files.node, deno: deno === undefined ? [] : files.deno });
  const tell = (runtime: Runtime) => {
    const those = processes.filter((one) => one.runtime === runtime);
    return `${those.flatMap((one) => one.files).length} files in ${those.length} processes`;
  };
  console.log(`Tests on Node ${process.versions.node}: ${tell("node")}; on Deno: ${tell("deno")}`);
  mkdirSync(join(folder, "processes"));
  // Tests that start the program wait until its folder has its name; the others begin meanwhile
  if (whole) {
    buildPackage().catch((error: unknown) => {
      console.error(error);
      stopped.abort("SIGTERM");
    });
  }
  const server = !whole || NO_POSTGRES !== false ? undefined : await startPostgres();
  try {
    const shared = {
      // Names the program of started processes; without it that is the source
      ...whole ? { TEST_PACKAGE: packageFolder() } : {},
      // Each process would start a server otherwise
      ...server === undefined ? {} : { [SHARED_SERVER]: server.facts() },
    };
    if (stopped.signal.aborted) return 1;
    const child = spawn(process.execPath, [
      ...whole ? [V8_OPTION] : [],
      // Only of the whole suite: a file that is named says which of its tests let an error go by
      ...named.length > 0 ? [] : [`--import=${addressOf("light_hooks.js")}`],
      `--import=${addressOf("end_leaky_files.js")}`,
      "--test",
      "--test-reporter=spec",
      "--test-reporter-destination=stdout",
      `--test-reporter=${addressOf("failed_tests.js")}`,
      `--test-reporter-destination=${join(folder, "failed")}`,
      `--test-reporter=${addressOf("remember_times.js")}`,
      `--test-reporter-destination=${join(folder, "times.json")}`,
      `--test-concurrency=${WIDTH}`,
      `--test-timeout=${LIMIT_MS}`,
      ...writeTestProcesses(processes, join(folder, "processes")),
    ], {
      stdio: "inherit",
      env: {
        ...process.env,
        ...shared,
        ...deno === undefined ? {} : { [DENO_PROGRAM]: deno },
        // Node keeps there what it made of each module. Hundreds of processes would each remove the types of the same sources otherwise
        NODE_COMPILE_CACHE: join(CACHE, "compile"),
      },
    });
    return await endOf(child);
  } finally {
    await server?.end();
  }
}

/** Waits for the runner, which ends when somebody ends this process, or when it takes too long. @returns its exit code */
async function endOf(child: ChildProcess): Promise<number> {
  stopped.signal.addEventListener("abort", () => child.kill(stopped.signal.reason as NodeJS.Signals));
  const limit = RUN_LIMIT_MS === undefined ? undefined : setTimeout(() => {
    console.error(`Tests: ended, since they were not over after ${RUN_LIMIT_MS / 60_000} minutes`);
    child.kill("SIGTERM");
  }, RUN_LIMIT_MS);
  try {
    const [status] = await once(child, "exit");
    return typeof status === "number" ? status : 1;
  } finally {
    clearTimeout(limit);
  }
}

/** Keeps the times of this run, beside those of files that did not run. */
function rememberTimes(folder: string): void {
  const times = readTimes([LAST_TIMES, join(folder, "times.json")]);
  const fresh = `${LAST_TIMES}.${process.pid}`;
  writeFileSync(fresh, `${JSON.stringify(Object.fromEntries([...times].sort()), null, 2)}\n`);
  // A file that is cut off would end every later run
  renameSync(fresh, LAST_TIMES);
}

/** Lists once more what failed: thousands of lines lie between. A runner that could not be started has written no list. */
function listFailures(status: number, folder: string): void {
  const failed = join(folder, "failed");
  if (existsSync(failed)) console.error(`\nTests failed (exit code ${status}):\n${readFileSync(failed, "utf8")}`);
}

async function main(): Promise<number> {
  for (const path of missing) console.error(`Cannot run "${path}": no file has this path`);
  if (missing.length > 0) return 1;
  /** Holds what the tests keep on the disk, and the files that stand for processes */
  const folder = makeTemporaryFolder({ TMPDIR: process.env["TMPDIR"] });
  process.env["TMPDIR"] = folder;
  try {
    const status = await run(filesToRun(), folder);
    if (status !== 0) listFailures(status, folder);
    else if (whole && runtimes.length === 0) rememberTimes(folder);
    return status;
  } finally {
    // Servers that tests have left to end by themselves remove their own folders at this moment: rmSync would leave the rest, and say nothing
    await rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

process.exitCode = await main();
