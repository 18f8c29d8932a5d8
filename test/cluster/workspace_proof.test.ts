import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createSystemRandom } from "../../lib/base/random.ts";
import { createProofFiles, newFolderId } from "../../lib/cluster/workspace_proof.ts";
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
