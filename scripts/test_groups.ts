/**
 * Puts test files together that one process, or one thread of Deno, runs one after another: a process for each takes longer than the
 * tests of most. Files run alone that wait for other processes, and files that set or measure what a whole process has.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

/** Folders whose tests wait for programs and browsers, and the files in `test/` itself, which look at the whole project */
const ALONE =
  /^test\/(?:[^/]+$|(?:cli|contract|dashboard|docs|journeys|mutation|tools\/(?:git|hardware|host|process))\/)/;
/** Hooks of a whole file, changes of the environment, and looks at the memory and the open handles of the process */
const WHOLE_PROCESS =
  /^(?:before|after|beforeEach|afterEach)\(|process\.env, |process\.env\[[^\]]*\] = |memoryUsage|open_handles|memoryOf|browser_bench|fetch_bench/m;
/** Files of one group: enough that its start does not count, few enough that the other processes have work until it ends */
const MAX_FILES = 25;
const LOADER = new URL("../test/support/load_group.ts", import.meta.url).href;

/**
 * Writes a file into the folder for each group, which loads the test files of the group.
 * @param files paths relative to the project's folder
 * @returns paths of what is to be run: the groups, then the files that run alone
 */
export function groupTestFiles(files: readonly string[], folder: string): readonly string[] {
  const together = files.filter((file) => !runsAlone(file));
  const groups: string[] = [];
  while (groups.length * MAX_FILES < together.length) {
    const group = together.slice(groups.length * MAX_FILES, (groups.length + 1) * MAX_FILES);
    const path = join(folder, `group_${groups.length + 1}.test.mjs`);
    const urls = group.map((file) => pathToFileURL(resolve(file)).href);
    writeFileSync(path, `import { loadGroup } from "${LOADER}";\nawait loadGroup(${JSON.stringify(urls, null, 2)});\n`);
    groups.push(path);
  }
  return [...groups, ...files.filter(runsAlone)];
}

function runsAlone(file: string): boolean {
  return ALONE.test(file.replaceAll("\\", "/")) || WHOLE_PROCESS.test(readFileSync(file, "utf8"));
}
