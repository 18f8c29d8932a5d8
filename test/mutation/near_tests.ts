import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** Finds the test files that a source file can be seen from. */
export interface NearTests {
  /** Test files that import the file, directly or through others, the likeliest first. Paths from the project's root, with `/` */
  of(file: string): readonly string[];
}

/** Letters by which words are compared: agent and agents, delivery and deliveries are one. */
const STEM = 5;

/** Imports that run something: `import type` is blanked out before. */
const IMPORT =
  /^(?:import|export)\s(?!type\s)[^;"]*?from\s*"(\.[^"]+)"|^import\s*"(\.[^"]+)"|import\(\s*"(\.[^"]+)"|new URL\("(\.[^"]+\.ts)"/gm;
/** A thread beside the module that starts it, see `lib/system/process/workers.ts`. */
const THREAD = /workerModule\(import\.meta\.url, "(\w+)"\)/g;

/** Words of code: names, keywords and what texts say. Shorter ones say nothing about a subject. */
const WORD = /[A-Za-z]\w{3,}/g;
const COMMENT = /^\s*\/\*\*[^]*?\*\/|^\s*\/\/.*$/gm;

/**
 * Reads all files once and gives the tests of two orders in turn, the test that mirrors the source before all.
 *
 * By imports: a test is near when few imports lie between it and the source. Those of its room that share a word of its name come first,
 * and the journeys last. Of two at the same distance the one in the folder of the mirroring test comes first, then the one that reaches
 * fewer files, since it has less to do beside it.
 *
 * By words: a test that says many of the source's words, above all words that few tests say, tests what the source does, however
 * many imports lie between them. So a journey can come early.
 * @param root the project's folder
 * @param files sources and tests, by their paths from the root
 */
export function createNearTests(root: string, files: readonly string[]): NearTests {
  const known = new Set(files);
  const imports = new Map(files.map((file) => [file, importsOf(root, file).filter((path) => known.has(path))]));
  const tests = files.filter((file) => file.endsWith(".test.ts"));
  const reached = new Map(tests.map((test) => [test, distancesFrom(test, imports)]));
  const likeness = createLikeness(root, tests);
  return {
    of(file) {
      const mirror = file.replace(/^lib\//, "").replace(/^/, "test/").replace(/\.ts$/, ".test.ts");
      const rank = (test: string): readonly number[] => {
        const distances = reached.get(test);
        const isFar = test.startsWith("test/journeys/") ? 1 : 0;
        const distance = distances?.get(file) ?? Infinity;
        const shared = sharedFolders(test, mirror);
        const isKin = shared > 1 && sharesWord(test, mirror) ? 0 : 1;
        return [test === mirror ? 0 : 1, isFar, isKin, distance, -shared, distances?.size ?? 0];
      };
      const near = tests.filter((test) => test === mirror || reached.get(test)?.has(file)).toSorted((a, b) =>
        compare(rank(a), rank(b)) || (a < b ? -1 : 1)
      );
      const likeTo = likeness(file);
      const alike = near.toSorted((a, b) => Number(b === mirror) - Number(a === mirror) || likeTo(b) - likeTo(a));
      return [...new Set(alike.flatMap((test, at) => [test, ...near.slice(at, at + 1)]))];
    },
  };
}

/** Returns how much each test says of a file's words: a word counts for more the fewer tests say it, and in a short test. */
function createLikeness(root: string, tests: readonly string[]): (file: string) => (test: string) => number {
  const wordsOf = (file: string) =>
    new Set(readFileSync(join(root, file), "utf8").replaceAll(COMMENT, "").match(WORD) ?? []);
  const said = new Map(tests.map((test) => [test, wordsOf(test)]));
  const sayers = new Map<string, number>();
  for (const words of said.values()) for (const word of words) sayers.set(word, (sayers.get(word) ?? 0) + 1);
  return (file) => {
    const own = wordsOf(file);
    const likeness = new Map([...said].map(([test, words]) => {
      const shared = [...words].filter((word) => own.has(word));
      const weights = shared.map((word) => Math.log(tests.length / (sayers.get(word) ?? 1)) ** 2);
      return [test, weights.reduce((sum, weight) => sum + weight, 0) / Math.sqrt(words.size || 1)];
    }));
    return (test) => likeness.get(test) ?? 0;
  };
}

function importsOf(root: string, file: string): readonly string[] {
  const source = readFileSync(join(root, file), "utf8");
  const imports = [...source.matchAll(IMPORT)].map((match) => match.slice(1).find(Boolean) ?? "");
  const threads = [...source.matchAll(THREAD)].map(([, name]) => `${name}.ts`);
  return [...imports, ...threads].map((path) => join(dirname(file), path));
}

/** How many folders two paths have in common, from the left. */
function sharedFolders(a: string, b: string): number {
  const folders = b.split("/").slice(0, -1);
  const end = a.split("/").slice(0, -1).findIndex((name, at) => name !== folders[at]);
  return end < 0 ? a.split("/").length - 1 : end;
}

/** Tells whether the names of two files have a word in common, such as `sub_agents` and `sub_agent_service`. */
function sharesWord(a: string, b: string): boolean {
  const wordsOf = (path: string) => basename(path, ".test.ts").split("_").map((word) => word.slice(0, STEM));
  return wordsOf(a).some((word) => word.length >= STEM && wordsOf(b).includes(word));
}

/** Imports on the shortest way from a file to each other one. */
function distancesFrom(file: string, imports: ReadonlyMap<string, readonly string[]>): ReadonlyMap<string, number> {
  const distances = new Map([[file, 0]]);
  // The map grows while it is read: whatever is added comes after all that are as near as the present one
  for (const [at, distance] of distances) {
    for (const next of imports.get(at) ?? []) if (!distances.has(next)) distances.set(next, distance + 1);
  }
  return distances;
}

function compare(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at < 0 ? 0 : (a[at] ?? 0) - (b[at] ?? 0);
}
