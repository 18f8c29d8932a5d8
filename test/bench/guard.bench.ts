/**
 * Says whether this tree is slower or larger than a base: `npm run bench:guard`, or `BASE=<commit> npm run bench:guard`. The base is the last git
 * tag unless the environment names a commit. Both builds work side by side, on one processor where the system can pin them, and are judged by
 * the processor time of the same requests. Exits with 1 when a figure grew by more than 5 % beyond its spread, and with 2 when it cannot tell.
 */
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { systemClock } from "../../lib/base/clock.ts";
import { buildPackage } from "../support/build_package.ts";
import { buildBase, chooseBase, git } from "./guard/base.ts";
import { type Figure, LOADED, PLAIN } from "./guard/figures.ts";
import { choosePins, createPairs, type Pair, type WithPair } from "./guard/gateways.ts";
import { exitCodeOf, judge, type Judged, type Round } from "./guard/verdict.ts";
import { median } from "./median.ts";
import { HAS_MEMORY } from "./started_server.ts";

/** After this time nothing new begins, and after the other one the run has failed. Both count without the builds */
const BUDGET_MS = 220_000;
const LIMIT_MS = 236_000;
/** Pairs of fresh gateways before any is loaded for long, and in all */
const FIRST_FRESH_PAIRS = 6;
const FRESH_PAIRS = 10;
const IDLE_MS = 1000;
/** Load of a fresh gateway before its memory is read: by then it has grown to most of what it comes to */
const FRESH_LOAD = { ...PLAIN, maxRequests: 2048, maxMs: 5000 };
const MAX_FRESH_MS = 3000 + IDLE_MS + FRESH_LOAD.maxMs;
/** More than one: V8 compiles one process into faster code than another of the same build */
const LOADED_PAIRS = 3;
const MAX_WARM_UP_REQUESTS = 50_000;
const ROUNDS = 20;
const ROUND_MS = 200;
/** With what a round takes beside its load where other work has the processors too */
const ROUNDS_MS = ROUNDS * ROUND_MS * 1.3;

const WALL = "start of both at once, ms wall";
const START = "start until /health answers, ms CPU";
const IDLE = "idle PSS, MiB";
const AFTER_LOAD = "RSS after load, MiB";
const FRESH = [START, ...(HAS_MEMORY ? [IDLE] : []), AFTER_LOAD];
const rounds = new Map<string, Round[]>([...Object.keys(LOADED), WALL, ...FRESH].map((name) => [name, []]));
let begun = performance.now();

const exitCode = await compare().catch((error: Error) => {
  console.error(error.message);
  return 2;
});
// The process that loads the gateways would keep this one alive
process.exit(exitCode);

/** @returns the exit code */
async function compare(): Promise<number> {
  const base = chooseBase(process.env["BASE"], git);
  const mains = { tree: join(await buildPackage(), "cli/main.js"), base: join(buildBase(base.commit), "cli/main.js") };
  const changed = git("status", "--porcelain") === "" ? "" : " with changes";
  console.log(
    `This tree (${git("rev-parse", "--short", "HEAD")}${changed}) beside ${base.name} (${base.commit.slice(0, 8)}); ` +
      `built in ${seconds()}, which is no part of the time below`,
  );
  begun = performance.now();
  setTimeout(() => {
    console.error(`Cannot measure: the run was not over after ${LIMIT_MS / 1000} s`);
    process.exit(2);
  }, LIMIT_MS);
  const pins = choosePins();
  console.log(
    pins === undefined
      ? "Not pinned, which needs taskset(1) and two processors"
      : `Gateways on processor ${pins.gateways}, clients and model server on ${pins.others}`,
  );
  console.log("Rate limits are off. Both gateways work in turn, 32 requests at a time");
  if (!HAS_MEMORY) console.log(`Skipped: ${IDLE}, since this system has no /proc/PID/smaps_rollup`);
  await measure(await createPairs(mains, pins));
  const judged = showTable();
  console.log(`Measured in ${seconds()}`);
  return exitCodeOf(judged);
}

