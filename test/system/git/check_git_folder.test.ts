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

test("object stores that are borrowed from lie in the workspace, and so does what they borrow from", () =>
  withWorkspace({ ...FILES, "shared/objects/x": "", "far/objects/x": "" }, async ({ root, outside, path, write }) => {
    const check = (list: string, farther = "") => {
      write(".git/objects/info/alternates", list);
      write("shared/objects/info/alternates", farther);
      return checkGitFolder(path(".git"), root);
    };
    const inside = ["../../shared/objects\n", `# theirs\n\n${path("shared/objects")}`, "../../far/objects/.\n"];
    for (const list of inside) await check(list);
    await check(inside[0] ?? "", `${path("far/objects")}\n`);
    // In a circle
    await check(inside[0] ?? "", `${path(".git/objects")}\n${path("shared/objects")}\n`);
    const leading = [
      `${outside}\n`,
      "../../../outside\n",
      "nowhere\n",
      '"../../shared/objects"\n',
      `${inside[0]}${outside}`,
    ];
    for (const list of leading) await assert.rejects(check(list), { code: "git_outside" }, list);
    await assert.rejects(check(inside[0] ?? "", outside), { code: "git_outside" });
    await assert.rejects(check(`${"#".repeat(65_535)}\n${outside}\n`), { code: "git_outside" });
  }));

test("at most 15 object stores may follow each other", () =>
  withWorkspace(FILES, async ({ root, path, write }) => {
    const lineOf = (count: number) => {
      for (let i = 0; i < count; i++) write(`s${i}/info/alternates`, i + 1 < count ? `${path(`s${i + 1}`)}\n` : "");
      write(".git/objects/info/alternates", `${path("s0")}\n`);
      return checkGitFolder(path(".git"), root);
    };
    await lineOf(15);
    await assert.rejects(lineOf(16), { code: "git_outside" });
  }));
