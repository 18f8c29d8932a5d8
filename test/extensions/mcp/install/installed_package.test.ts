import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../../lib/base/clock.ts";
import { createSystemRandom } from "../../../../lib/base/random.ts";
import {
  installPackage,
  packageFolderOf,
  type PackageProgram,
  packagesFolder,
  removePackage,
} from "../../../../lib/extensions/mcp/install/installed_package.ts";
import { withTemporaryFolder } from "../../../support/temporary_folder.ts";

const PROGRAM: PackageProgram = {
  registry: "npm",
  name: "@acme/notes",
  version: "1.0.0",
  integrity: "sha512-x",
  command: { path: "bin/run", inside: true },
  args: ["index.js"],
  notes: [],
};

const placeIn = (dataDir: string) => ({ dataDir, clock: systemClock, random: createSystemRandom() });

const fill = (text: string) => (folder: string) => {
  writeFileSync(join(folder, "index.js"), text);
  return Promise.resolve(PROGRAM);
};

test("a package is there whole or not at all", () =>
  withTemporaryFolder(async (dataDir) => {
    const root = packagesFolder(dataDir);
    await assert.rejects(
      installPackage(placeIn(dataDir), (folder) => {
        writeFileSync(join(folder, "index.js"), "half");
        throw new Error("killed");
      }),
      /killed/,
    );
    assert.deepEqual(readdirSync(root), []);
    // A process that was killed in the middle removes nothing: the next one does
    const left = join(root, ".postern-999999999-abcdefghijklmnopqrstuvwx.tmp");
    mkdirSync(left);
    writeFileSync(join(left, "index.js"), "half");
    utimesSync(left, 1, 1);
    const installed = await installPackage(placeIn(dataDir), fill("whole"));
    assert.deepEqual(readdirSync(root), ["npm-acme+notes-1.0.0"]);
    assert.equal(installed.command, join(root, "npm-acme+notes-1.0.0/bin/run"));
    assert.deepEqual(installed.paths, [`${installed.folder}:ro`]);
    assert.deepEqual(installed.args, [join(root, "npm-acme+notes-1.0.0/index.js")]);
  }));

test("a package that is installed stays as it is, and one that was changed is installed again", () =>
  withTemporaryFolder(async (dataDir) => {
    const { folder } = await installPackage(placeIn(dataDir), fill("first"));
    const file = join(folder, "index.js");
    await installPackage(placeIn(dataDir), fill("second"));
    assert.equal(readFileSync(file, "utf8"), "first");
    writeFileSync(file, "changed");
    await installPackage(placeIn(dataDir), fill("second"));
    assert.equal(readFileSync(file, "utf8"), "second");
    assert.deepEqual(readdirSync(packagesFolder(dataDir)).length, 1);
  }));

test("a package that is too large, or has something else than files, is refused and leaves nothing", () =>
  withTemporaryFolder(async (dataDir) => {
    const place = { ...placeIn(dataDir), maxBytes: 100 };
    const large = (folder: string) => {
      mkdirSync(join(folder, "sub"));
      writeFileSync(join(folder, "sub/large.js"), "x".repeat(101));
      return Promise.resolve(PROGRAM);
    };
    await assert.rejects(installPackage(place, large), { code: "package_refused", message: /more than 100 bytes/ });
    const strange = (folder: string) => {
      execFileSync("mkfifo", [join(folder, "fifo")]);
      return Promise.resolve(PROGRAM);
    };
    await assert.rejects(installPackage(place, strange), { code: "package_refused", message: /"fifo" is no file/ });
    assert.deepEqual(readdirSync(packagesFolder(dataDir)), []);
  }));

test("a package whose files got other kinds or rights is installed again, and nothing waits for one", () =>
  withTemporaryFolder(async (dataDir) => {
    for (
      const change of [
        (folder: string) => execFileSync("mkfifo", [join(folder, "fifo")]),
        (folder: string) => chmodSync(join(folder, "index.js"), 0o4644),
        (folder: string) => symlinkSync("/etc", join(folder, "link")),
      ]
    ) {
      const { folder } = await installPackage(placeIn(dataDir), fill("first"));
      change(folder);
      await installPackage(placeIn(dataDir), fill("second"));
      assert.equal(readFileSync(join(folder, "index.js"), "utf8"), "second");
      assert.deepEqual(readdirSync(folder), ["index.js", "install.json"]);
      await removePackage(dataDir, folder);
    }
  }));

test("a large file counts with all its bytes", () =>
  withTemporaryFolder(async (dataDir) => {
    const text = "x".repeat(3_000_000);
    const { folder } = await installPackage(placeIn(dataDir), fill(text));
    await installPackage(placeIn(dataDir), fill("second"));
    assert.equal(readFileSync(join(folder, "index.js"), "utf8"), text);
    writeFileSync(join(folder, "index.js"), `${text.slice(1)}y`);
    await installPackage(placeIn(dataDir), fill("second"));
    assert.equal(readFileSync(join(folder, "index.js"), "utf8"), "second");
  }));

test("a folder outside of the packages is neither found nor removed", () =>
  withTemporaryFolder(async (dataDir) => {
    const other = join(dataDir, "other");
    mkdirSync(other);
    for (const word of [other, packagesFolder(dataDir), join(packagesFolder(dataDir), "../../other"), "index.js"]) {
      assert.equal(packageFolderOf(dataDir, [word]), undefined, word);
    }
    await removePackage(dataDir, other);
    assert.ok(readdirSync(dataDir).includes("other"));
  }));
