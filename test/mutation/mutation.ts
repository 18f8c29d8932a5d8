/**
 * Measures whether the tests would notice a slip of the hand:
 * `node test/mutation/mutation.ts [--minutes 30] [--seed 1] [--jobs 1] [paths...]`.
 *
 * Small changes of the sources, called mutants, are tried one after the other, in an order that the seed decides, until the time is
 * up. Each is made in a copy of the project, never in the checkout, and the test files nearest to it by imports and words run until one
 * fails; when none does, more of them are asked. A mutant whose test hangs counts as noticed. Prints every survivor at once, and a
 * table at the end. Paths narrow it to folders or files. The exit code is 0 also with survivors, and 130 when it was interrupted.
 */
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { symlinkSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { applyMutant, describeMutant, findMutants, type Mutant } from "./find_mutants.ts";
import { createNearTests } from "./near_tests.ts";
import { hasContainment, runTest } from "./run_test.ts";
import { orderOf } from "./order_of.ts";
import { scoreTable, type Verdict } from "./score.ts";

const FOLDERS = [
  ...["lib/guard", "lib/tools/runtime", "lib/system", "lib/access", "lib/storage", "lib/runs", "lib/providers"],
  "handlers/middleware",
];
/** Opens, deletes and kills by itself: without containment its mutants would do so anywhere. */
const DANGEROUS = "lib/system";
/** Tests that a mutant meets before it has survived, from the nearest on: most are noticed by the first or second. */
const MOST_TESTS = 8;
/** A test that takes longer by itself is not asked. Milliseconds */
const SLOW_MS = 20_000;
/** Other work makes a test slower than it was before. Milliseconds */
const LEAST_PATIENCE_MS = 15_000;
const PATIENCE = 5;
const INTERRUPTED = 130;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    minutes: { type: "string", default: "30" },
    seed: { type: "string", default: "1" },
    jobs: { type: "string", default: String(Math.max(1, Math.floor(availableParallelism() / 2))) },
  },
});
const [minutes = 0, seed = 0, jobs = 0] = [values.minutes, values.seed, values.jobs].map(Number);
if (!(minutes > 0) || !Number.isSafeInteger(seed) || !Number.isSafeInteger(jobs) || jobs < 1) {
  console.error(
    "Cannot use the options: --minutes is a number above 0, --seed a whole number, --jobs one of 1 or more",
  );
  process.exit(2);
}

const root = process.cwd();
const modules = realpathSync(join(root, "node_modules"));
const isContained = hasContainment();
const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], { encoding: "utf8" })
  .split("\n").filter((file) => file !== "" && existsSync(join(root, file)));
const places = positionals.length === 0 ? FOLDERS : positionals.map((path) => path.replace(/\/+$/, ""));
const folders = places.filter((place) => isContained || !place.startsWith(DANGEROUS));
if (folders.length < places.length) {
  console.log(
    `${DANGEROUS} is left out: its mutants could delete files and kill processes, and bubblewrap is not here`,
  );
}

const copies = mkdtempSync(join(tmpdir(), "postern-mutation-"));
process.on("exit", () => rmSync(copies, { recursive: true, force: true }));
/** The project as it is now: what somebody changes in the checkout meanwhile is of no concern */
const pristine = join(copies, "pristine");
copyProject(root, pristine);
const source = (file: string) => readFileSync(join(pristine, file), "utf8");
const mutants = new Map(folders.map((folder) => {
  const within = files.filter((file) => file.endsWith(".ts") && (file === folder || file.startsWith(`${folder}/`)));
  return [folder, within.flatMap((file) => findMutants(file, source(file)))] as const;
}));
const total = Object.fromEntries([...mutants].map(([folder, found]) => [folder, found.length]));
const queue = orderOf(mutants, seed).values();
const near = createNearTests(pristine, files.filter((file) => file.endsWith(".ts")));

const stop = new AbortController();
let isInterrupted = false;
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    isInterrupted = true;
    stop.abort();
  });
}
const timer = setTimeout(() => stop.abort(), minutes * 60_000);
const verdicts: Verdict[] = [];
console.log(
  `${Object.values(total).reduce((a, b) => a + b, 0)} mutants, ${minutes} min, seed ${seed}, ${jobs} at a time`,
);
await Promise.all(Array.from({ length: jobs }, (_, job) => work(join(copies, String(job)))));
clearTimeout(timer);
console.log(`\n${scoreTable(verdicts, total)}`);
process.exit(isInterrupted ? INTERRUPTED : 0);

function copyProject(from: string, to: string): void {
  for (const file of files) {
    mkdirSync(dirname(join(to, file)), { recursive: true });
    copyFileSync(join(from, file), join(to, file));
  }
}

/** Tries mutants in a copy of the project of its own, until there are none or the time is up. */
async function work(tree: string): Promise<void> {
  copyProject(pristine, tree);
  symlinkSync(modules, join(tree, "node_modules"));
  const run = (test: string, timeoutMs: number) =>
    runTest(test, { tree, modules, timeoutMs, signal: stop.signal, isContained });
  /** Milliseconds that each test took without a mutant, or with one that it did not notice; "none" for one that cannot be asked */
  const times = new Map<string, number | "none">();
  for (const { folder, mutant } of queue) {
    const end = await tryMutant(mutant, { tree, run, times });
    if (stop.signal.aborted) return;
    if (end === undefined) continue;
    verdicts.push({ folder, end });
    const { file, line, column } = mutant;
    if (end === "survived") console.log(`survived ${file}:${line}:${column} ${describeMutant(source(file), mutant)}`);
  }
}

interface Bench {
  readonly tree: string;
  readonly run: (test: string, timeoutMs: number) => ReturnType<typeof runTest>;
  readonly times: Map<string, number | "none">;
}

/** @returns undefined for a mutant that is no program any more, and for one that the end of the time cut off */
async function tryMutant(mutant: Mutant, { tree, run, times }: Bench): Promise<Verdict["end"] | undefined> {
  const place = join(tree, mutant.file);
  const original = source(mutant.file);
  let mutated: string;
  try {
    mutated = applyMutant(original, mutant);
  } catch {
    return undefined;
  }
  /** Runs one test on a text of the file. @returns how the test ended, and after how many ms */
  const ask = async (test: string, text: string, timeoutMs: number) => {
    writeFileSync(place, text);
    const started = performance.now();
    const end = await run(test, timeoutMs).finally(() => writeFileSync(place, original));
    return { end, ms: performance.now() - started };
  };
  let asked = 0;
  for (const test of near.of(mutant.file)) {
    const before = times.get(test);
    if (before === "none") continue;
    const patience = before === undefined ? SLOW_MS : Math.max(LEAST_PATIENCE_MS, before * PATIENCE);
    const { end, ms } = await ask(test, mutated, patience);
    if (end === "passed") times.set(test, before ?? ms);
    else if (before === undefined) {
      // Perhaps it cannot do otherwise, here or at all
      const plain = await ask(test, original, SLOW_MS);
      times.set(test, plain.end === "passed" ? plain.ms : "none");
      if (plain.end !== "passed") continue;
    }
    if (stop.signal.aborted) return undefined;
    if (end !== "passed") return end === "failed" ? "killed" : "timed_out";
    if (++asked === MOST_TESTS) break;
  }
  return "survived";
}
