import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import process from "node:process";
import { test } from "node:test";
import { checkedMounts, type MeantMount } from "../../../lib/system/process/raced_mounts.ts";

const skip = process.platform !== "linux" && "only Linux lists its mounts";

/** Runs a program behind the check, in the mounts of the test itself. */
function run(mounts: readonly MeantMount[]) {
  const [file = "", ...args] = checkedMounts(mounts);
  const { status, stdout, stderr } = spawnSync(file, [...args, "echo", "begun"], { encoding: "utf8" });
  return { status, stdout, stderr };
}

test("a program begins where all mounts are the meant ones", { skip }, () => {
  const meant = [{ path: "/proc", shows: true }, { path: "/proc", shows: false }, { path: "/", shows: true }];
  assert.deepEqual(run(meant), { status: 0, stdout: "begun\n", stderr: "" });
  assert.equal(run([]).stdout, "begun\n");
});

test("a program does not begin where a mount is missing, or shows something else", { skip }, () => {
  for (const path of ["/proc/nothing", "/proc\u00e9 \\n", "/pro", "/proc/self"]) {
    for (const shows of [true, false]) {
      const { status, stdout, stderr } = run([{ path: "/proc", shows: true }, { path, shows }]);
      assert.deepEqual([status, stdout], [1, ""], path);
      assert.match(stderr, /^bwrap: a folder of the workspace was exchanged while the sandbox was made\n$/);
    }
  }
});
