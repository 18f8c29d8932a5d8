import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  lstatSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { createSystemRandom } from "../../lib/base/random.ts";
import { removeUnfinished, writeAtomically } from "../../lib/base/durable_files.ts";
import { withWorkspace } from "../support/workspace.ts";

const nameOf = (pid: number) => `.postern-${pid}-${createSystemRandom().id("")}.tmp`;

test("a file is replaced whole, keeps its mode, and nothing is left beside it", () =>
  withWorkspace({ "a.txt": "old" }, async ({ root, path }) => {
    const mode = statSync(path("a.txt")).mode;
    await writeAtomically(path("a.txt"), "new");
    await writeAtomically(path("made/b.txt"), "b");
    assert.equal(readFileSync(path("a.txt"), "utf8"), "new");
    assert.equal(statSync(path("a.txt")).mode, mode);
    assert.equal(statSync(path("made/b.txt")).mode & 0o777, 0o600);
    assert.deepEqual(readdirSync(root).sort(), ["a.txt", "made"]);
  }));

test("a private file gets 0600 whatever was there, and takes the place of a link", () =>
  withWorkspace({ "open.txt": "old", "aim.txt": "aim" }, async ({ path }) => {
    chmodSync(path("open.txt"), 0o644);
    chmodSync(path("aim.txt"), 0o644);
    symlinkSync(path("aim.txt"), path("link.txt"));
    for (const name of ["open.txt", "link.txt", "new.txt"]) {
      await writeAtomically(path(name), "new", { isPrivate: true });
      assert.equal(readFileSync(path(name), "utf8"), "new");
      assert.equal(lstatSync(path(name)).mode & 0o170777, 0o100600, name);
    }
    assert.equal(readFileSync(path("aim.txt"), "utf8"), "aim");
  }));

test("what a killed process left is removed; what one still writes, and everything else, is not", () =>
  withWorkspace({}, async ({ root, path }) => {
    const ended = spawnSync(process.execPath, ["--version"]).pid;
    const [left, before, ours, theirs] = [
      nameOf(ended),
      nameOf(process.pid),
      nameOf(process.pid),
      nameOf(process.ppid),
    ];
    for (const name of [left, before, ours, theirs, "postern.toml", ".postern.tmp"]) writeFileSync(path(name), "x");
    // An earlier process had this one's number
    utimesSync(path(before), 1, 1);
    await removeUnfinished(root);
    assert.deepEqual(readdirSync(root).sort(), [ours, theirs, "postern.toml", ".postern.tmp"].sort());
    await removeUnfinished(path("none"));
  }));

test("the folder is synced after the new name is in it", () =>
  withWorkspace({}, async ({ root, path }) => {
    const synced: string[] = [];
    await writeAtomically(path("a.txt"), "new", {
      syncFolder: async (folder) => void synced.push(`${folder} ${readdirSync(folder).join()}`),
    });
    assert.deepEqual(synced, [`${root} a.txt`]);
  }));
