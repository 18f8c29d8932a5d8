/**
 * Plans a run of the tests: which files run on which runtime, which files share a process, and in which order the processes begin.
 *
 * A process for each file takes longer than the tests of most files, so files share one until their remembered times fill it. Files that
 * set or measure what a whole process has run alone. The process with the longest time begins first, on whichever runtime, so that no
 * processor waits for a last one at the end.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

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

/** Files in `test/` itself look at the whole project. */
const WHOLE_PROJECT = /^test\/[^/]+$/;
/** Hooks of a whole file, changes of the environment, and looks at the memory and the open handles of the process */
const WHOLE_PROCESS =
  /^(?:before|after|beforeEach|afterEach)\(|process\.env, |process\.env\[[^\]]*\] = |memoryUsage|open_handles|memoryOf|browser_bench|fetch_bench/m;
/**
 * Time of a process that files share, in seconds: enough that its start does not count, little enough that no processor waits for it at
 * the end. Deno keeps nothing of what it compiled for the next process.
 */
const SHARED_SECONDS: Readonly<Record<Runtime, number>> = { node: 20, deno: 24 };
/** Files of a shared process: each takes some time to load, which the remembered times leave out */
const MAX_SHARED_FILES = 48;
/** Time of a file that nobody has measured. Most take less. Seconds */
const UNKNOWN_SECONDS = 1;
const LOAD_GROUP = new URL("../test/support/load_group.ts", import.meta.url).href;
const RUN_ON_DENO = new URL("run_on_deno.ts", import.meta.url).href;

/** Plans the processes of a run, the longest first. */
export function planTests(files: TestFiles, times: TestTimes): readonly TestProcess[] {
  return (["node", "deno"] as const)
    .flatMap((runtime) =>
      shareProcesses(files[runtime], times, SHARED_SECONDS[runtime]).map((group) => ({ runtime, ...group }))
    )
    .sort((one, other) => other.seconds - one.seconds);
}

/** Puts files together until their times fill a process. Long files come first, each alone once it fills a process by itself. */
function shareProcesses(
  files: readonly string[],
  times: TestTimes,
  maxSeconds: number,
): readonly Omit<TestProcess, "runtime">[] {
  const secondsOf = (file: string) => times.get(file.replaceAll("\\", "/")) ?? UNKNOWN_SECONDS;
  const processes: { files: string[]; seconds: number; alone: boolean }[] = [];
  for (const file of files.toSorted((one, other) => secondsOf(other) - secondsOf(one))) {
    const alone = runsAlone(file);
    const seconds = secondsOf(file);
    const shared = alone
      ? undefined
      : processes.find((one) =>
        !one.alone && one.files.length < MAX_SHARED_FILES && one.seconds + seconds <= maxSeconds
      );
    if (shared === undefined) processes.push({ files: [file], seconds, alone });
    else {
      shared.files.push(file);
      shared.seconds += seconds;
    }
  }
  return processes.map(({ files, seconds }) => ({ files, seconds }));
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
  return WHOLE_PROJECT.test(file.replaceAll("\\", "/")) || WHOLE_PROCESS.test(readFileSync(file, "utf8"));
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
