import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { checkGitFolder } from "../../../lib/system/git/check_git_folder.ts";
import { findRepository } from "../../../lib/system/git/find_repository.ts";
import { withWorkspace } from "../../support/workspace.ts";

const FILES = { ".git/HEAD": "ref: refs/heads/main\n", ".git/config": "", ".git/refs/heads/main": "0\n" };

test("what git removes while the folder is looked through does not matter", () =>
  withWorkspace(FILES, async ({ root, path }) => {
    let done = false;
    const repacking = (async () => {
      for (let round = 0; !done; round++) {
        const folder = path(`.git/objects/${(round % 8).toString(16)}0`);
        await mkdir(folder, { recursive: true });
        await writeFile(`${folder}/${"0".repeat(38)}`, "");
        await writeFile(path(".git/index.lock"), "");
        await rm(folder, { recursive: true });
        await rm(path(".git/index.lock"));
      }
    })();
    try {
      for (let round = 0; round < 300; round++) await checkGitFolder(path(".git"), root);
    } finally {
      done = true;
      await repacking;
    }
  }));

test("a .git that is no folder of git's is none", () =>
  withWorkspace(
    { "a/x": "", "b/.git": "gitdir: nowhere\n", "c/.git": "nonsense\n", "d/.git": "" },
    async ({ root, path }) => {
      for (const folder of ["b", "c", "d"]) {
        await assert.rejects(findRepository(folder, root), { code: "not_a_repository" }, folder);
      }
      await assert.rejects(findRepository("a", root), { code: "not_a_repository", message: /has a \.git$/ });
      writeFileSync(path("b/.git"), `gitdir: ${"x".repeat(5000)}\n`);
      await assert.rejects(findRepository("b", root), { code: "not_a_repository" });
      mkdirSync(path("e/.git"), { recursive: true });
      assert.equal((await findRepository("e", root)).prefix, "");
      rmSync(path("e"), { recursive: true });
    },
  ));
