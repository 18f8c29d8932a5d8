import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import {
  planTests,
  readTimes,
  type TestTimes,
  timesOfMachine,
  WIDTH,
  writeTestProcesses,
} from "../../scripts/test_plan.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const FILES = globSync("test/**/*.test.ts", { cwd: PROJECT_ROOT }).sort();
const TIMES = readTimes([join(PROJECT_ROOT, "scripts/test_times.json")]);
/** Longest time of a file of `npm test`, in seconds; a longer one is a `*.system.ts` */
const MAX_SECONDS = 10;

describe("a plan of all tests", () => {
  const plan = planTests({ node: FILES, deno: FILES.slice(0, 40) }, TIMES);

  test("every file runs once on each runtime that it is for, alone or with others", () => {
    const filesOn = (runtime: string) => plan.filter((one) => one.runtime === runtime).flatMap(({ files }) => files);
    assert.deepEqual(filesOn("node").sort(), FILES);
    assert.deepEqual(filesOn("deno").sort(), FILES.slice(0, 40));
    assert.ok(plan.length < FILES.length / 3, `${plan.length} processes`);
  });

  test("the longest process begins first, on whichever runtime", () => {
    const seconds = plan.slice(WIDTH).map((one) => one.seconds);
    assert.deepEqual(seconds, seconds.toSorted((one, other) => other - one));
    const first = plan.slice(0, plan.length / 2).map((one) => one.runtime);
    assert.ok(first.includes("node") && first.includes("deno"), first.join(" "));
  });

  test("what waits for the package shares processes, and as many others as run at once begin before it", () => {
    const starts = /^import \{[^}]*\} from "[./]*support\/(?:cli|gateway|postern)_process\.ts";/m;
    const starting = new Set(FILES.filter((file) => starts.test(readFileSync(join(PROJECT_ROOT, file), "utf8"))));
    assert.ok(starting.size > 10, `${starting.size} files`);
    const shared = plan.filter(({ files }) => files.some((file) => starting.has(file)));
    for (const one of shared) assert.ok(plan.indexOf(one) >= WIDTH, one.files.join(" "));
    const others = shared.flatMap(({ files }) => files).filter((file) => file.startsWith("test/base/"));
    assert.deepEqual(others, [], "a file that waits for nothing would wait too");
  });

  test("what starts processes shares none with other tests of Node, whose memory each start would copy the tables of", () => {
    const starts = /^import (?!type ).*"node:child_process"|support\/git_fixture\.ts";/m;
    const starting = FILES.filter((file) => starts.test(readFileSync(join(PROJECT_ROOT, file), "utf8")));
    assert.ok(starting.length > 40, `${starting.length} files`);
    const shared = plan.filter(({ runtime, files }) =>
      runtime === "node" && files.some((file) => starting.includes(file))
    );
    const others = shared.flatMap(({ files }) => files).filter((file) =>
      /^test\/(?:base|providers|journeys\/mess)/.test(file)
    );
    assert.deepEqual(others.filter((file) => !starting.includes(file)), []);
  });

  test("a file that sets what the whole process has runs alone", () => {
    const alone = [
      "test/journeys/budgets.test.ts",
      "test/tools/git/attacks.test.ts",
      "test/tools/process/shell.test.ts",
    ];
    const processes = plan.filter(({ files }) => files.some((file) => alone.includes(file)));
    for (const { runtime, files } of processes) assert.equal(files.length, 1, `${runtime}: ${files.join(" ")}`);
    assert.ok(processes.length >= alone.length);
  });
});

test("each process takes a quarter of what is left, at most a minute and at least eight seconds", () => {
  const files = FILES.filter((file) => file.startsWith("test/providers/")).slice(0, 20);
  const secondsOf = (each: number) =>
    planTests({ node: files, deno: [] }, new Map(files.map((file) => [file, each - 0.05]))).map((one) => one.seconds);
  assert.deepEqual(secondsOf(20).map(Math.round), [60, 60, 60, 40, 40, ...Array<number>(7).fill(20)]);
  assert.deepEqual(secondsOf(4).map(Math.round), [20, 12, 12, 8, 8, 8, 8, 4]);
  assert.deepEqual(secondsOf(0.1).map(Math.round), [2]);
  const times: TestTimes = new Map(files.map((file, index) => [file, index === 0 ? 90 : 1]));
  assert.deepEqual(
    planTests({ node: files, deno: [] }, times)[0]?.files,
    files.slice(0, 1),
    "a long file fills its own",
  );
});

test("a process is written as a file that loads its test files, and one of Deno as a file that starts Deno", () =>
  withTemporaryFolder((folder) => {
    const [first = "", second = ""] = FILES;
    const paths = writeTestProcesses([
      { runtime: "deno", files: [first, second], seconds: 2 },
      { runtime: "node", files: [first], seconds: 1 },
    ], folder);
    assert.deepEqual(paths, paths.toSorted(), "Node starts them in the order of their names");
    const [onDeno = "", onNode = ""] = paths.map((path) => readFileSync(path, "utf8"));
    assert.equal(onNode, `import "${pathToFileURL(join(PROJECT_ROOT, first)).href}";\n`);
    const loaded = join(folder, "001_deno_group.mjs");
    assert.match(onDeno, new RegExp(`runOnDeno\\(".*${basename(loaded)}", "${first} and 1 more"\\)`));
    for (const file of [first, second]) assert.ok(readFileSync(loaded, "utf8").includes(`/${file}"`), file);
    return Promise.resolve();
  }));

test("a machine that was busy plans the same number of processes, by its own order of the times", () => {
  const project: TestTimes = new Map([["test/a", 4], ["test/b", 6], ["test/gone", 3]]);
  const busy: TestTimes = new Map([["test/a", 30], ["test/b", 20], ["test/new", 5]]);
  assert.deepEqual([...timesOfMachine(project, busy)], [["test/a", 6], ["test/b", 4], ["test/gone", 3], [
    "test/new",
    1,
  ]]);
  assert.deepEqual(timesOfMachine(project, new Map()), project);
  const none: TestTimes = new Map([["test/a", 0]]);
  assert.deepEqual([...timesOfMachine(project, none).values()], [0, 6, 3]);
});

test("no file of npm test takes longer than ten seconds, by the times that come with the project", () => {
  const long = FILES.filter((file) => (TIMES.get(file) ?? 0) > MAX_SECONDS);
  assert.deepEqual(
    long,
    [],
    "a file that takes longer is named *.system.ts, with a faster test of each rule that it alone holds",
  );
});

test("the times that come with the project name files that are there", () => {
  const there = globSync("test/**/*.{test,system}.ts", { cwd: PROJECT_ROOT });
  assert.deepEqual([...TIMES.keys()].filter((file) => !there.includes(file)), []);
});
