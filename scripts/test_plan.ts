/**
 * Plans a run of the tests: which files run on which runtime, which files share a process, and in which order the processes begin.
 *
 * A process for each file takes longer than the tests of most files, so files share one. Files that set or measure what a whole process
 * has run alone. Files that start processes share none with the others: Node copies the page tables of its process for each start, which takes
 * 0.6 ms of a processor in a small one and 10 ms in one of 400 MB. The process with the longest time begins first, on whichever runtime, so
 * that no processor waits for a last one at the end. Only those that wait for the package, which is built meanwhile, let as many others go
 * before them as run at once.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { importsOf } from "../test/support/source_files.ts";

export type Runtime = "node" | "deno";

/** Test files by the runtime that runs them, as paths relative to the project's folder. */
export type TestFiles = Readonly<Record<Runtime, readonly string[]>>;

/** Files that one process loads. */
export interface TestProcess {
  readonly runtime: Runtime;
  readonly files: readonly string[];
  /** Sum of the remembered times of its files */
  readonly seconds: number;
}

/** Seconds that the tests of a file took, by its path. */
export type TestTimes = ReadonlyMap<string, number>;

/** Processes at the same time: many wait for other processes. */
export const WIDTH = 4;
/** Hooks around each test of a process, changes of its environment, and looks at its memory and at what it has run */
const WHOLE_PROCESS =
  /^(?:before|beforeEach|afterEach)\(|assign\(process\.env, |process\.env\[[^\]]*\] = |startPreciseCoverage|memoryUsage|memoryOf|browser_bench/m;
/**
 * Bounds of a process that files share, in seconds: each start costs a second of a processor, in which everything is loaded and compiled again,
 * and the memory of a process grows with its files.
 */
const [LEAST_SECONDS, MOST_SECONDS] = [8, 60];
/** Time to load a file, which the remembered times leave out. Seconds */
const LOAD_SECONDS = 0.05;
/** Time of a file that nobody has measured. Most take less. Seconds */
const UNKNOWN_SECONDS = 1;
/** Imports of types, and on first use */
const TYPES_OR_LATER = /^(?:import|export) type [^;]*;|\bimport\(.*/gm;
const OF_TESTS = /[\\/]test[\\/].*\.ts$/;
/** Module that waits for the package as it is loaded */
const STARTS_PROGRAM = resolve("test/support/gateway_process.ts");
const STARTS_PROCESSES = /^import (?!type ).*"node:child_process"/m;
/** Tests of sources that start processes */
const OF_PROCESSES = /^test[\\/](?:system|tools)[\\/](?:git|process)[\\/]/;
const LOAD_GROUP = new URL("../test/support/load_group.ts", import.meta.url).href;
const RUN_ON_DENO = new URL("run_on_deno.ts", import.meta.url).href;

/**
 * Plans the processes of a run, the longest first. Each takes its share of what is left, so that the last ones are short, and no processor
 * waits for one at the end.
 */
export function planTests(files: TestFiles, times: TestTimes): readonly TestProcess[] {
  const takes = (file: string) => LOAD_SECONDS + (times.get(file.replaceAll("\\", "/")) ?? UNKNOWN_SECONDS);
  const all = [...files.deno, ...files.node];
  const awaiting = new Set(all.filter(leadsTo((path) => path === STARTS_PROGRAM)));
  const starts = leadsTo((_, text) => STARTS_PROCESSES.test(text));
  // Deno copies nothing
  const isStarting = (runtime: Runtime, file: string) =>
    runtime === "node" && (OF_PROCESSES.test(file) || starts(file));
  const processes: TestProcess[] = [];
  let left = all.reduce((sum, file) => sum + takes(file), 0);
  // Deno compiles the same for longer, and has few files
  for (const runtime of ["deno", "node"] as const) {
    const longestFirst = files[runtime].toSorted((one, other) => takes(other) - takes(one));
    const add = (own: readonly string[]) => {
      const seconds = own.reduce((sum, file) => sum + takes(file), 0);
      processes.push({ runtime, files: own, seconds });
      left -= seconds;
    };
    for (const file of longestFirst.filter(runsAlone)) add([file]);
    const together = longestFirst.filter((file) => !runsAlone(file));
    const kindOf = (file: string) => awaiting.has(file) ? "awaits" : isStarting(runtime, file) ? "starts" : "neither";
    for (const kind of ["awaits", "starts", "neither"]) {
      let rest = together.filter((file) => kindOf(file) === kind);
      while (rest.length > 0) {
        const shared = fill(rest, takes, Math.min(MOST_SECONDS, Math.max(LEAST_SECONDS, left / WIDTH)));
        add(shared);
        rest = rest.filter((file) => !shared.includes(file));
      }
    }
  }
  processes.sort((one, other) => other.seconds - one.seconds);
  const first = processes.filter((one) => !one.files.some((file) => awaiting.has(file))).slice(0, WIDTH);
  return [...first, ...processes.filter((one) => !first.includes(one))];
}

/** Takes the longest file, then each that still fits. @param files the longest first */
function fill(files: readonly string[], takes: (file: string) => number, maxSeconds: number): readonly string[] {
  let sum = 0;
  return files.filter((file, index) => {
    const fits = index === 0 || sum + takes(file) <= maxSeconds;
    if (fits) sum += takes(file);
    return fits;
  });
}

/**
 * Returns a function that tells whether a file is such a module, or one of the tests' that it imports is.
 * @param text without imports of types and on first use
 */
function leadsTo(isSuch: (path: string, text: string) => boolean): (file: string) => boolean {
  const known = new Map<string, boolean>();
  const leads = (path: string): boolean => {
    const answer = known.get(path);
    if (answer !== undefined || !existsSync(path)) return answer ?? false;
    // A circle of imports ends here
    known.set(path, false);
    const text = readFileSync(path, "utf8").replaceAll(TYPES_OR_LATER, "");
    const found = isSuch(path, text) ||
      importsOf(text).map((name) => resolve(dirname(path), name)).some((next) => OF_TESTS.test(next) && leads(next));
    known.set(path, found);
    return found;
  };
  return (file) => leads(resolve(file));
}

/**
 * Writes a file for each process, which Node's runner takes as a test file. Node starts them in the order of their names.
 * @returns their paths in that order
 */
export function writeTestProcesses(processes: readonly TestProcess[], folder: string): readonly string[] {
  return processes.map(({ runtime, files }, index) => {
    const [first = ""] = files;
    const what = files.length === 1 ? first.replaceAll(/\W+/g, "_").replace(/_(?:test|system|long)_ts$/, "") : "group";
    const path = join(folder, `${String(index + 1).padStart(3, "0")}_${runtime}_${what}.test.mjs`);
    if (runtime === "node") writeFileSync(path, loaderOf(files));
    else {
      const loaded = path.replace(/\.test\.mjs$/, ".mjs");
      writeFileSync(loaded, loaderOf(files));
      const name = files.length === 1 ? first : `${first} and ${files.length - 1} more`;
      const values = [loaded, name].map((value) => JSON.stringify(value)).join(", ");
      writeFileSync(path, `import { runOnDeno } from "${RUN_ON_DENO}";\nrunOnDeno(${values});\n`);
    }
    return path;
  });
}

function loaderOf(files: readonly string[]): string {
  const urls = files.map((file) => pathToFileURL(resolve(file)).href);
  if (urls.length === 1) return `import "${urls[0]}";\n`;
  return `import { loadGroup } from "${LOAD_GROUP}";\nawait loadGroup(${JSON.stringify(urls, null, 2)});\n`;
}

function runsAlone(file: string): boolean {
  return WHOLE_PROCESS.test(readFileSync(file, "utf8"));
}

/**
 * Returns the times by which a run is planned: those of this machine, in the measure of those that come with the project. A machine that is
 * slower, or was busy, would else split the same files among ever more processes, each of which takes long to start.
 */
export function timesOfMachine(project: TestTimes, machine: TestTimes): TestTimes {
  const known = [...machine.keys()].filter((file) => project.has(file));
  const sumOf = (times: TestTimes) => known.reduce((sum, file) => sum + (times.get(file) ?? 0), 0);
  const factor = known.length === 0 ? 1 : sumOf(project) / Math.max(sumOf(machine), 1);
  return new Map([...project, ...[...machine].map(([file, seconds]) => [file, seconds * factor] as const)]);
}

/** Reads files of times, as `remember_times.js` writes them. A later file counts more; one that is not there has no times. */
export function readTimes(paths: readonly string[]): TestTimes {
  const texts = paths.filter((path) => existsSync(path)).map((path) => readFileSync(path, "utf8"));
  return new Map(texts.flatMap((text) => Object.entries(JSON.parse(text) as Record<string, number>)));
}
