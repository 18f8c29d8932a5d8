/**
 * Orders test files and puts them together that one process, or one thread of Deno, runs one after another: a process for each takes
 * longer than the tests of most. Files run alone that take long, and files that set or measure what a whole process has. The longest
 * begin first, so that no processor waits for a last one at the end.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

/** Files that take long, the longest first. They run alone, before all others. */
export const LONGEST: readonly string[] = [
  "test/journeys/cluster_chaos.test.ts",
  "test/tools/web/browser.test.ts",
  "test/docs/documentation.test.ts",
  "test/journeys/rolling_upgrade.test.ts",
  "test/extensions/plugins/write_scaffold.test.ts",
  "test/journeys/wasm_plugin.test.ts",
  "test/extensions/plugins/process/process_plugin.test.ts",
  "test/extensions/mcp/server_connection.test.ts",
  "test/tools/git/hostile_config.test.ts",
  "test/journeys/daemon.test.ts",
  "test/tools/git/remotes.test.ts",
  "test/cli/daemon/daemon.test.ts",
  "test/cluster/postgres_cluster.test.ts",
  "test/dashboard/browser.test.ts",
  "test/journeys/killed_gateway.test.ts",
  "test/journeys/cluster_outages.test.ts",
  "test/journeys/dashboard.test.ts",
  "test/journeys/mcp_hostile.test.ts",
  "test/journeys/mcp_hostile_http.test.ts",
  "test/tools/web/browser_cookies.test.ts",
  "test/tools/web/browser_downloads.test.ts",
  "test/system/browser/hostile_page.test.ts",
  "test/journeys/built_package.test.ts",
  "test/system/browser/browsers.test.ts",
  "test/journeys/dashboard_records.test.ts",
  "test/dashboard/layout.test.ts",
  "test/journeys/http_semantics.test.ts",
  "test/journeys/idempotency.test.ts",
  "test/contract/owned_things.test.ts",
  "test/journeys/nodes.test.ts",
  "test/journeys/mounts.test.ts",
  "test/tools/git/attacks.test.ts",
  "test/tools/git/git_operations.test.ts",
  "test/dashboard/runs.test.ts",
  "test/tools/process/relayed_commands.test.ts",
  "test/tools/process/protected_names.test.ts",
  "test/journeys/kills.test.ts",
  "test/journeys/taint.test.ts",
  "test/tools/process/shell.test.ts",
];
/** Files in `test/` itself look at the whole project. */
const WHOLE_PROJECT = /^test\/[^/]+$/;
/** Folders whose tests wait for programs and browsers, so that few of them make a group */
const WAITING = /^test\/(?:cli|contract|dashboard|docs|journeys|mutation|tools\/(?:git|hardware|host|process))\//;
/** Hooks of a whole file, changes of the environment, and looks at the memory and the open handles of the process */
const WHOLE_PROCESS =
  /^(?:before|after|beforeEach|afterEach)\(|process\.env, |process\.env\[[^\]]*\] = |memoryUsage|open_handles|memoryOf|browser_bench|fetch_bench/m;
/** Files of one group: enough that its start does not count, few enough that the other processes have work until it ends */
const MAX_FILES = { waiting: 8, quick: 25 };
const LOADER = new URL("../test/support/load_group.ts", import.meta.url).href;

/**
 * Writes a file into the folder for each process, which loads its test files. Runtimes start them in the order of their names.
 * @param files paths relative to the project's folder
 * @returns paths of the files that are to be run
 */
export function groupTestFiles(files: readonly string[], folder: string): readonly string[] {
  const named = new Map(files.map((file) => [file.replaceAll("\\", "/"), file]));
  const longest = LONGEST.flatMap((path) => named.get(path) ?? []);
  const others = files.filter((file) => !longest.includes(file));
  const alone = others.filter(runsAlone);
  const together = others.filter((file) => !alone.includes(file));
  const groups = [
    ...longest.map((file) => [file]),
    ...cut(together.filter((file) => !isWaiting(file)), MAX_FILES.quick),
    ...cut(together.filter(isWaiting), MAX_FILES.waiting),
    ...alone.map((file) => [file]),
  ];
  return groups.map((group, index) => {
    const [first = ""] = group;
    const what = group.length === 1 ? first.replaceAll(/\W+/g, "_").replace(/_test_ts$/, "") : "group";
    const path = join(folder, `${String(index + 1).padStart(3, "0")}_${what}.test.mjs`);
    const urls = group.map((file) => pathToFileURL(resolve(file)).href);
    writeFileSync(
      path,
      group.length === 1
        ? `import "${urls[0]}";\n`
        : `import { loadGroup } from "${LOADER}";\nawait loadGroup(${JSON.stringify(urls, null, 2)});\n`,
    );
    return path;
  });
}

function cut(files: readonly string[], length: number): readonly (readonly string[])[] {
  return Array.from(
    { length: Math.ceil(files.length / length) },
    (_, index) => files.slice(index * length, (index + 1) * length),
  );
}

const isWaiting = (file: string) => WAITING.test(file.replaceAll("\\", "/"));

function runsAlone(file: string): boolean {
  return WHOLE_PROJECT.test(file.replaceAll("\\", "/")) || WHOLE_PROCESS.test(readFileSync(file, "utf8"));
}
