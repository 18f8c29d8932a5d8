import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import type { Files, FileScope } from "../../../lib/system/files/files.ts";
import { searchFiles } from "../../../lib/tools/files/search_files.ts";
import type { FileSearch } from "../../../lib/tools/files/search_job.ts";
import type { SearchLimits } from "../../../lib/tools/files/search_pattern.ts";
import { withWorkspace } from "../../support/workspace.ts";

/** Ten folders of twenty files of 28 bytes, each with one match. */
const TREE = Object.fromEntries(
  Array.from(
    { length: 200 },
    (_, index) => [`d${Math.floor(index / 20)}/f${index}.txt`, "one line\nthe gate is here\n\n\n"],
  ),
);
const LIMITS: SearchLimits = { entries: 1000, fileBytes: 1000, totalBytes: 1_000_000 };

/** Searches over files that count what the search opens and lists. */
async function searchCounted(
  root: string,
  search: Partial<FileSearch>,
  more: { readonly limits?: Partial<SearchLimits>; readonly check?: () => void } = {},
) {
  const files = createFiles({ home: "/home/nobody", ownPaths: [], clock: systemClock, blocking: true });
  const seen = { folders: 0, opened: 0, closed: 0 };
  const counted: Files = {
    ...files,
    async *walk(path, scope, options) {
      const walk = files.walk(path, scope, options);
      for (;;) {
        const step = await walk.next();
        if (step.done) return step.value;
        seen.folders++;
        yield step.value.map((file) => ({
          ...file,
          async open() {
            seen.opened++;
            const open = await file.open();
            return { ...open, close: () => (seen.closed++, open.close()) };
          },
        }));
      }
    },
  };
  const scope: FileScope = { workspaceRoot: root, allowedRoot: ".", forbiddenPaths: [], allowSensitive: false };
  const found = await searchFiles(counted, {
    kind: "lines",
    pattern: "gate",
    caseInsensitive: false,
    path: ".",
    glob: undefined,
    limit: 1000,
    ...search,
  }, {
    scope,
    clock: systemClock,
    signal: new AbortController().signal,
    check: more.check ?? (() => {}),
    limits: { ...LIMITS, ...more.limits },
  });
  assert.equal(seen.closed, seen.opened);
  return { found, seen };
}

test("reads every file where no limit is met", () =>
  withWorkspace(TREE, async ({ root }) => {
    const { found, seen } = await searchCounted(root, {});
    assert.deepEqual([found.matches.length, found.files, found.ended, seen.opened], [200, 200, undefined, 200]);
  }));

test("at its limit of matches it opens and lists nothing more", () =>
  withWorkspace(TREE, async ({ root }) => {
    const { found, seen } = await searchCounted(root, { limit: 5 });
    // The root, the first folder, and of that one what is read at once
    assert.deepEqual([found.matches.length, seen.folders, seen.opened], [6, 2, 8]);
  }));

test("at its limit of bytes it opens nothing more and says so", () =>
  withWorkspace(TREE, async ({ root }) => {
    const { found, seen } = await searchCounted(root, { pattern: "nowhere" }, { limits: { totalBytes: 28 * 30 } });
    assert.deepEqual([found.ended, found.files, seen.opened, seen.folders], ["bytes", 36, 36, 3]);
  }));

test("at its limit of entries it opens nothing more and says so", () =>
  withWorkspace(TREE, async ({ root }) => {
    // Ten folders, and then forty files
    const { found, seen } = await searchCounted(root, {}, { limits: { entries: 50 } });
    assert.deepEqual([found.ended, seen.opened], ["entries", 40]);
  }));

test("of a long file only the beginning is read, and it says so", () =>
  withWorkspace({ "long.txt": `${"x\n".repeat(500)}gate\n`, "short.txt": "gate" }, async ({ root }) => {
    const { found } = await searchCounted(root, {});
    assert.deepEqual(found, {
      matches: [{ path: "short.txt", line: 1, text: "gate" }],
      files: 2,
      cutFiles: 1,
      cutLines: 0,
      cutAt: [],
      maxLine: Infinity,
      ended: undefined,
    });
  }));

test("long lines that were not searched to their end are counted, and the first of them named", () =>
  withWorkspace({ "a.txt": `${"x".repeat(90_000)}gate\n`.repeat(4), "b.txt": "y".repeat(90_000) }, async ({ root }) => {
    const { found } = await searchCounted(root, { pattern: "[g]ate|[k-m]{800}" }, { limits: { fileBytes: 1_000_000 } });
    assert.deepEqual([found.matches, found.cutLines], [[], 5]);
    assert.deepEqual(found.cutAt.map(({ path, line }) => `${path}:${line}`), [
      "a.txt:1",
      "a.txt:2",
      "a.txt:3",
      "a.txt:4",
      "b.txt:1",
    ]);
    assert.ok(found.maxLine < 90_000);
  }));

test("a search that is told to stop stops between two lines, and closes what it opened", () =>
  withWorkspace({ "a.txt": "line\n".repeat(100) }, async ({ root }) => {
    let checks = 0;
    const check = () => {
      if (++checks > 50) throw new CancelError("cancelled");
    };
    await assert.rejects(searchCounted(root, { pattern: "[0-9]" }, { check }), CancelError);
    assert.equal(checks, 51);
  }));
