import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { followBranch } from "../../../lib/system/git/follow_branch.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

test("an upstream that cannot be noted is an error that says what is done, and leaves no lock", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "config");
    mkdirSync(path);
    await assert.rejects(followBranch(path, "topic", { remote: "origin", branch: "topic" }), {
      code: "git_failed",
      message:
        /^Cannot note the upstream of "topic", which is checked out: .*\(EISDIR\); it is "origin\/topic", for "git branch --set-upstream-to"$/,
    });
    assert.equal(existsSync(`${path}.lock`), false);
  }));

test("an upstream that the disk takes half of leaves the configuration as it was", (context) => {
  if ("Deno" in globalThis) return Promise.resolve(context.skip("it starts Node"));
  return withTemporaryFolder((folder) => {
    const path = join(folder, "config");
    const content = `# ${"x".repeat(990)}\n[core]\n`;
    writeFileSync(path, content);
    const module = new URL("../../../lib/system/git/follow_branch.ts", import.meta.url).href;
    const follow = `const { followBranch } = await import(${JSON.stringify(module)});
      await followBranch(${JSON.stringify(path)}, "topic", { remote: "origin", branch: "topic" });`;
    // Files end at 1024 bytes
    const limited = `trap "" XFSZ; ulimit -f 2; exec "$0" --input-type=module --eval "$1"`;
    const { status, stderr } = spawnSync("sh", ["-c", limited, process.execPath, follow], { encoding: "utf8" });
    assert.notEqual(status, 0);
    assert.match(stderr, /cannot be written \(EFBIG\)/);
    assert.equal(readFileSync(path, "utf8"), content);
    return Promise.resolve();
  });
});
