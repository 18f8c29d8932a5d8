import assert from "node:assert/strict";
import { existsSync, readFileSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname } from "node:path";
import { test } from "node:test";
import { makeTemporaryFolder } from "../../scripts/temporary_files.ts";

/** Makes the folder, removes it, and returns the folder that it lay in. It was empty, or removing it fails. */
function parentOf(machine: Parameters<typeof makeTemporaryFolder>[0]): string {
  const folder = makeTemporaryFolder(machine);
  rmdirSync(folder);
  return dirname(folder);
}

const mounts = existsSync("/proc/mounts") ? readFileSync("/proc/mounts", "utf8") : "";
const noMemory = !/^\S+ \/dev\/shm tmpfs (?!\S*noexec)/m.test(mounts) &&
  "needs /dev/shm, and that programs are run from it";

test("temporary files of tests lie in memory where there is enough of it", { skip: noMemory }, () => {
  assert.equal(parentOf({ minBytes: 1 }), "/dev/shm");
  assert.equal(parentOf({ minBytes: 2 ** 60 }), tmpdir());
});

test("a folder of the person's choice goes before memory", () => {
  assert.equal(parentOf({ TMPDIR: tmpdir(), minBytes: 1 }), tmpdir());
});

test("a folder that is no file system in memory, or none at all, is not used", () => {
  assert.equal(parentOf({ memory: "/proc", minBytes: 1 }), tmpdir());
  assert.equal(parentOf({ memory: "/nonexistent", minBytes: 1 }), tmpdir());
});
