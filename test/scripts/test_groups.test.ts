import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { groupTestFiles, LONGEST } from "../../scripts/test_groups.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const FILES = globSync("test/**/*.test.ts", { cwd: PROJECT_ROOT }).sort();
const urlOf = (file: string) => pathToFileURL(join(PROJECT_ROOT, file)).href;

/** The URLs of the test files that each process loads, in the order of their start. */
function processesOf(paths: readonly string[]): readonly (readonly string[])[] {
  assert.deepEqual([...paths].sort(), paths, "runtimes start them in the order of their names");
  return paths.map((path) => {
    const text = readFileSync(path, "utf8");
    const [, one, list = "[]"] = /^import "(.*)";$|loadGroup\((.*)\)/ms.exec(text) ?? [];
    return one === undefined ? JSON.parse(list) as string[] : [one];
  });
}

test("every test file runs once, alone or in a group", () =>
  withTemporaryFolder(async (folder) => {
    const processes = processesOf(groupTestFiles(FILES, folder));
    assert.deepEqual(processes.flat().sort(), FILES.map(urlOf).sort());
    assert.ok(processes.length < FILES.length / 3, `${processes.length} processes`);
  }));

test("a file that sets what the whole process has runs alone", () =>
  withTemporaryFolder(async (folder) => {
    const alone = [
      "test/journeys/budgets.test.ts",
      "test/system/net/relay.test.ts",
      "test/system/files/attacks.test.ts",
    ];
    assert.deepEqual(processesOf(groupTestFiles(alone, folder)), alone.map((file) => [urlOf(file)]));
  }));

test("the files that take longest are there, run alone and begin first", () =>
  withTemporaryFolder(async (folder) => {
    const processes = processesOf(groupTestFiles(FILES, folder));
    assert.deepEqual(processes.slice(0, LONGEST.length), LONGEST.map((file) => [urlOf(file)]));
  }));
