import assert from "node:assert/strict";
import { chmodSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { withWorkspace } from "../../support/workspace.ts";

test("finds executable files in the order of the search path, and nothing else", () =>
  withWorkspace({ "one/run": "", "two/run": "", "two/plain": "", "one/folder/x": "" }, async (workspace) => {
    for (const path of ["one/run", "two/run"]) chmodSync(workspace.path(path), 0o755);
    symlinkSync("run", workspace.path("two", "linked"));
    const lookup = createCommandLookup([workspace.path("none"), workspace.path("one"), workspace.path("two")]);
    assert.equal(await lookup.find("run"), workspace.path("one", "run"));
    assert.equal(await lookup.find("linked"), workspace.path("two", "linked"));
    for (const name of ["plain", "folder", "none", "", ".", "..", "../one/run", "one/run", "a\0b", "x".repeat(300)]) {
      assert.equal(await lookup.find(name), undefined, name.slice(0, 20));
    }
  }));

test("the fixed search path has the usual commands", async () => {
  assert.match(await createCommandLookup().find("ls") ?? "", /^\/.*\/ls$/);
});

test("an executable is told from another of its name, and from itself once it was changed", () =>
  withWorkspace({ "one/other": "", "two/run": "a" }, async (workspace) => {
    chmodSync(workspace.path("two", "run"), 0o755);
    const { identify } = createCommandLookup([workspace.path("one"), workspace.path("two")]);
    const first = await identify("run");
    assert.equal(await identify("run"), first);
    writeFileSync(workspace.path("two", "run"), "ab");
    const changed = await identify("run");
    workspace.write("one/run", "ab");
    chmodSync(workspace.path("one", "run"), 0o755);
    assert.equal(new Set([first, changed, await identify("run")]).size, 3);
    assert.equal(await identify("none"), undefined);
  }));
