/**
 * Measures the time of a start and the memory of an idle gateway, beside a bare `node:http` server: `node test/bench/start.bench.ts`. Builds the
 * package, starts both in turn with a fresh home, and prints medians and minima of the time from spawn to the first 200 of /health,
 * of the memory two seconds later, and of `postern --help` beside `node -e 0`. Exits with 1 where a limit is passed.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { systemClock } from "../../lib/base/clock.ts";
import { buildPackage } from "../support/build_package.ts";
import { loadsUntilHealth } from "../support/loads_until_health.ts";
import { removeFolder } from "../support/remove_folder.ts";
import { median } from "./median.ts";
import { HAS_MEMORY, memoryOf, startServer } from "./started_server.ts";

const ROUNDS = 9;
const IDLE_MS = 2000;
const MAX_START_RATIO = 2.5;
const MAX_HELP_RATIO = 2;
const MAX_IDLE_MIB = 100;
const OFFLINE = { POSTERN__PROVIDER__KIND: "offline" };

const BARE = `import { createServer } from "node:http";
createServer(({ url }, response) => {
  response.writeHead(url === "/health" ? 200 : 404, { "content-type": "application/json" }).end('{"status":"ok"}');
}).listen(Number(process.argv[2]), "127.0.0.1");
`;

interface Start {
  readonly startMs: number;
  /** MiB after IDLE_MS; NaN where the system does not tell */
  readonly rss: number;
  readonly pss: number;
}

let missed = false;
const built = await buildPackage();
const folder = mkdtempSync(join(tmpdir(), "postern-bench-"));
try {
  const main = join(built, "cli/main.js");
  const bare = join(folder, "bare.mjs");
  writeFileSync(bare, BARE);
  const gateway = (port: number) => [process.execPath, main, "gateway", "--port", String(port)];
  const server = (port: number) => [process.execPath, bare, String(port)];

  const load = () => `${loadavg()[0]?.toFixed(1)} on ${availableParallelism()} processors`;
  console.log(`Load of the machine before: ${load()}`);
  // The code that V8 compiles is kept for later starts, as between any two on one machine
  console.log(`The very first start: ${(await start(gateway)).startMs.toFixed(0)} ms`);
  const ours: Start[] = [];
  const theirs: Start[] = [];
  const help: number[] = [];
  const nothing: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    ours.push(await start(gateway));
    theirs.push(await start(server));
    help.push(run([main, "--help"]));
    nothing.push(run(["-e", "0"]));
  }

  console.log(`Medians of ${ROUNDS} rounds`.padEnd(36) + "  postern   (least)      bare   (least)  ratio (least)");
  const started = show("first 200 of /health, ms", ours.map((one) => one.startMs), theirs.map((one) => one.startMs));
  const helped = show("--help beside node -e 0, ms", help, nothing);
  hold("a start beside bare", started.ratio, { max: MAX_START_RATIO, unit: "x" });
  hold("--help beside node -e 0", helped.ratio, { max: MAX_HELP_RATIO, unit: "x" });
  if (HAS_MEMORY) {
    show("idle PSS, MiB", ours.map((one) => one.pss), theirs.map((one) => one.pss));
    const idle = show("idle RSS, MiB", ours.map((one) => one.rss), theirs.map((one) => one.rss));
    hold("idle RSS", idle.ours, { max: MAX_IDLE_MIB, unit: " MiB" });
  } else {
    console.log("Idle memory is skipped: this system has no /proc/PID/smaps_rollup");
  }
  const loads = await loadsUntilHealth(main, OFFLINE);
  const own = loads.filter((url) => url.startsWith(pathToFileURL(built).href)).length;
  const packages = loads.filter((url) => url.startsWith("file:")).length - own;
  console.log(`Loaded until /health: ${own} files of postern, ${packages} of packages`);
  console.log(`Load of the machine after: ${load()}`);
} finally {
  await removeFolder(folder);
}
process.exitCode = missed ? 1 : 0;

/** The environment of a measured process: a home of its own, and what earlier ones compiled. */
function environmentOf(home: string): NodeJS.ProcessEnv {
  return { PATH: process.env["PATH"], HOME: home, NODE_COMPILE_CACHE: join(folder, "compiled"), ...OFFLINE };
}

/** Starts a server, lets it idle and ends it. @throws {Error} it does not answer */
async function start(commandOf: (port: number) => readonly string[]): Promise<Start> {
  const home = mkdtempSync(join(folder, "home-"));
  const { child, startMs, end } = await startServer(commandOf, { cwd: home, env: environmentOf(home) });
  try {
    if (HAS_MEMORY) await systemClock.sleep(IDLE_MS);
    return { startMs, ...memoryOf(child.pid) };
  } finally {
    await end();
  }
}

/** Milliseconds until a command of Node's has ended. @throws {Error} it fails */
function run(argv: readonly string[]): number {
  const begun = performance.now();
  const { status, stderr } = spawnSync(process.execPath, argv, { env: environmentOf(folder), encoding: "utf8" });
  if (status !== 0) throw new Error(`Cannot run "${argv.join(" ")}": ${stderr}`);
  return performance.now() - begun;
}

/** Prints a line of the table. @returns our median, and how many times theirs it is */
function show(name: string, ours: readonly number[], theirs: readonly number[]): { ours: number; ratio: number } {
  const cell = (values: readonly number[]) =>
    `${median(values).toFixed(1).padStart(8)} ${`(${Math.min(...values).toFixed(1)})`.padStart(9)}`;
  const ratio = median(ours) / median(theirs);
  const ofLeast = Math.min(...ours) / Math.min(...theirs);
  console.log(`${name.padEnd(36)}${cell(ours)}  ${cell(theirs)}  ${ratio.toFixed(2)}x (${ofLeast.toFixed(2)}x)`);
  return { ours: median(ours), ratio };
}

/** Prints whether a limit is kept; the exit code of the bench tells one that is not. */
function hold(name: string, value: number, { max, unit }: { readonly max: number; readonly unit: string }): void {
  const holds = value <= max;
  missed ||= !holds;
  console.log(`  ${holds ? "holds" : "MISSED"}: ${name}, ${value.toFixed(2)}${unit} of at most ${max}${unit}`);
}
