import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** Finds the test files that a source file can be seen from. */
export interface NearTests {
  /** Test files that import the file, directly or through others, the nearest first. Paths from the project's root, with `/` */
  of(file: string): readonly string[];
}

/** Letters by which words are compared: agent and agents, delivery and deliveries are one. */
const STEM = 5;

/** Imports that run something: `import type` is blanked out before. */
const IMPORT =
  /^(?:import|export)\s(?!type\s)[^;"]*?from\s*"(\.[^"]+)"|^import\s*"(\.[^"]+)"|import\(\s*"(\.[^"]+)"|new URL\("(\.[^"]+\.ts)"/gm;

/**
 * Reads the imports of all files once. A test is near when few imports lie between it and the source. The test that mirrors the
 * source comes first, then those of its room that share a word of its name, and the journeys come last. Of two at the same distance the
 * one in the folder of the mirroring test comes first, then the one that reaches fewer files, since it has less to do beside it.
 * @param root the project's folder
 * @param files sources and tests, by their paths from the root
 */
export function createNearTests(root: string, files: readonly string[]): NearTests {
  const known = new Set(files);
  const imports = new Map(files.map((file) => [file, importsOf(root, file).filter((path) => known.has(path))]));
  const tests = files.filter((file) => file.endsWith(".test.ts"));
  const reached = new Map(tests.map((test) => [test, distancesFrom(test, imports)]));
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
      return tests.filter((test) => test === mirror || reached.get(test)?.has(file)).toSorted((a, b) =>
        compare(rank(a), rank(b)) || (a < b ? -1 : 1)
      );
    },
  };
}

function importsOf(root: string, file: string): readonly string[] {
  const source = readFileSync(join(root, file), "utf8");
  return [...source.matchAll(IMPORT)].map((match) => join(dirname(file), match.slice(1).find(Boolean) ?? ""));
}

/** How many folders two paths have in common, from the left. */
function sharedFolders(a: string, b: string): number {
  const folders = b.split("/").slice(0, -1);
  const end = a.split("/").slice(0, -1).findIndex((name, at) => name !== folders[at]);
  return end < 0 ? a.split("/").length - 1 : end;
}

/** Tells whether the names of two files have a word in common, as `sub_agents` and `sub_agent_service`. */
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
