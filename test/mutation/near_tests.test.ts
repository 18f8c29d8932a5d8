import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { createNearTests } from "./near_tests.ts";
import { orderOf } from "./order_of.ts";
import { scoreOf, scoreTable } from "./score.ts";

const FILES = {
  "lib/a/low.ts": "export const low = 1;",
  "lib/a/high.ts": 'import { low } from "./low.ts";\nexport const high = low;',
  "lib/a/kind.ts": 'import type { Low } from "./low.ts";\nexport const kind = 1;',
  "lib/a/lazy.ts": 'export const lazy = () => import("./low.ts");',
  "lib/a/worker.ts": 'export const place = new URL("./low.ts", import.meta.url);',
  "lib/a/thread.ts": 'export const place = workerModule(import.meta.url, "kind");',
  "handlers/top.ts": 'export {\n  high,\n} from "../lib/a/high.ts";',
  "test/a/low.test.ts": "",
  "test/a/high.test.ts": 'import { high } from "../../lib/a/high.ts";',
  "test/a/kind.test.ts": 'import { kind } from "../../lib/a/kind.ts";',
  "test/a/lazy.test.ts": 'import { lazy } from "../../lib/a/lazy.ts";\nimport { kind } from "../../lib/a/kind.ts";',
  "test/a/worker.test.ts": 'import { place } from "../../lib/a/worker.ts";',
  "test/a/thread.test.ts": 'import { place } from "../../lib/a/thread.ts";',
  "test/handlers/top.test.ts": 'import { high } from "../../handlers/top.ts";',
};

test("the mirrored test comes first, then the nearest by imports that run, and no other", () =>
  withTemporaryFolder((folder) => {
    for (const [path, text] of Object.entries(FILES)) {
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), text);
    }
    const near = createNearTests(folder, Object.keys(FILES));
    assert.deepEqual(near.of("lib/a/low.ts"), [
      ...["test/a/low.test.ts", "test/a/high.test.ts", "test/a/worker.test.ts"],
      ...["test/a/lazy.test.ts", "test/handlers/top.test.ts"],
    ]);
    assert.deepEqual(near.of("lib/a/kind.ts"), [
      ...["test/a/kind.test.ts", "test/a/lazy.test.ts", "test/a/thread.test.ts"],
    ]);
    assert.deepEqual(near.of("handlers/top.ts"), ["test/handlers/top.test.ts"]);
    return Promise.resolve();
  }));

test("a test that says the rare words of the source comes before those that are only near", () =>
  withTemporaryFolder((folder) => {
    const files = {
      "lib/a/ledger.ts":
        "/** Not fragile. */\nexport const ledger = { damaged: true, repaired: 1, counted: 1, entry: 1 };",
      "lib/a/door.ts": 'import { ledger } from "./ledger.ts";\nexport const door = ledger;',
      "test/a/ledger.test.ts": 'import { door } from "../../lib/a/door.ts";',
      "test/a/near.test.ts": 'import { ledger } from "../../lib/a/ledger.ts";\nledger.entry;',
      "test/a/other.test.ts": 'import { door } from "../../lib/a/door.ts";\ndoor.entry; door.fragile;',
      "test/journeys/repair.test.ts":
        'import { door } from "../../lib/a/door.ts";\ndoor.damaged; door.repaired; door.counted;',
      "test/journeys/strange.test.ts": "damaged;",
    };
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), text);
    }
    assert.deepEqual(createNearTests(folder, Object.keys(files)).of("lib/a/ledger.ts"), [
      ...["test/a/ledger.test.ts", "test/journeys/repair.test.ts"],
      ...["test/a/near.test.ts", "test/a/other.test.ts"],
    ]);
    return Promise.resolve();
  }));

test("each folder has its turn, and the seed decides which of its mutants comes first", () => {
  const mutant = (file: string, line: number) => ({ file, line, column: 1, start: 0, end: 1, replacement: "" });
  const many = Array.from({ length: 40 }, (_, line) => mutant("lib/a/x.ts", line));
  const all = new Map([["lib/a", many], ["lib/b", [mutant("lib/b/y.ts", 1)]]]);
  const drawn = (seed: number) => orderOf(all, seed).map(({ folder, mutant: { line } }) => `${folder} ${line}`);
  assert.deepEqual(drawn(1), drawn(1));
  assert.notDeepEqual(drawn(1), drawn(2));
  assert.equal(new Set(drawn(1)).size, 41);
  assert.equal(drawn(1)[1], "lib/b 1");
});

test("a test that hangs has noticed the mutant, and the table sums the folders up", () => {
  const verdicts = [
    { folder: "lib/a", end: "killed" },
    { folder: "lib/a", end: "timed_out" },
    { folder: "lib/a", end: "survived" },
    { folder: "lib/b", end: "killed" },
  ] as const;
  assert.equal(scoreOf(verdicts), 75);
  assert.equal(
    scoreTable(verdicts, { "lib/a": 10, "lib/b": 5, "lib/c": 1 }),
    [
      "folder  mutants  tried  killed  timed out  survived    score",
      "lib/a        10      3       1          1         1   66.7 %",
      "lib/b         5      1       1          0         0  100.0 %",
      "lib/c         1      0       0          0         0        -",
      "all          16      4       2          1         1   75.0 %",
    ].join("\n"),
  );
});
