import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createSystemRandom } from "../../lib/base/random.ts";
import { createProofFiles, newFolderId, PROOF_FOLDER, proofContent } from "../../lib/cluster/workspace_proof.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

test("gateways that name a folder at the same moment all get one id, which the folder keeps", () =>
  withTemporaryFolder(async (parent) => {
    const random = createSystemRandom();
    for (let round = 0; round < 100; round++) {
      const folder = join(parent, String(round));
      mkdirSync(folder);
      const gateways = Array.from({ length: 4 }, () => createProofFiles(folder));
      const ids = await Promise.all(gateways.map((files) => files.nameFolder(newFolderId(random))));
      assert.deepEqual(ids, Array(4).fill(await createProofFiles(folder).folderId()));
    }
  }));

test("what a command has put in the place of the folder or its files leads no write elsewhere", () =>
  withTemporaryFolder(async (parent) => {
    const [workspace, outside] = [join(parent, "workspace"), join(parent, "outside")];
    for (const folder of [workspace, outside]) mkdirSync(folder);
    writeFileSync(join(outside, "mine"), "mine");
    const place = join(workspace, PROOF_FOLDER);
    const traps: readonly (() => void)[] = [
      () => symlinkSync(outside, place),
      () => {
        mkdirSync(place);
        symlinkSync(join(outside, "mine"), join(place, ".gitignore"));
      },
      () => {
        mkdirSync(place);
        execFileSync("mkfifo", [join(place, ".gitignore")]);
      },
    ];
    for (const trap of traps) {
      rmSync(place, { recursive: true, force: true });
      trap();
      const files = createProofFiles(workspace);
      await assert.rejects(files.write("gw_1", proofContent(createSystemRandom())));
      await assert.rejects(files.nameFolder(newFolderId(createSystemRandom())));
      assert.deepEqual(readdirSync(outside), ["mine"]);
      assert.equal(readFileSync(join(outside, "mine"), "utf8"), "mine");
    }
  }));
