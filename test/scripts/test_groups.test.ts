import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { groupTestFiles } from "../../scripts/test_groups.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const FILES = globSync("test/**/*.test.ts", { cwd: PROJECT_ROOT }).sort();
const urlOf = (file: string) => pathToFileURL(join(PROJECT_ROOT, file)).href;

/** The URLs of all files that are run, those of the groups among them. */
function urlsToRun(paths: readonly string[]): readonly string[] {
  return paths.flatMap((path) => {
    if (!path.endsWith(".mjs")) return [urlOf(path)];
    const [, list = "[]"] = /loadGroup\((.*)\)/s.exec(readFileSync(path, "utf8")) ?? [];
    return JSON.parse(list) as string[];
  });
}

test("every test file runs once, alone or in a group", () =>
  withTemporaryFolder(async (folder) => {
    const paths = groupTestFiles(FILES, folder);
    assert.deepEqual([...urlsToRun(paths)].sort(), FILES.map(urlOf).sort());
    assert.ok(paths.length < FILES.length / 2, `${paths.length} processes`);
  }));

test("a file that sets what the whole process has, or waits for programs, runs alone", () =>
  withTemporaryFolder(async (folder) => {
    const alone = [
      "test/journeys/budgets.test.ts",
      "test/system/net/relay.test.ts",
      "test/system/files/attacks.test.ts",
    ];
    assert.deepEqual(groupTestFiles(alone, folder), alone);
  }));