/** Takes the rounds that each figure has, and then more of those that do not hold, while there is time. */
async function measure(withPair: WithPair): Promise<void> {
  // The first start compiles for all
  await withPair(() => Promise.resolve());
  for (let pair = 0; pair < FIRST_FRESH_PAIRS; pair++) await withPair(measureFresh);
  for (;;) {
    const loaded = Object.entries(LOADED).filter(([name, figure]) =>
      isOpen(name, LOADED_PAIRS * ROUNDS) && isTimeFor(figure)
    );
    if (loaded.length > 0) await withPair((pair) => measureLoaded(pair, loaded));
    const isFreshOpen = FRESH.some((name) => isOpen(name, FRESH_PAIRS)) && isTimeLeft(MAX_FRESH_MS);
    if (isFreshOpen) await withPair(measureFresh);
    else if (loaded.length === 0) return;
  }
}

function isOpen(name: string, count: number): boolean {
  const of = rounds.get(name) ?? [];
  return of.length < count || judge(of).verdict !== "holds";
}

function isTimeLeft(ms: number): boolean {
  return performance.now() - begun + ms < BUDGET_MS;
}

function isTimeFor({ warmUpMs }: Figure): boolean {
  return isTimeLeft(warmUpMs + ROUNDS_MS);
}

async function measureFresh(pair: Pair): Promise<void> {
  rounds.get(START)?.push(await pair.used("cpuMs"));
  rounds.get(WALL)?.push(pair.startMs);
  await systemClock.sleep(IDLE_MS);
  rounds.get(IDLE)?.push(pair.pss());
  await pair.load(FRESH_LOAD);
  rounds.get(AFTER_LOAD)?.push(await pair.used("rss"));
}

async function measureLoaded(pair: Pair, figures: readonly (readonly [string, Figure])[]): Promise<void> {
  for (const [name, figure] of figures) {
    if (!isTimeFor(figure)) continue;
    await pair.load({ ...figure, maxRequests: MAX_WARM_UP_REQUESTS, maxMs: figure.warmUpMs });
    for (let round = 0; round < ROUNDS && isTimeLeft(ROUND_MS); round++) {
      const before = await pair.used("cpuMs");
      const answered = await pair.load({ ...figure, maxRequests: Number.MAX_SAFE_INTEGER, maxMs: ROUND_MS });
      const after = await pair.used("cpuMs");
      const usOf = (side: keyof Round) => (after[side] - before[side]) * 1000 / answered;
      rounds.get(name)?.push({ tree: usOf("tree"), base: usOf("base") });
    }
  }
}

/** Prints a row for each figure. @returns the verdicts that count */
function showTable(): readonly Judged[] {
  const row = (name: string, ...cells: readonly string[]) => {
    const widths = [14, 14, 6, 11, 6, 10];
    console.log(`| ${[name.padEnd(35), ...cells.map((cell, at) => cell.padStart(widths[at] ?? 0))].join(" | ")} |`);
  };
  row("figure", "this tree", "base", "ratio", "95 % within", "rounds", "verdict");
  row("---", ...Array.from({ length: 6 }, () => "---:"));
  return [...rounds].flatMap(([name, of]) => {
    const judged = judge(of);
    const bounds = `${judged.low.toFixed(2)} - ${judged.high.toFixed(2)}`;
    const verdict = name === WALL ? "not judged" : judged.verdict;
    row(name, cellOf(of, "tree"), cellOf(of, "base"), judged.ratio.toFixed(3), bounds, String(of.length), verdict);
    return name === WALL ? [] : [judged];
  });
}

/** Median and median deviation of a side. */
function cellOf(of: readonly Round[], side: keyof Round): string {
  const values = of.map((round) => round[side]);
  const middle = median(values);
  const deviation = median(values.map((value) => Math.abs(value - middle))) / middle;
  return `${middle.toFixed(1)} ±${(deviation * 100).toFixed(0)} %`;
}

function seconds(): string {
  return `${((performance.now() - begun) / 1000).toFixed(0)} s`;
}
