import assert from "node:assert/strict";
import { chmodSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { prepareDataDir } from "../../lib/config/folders.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const modeOf = (path: string) => statSync(path).mode & 0o777;

test("a new data directory is for its user alone", () =>
  withTemporaryFolder(async (folder) => {
    await prepareDataDir(join(folder, "a/b"));
    assert.equal(modeOf(join(folder, "a/b")), 0o700);
  }));

test("an open directory is closed when it is empty or Postern's own, and refused when it is anything else", () =>
  withTemporaryFolder(async (folder) => {
    for (
      const [name, file] of [
        ["empty", undefined],
        ["own", "gateway.lock"],
        ["set", "configuration.lock"],
      ] as const
    ) {
      const path = join(folder, name);
      mkdirSync(path);
      chmodSync(path, 0o755);
      if (file !== undefined) writeFileSync(join(path, file), "");
      await prepareDataDir(path);
      assert.equal(modeOf(path), 0o700);
    }
    const shared = join(folder, "shared");
    mkdirSync(shared);
    chmodSync(shared, 0o755);
    writeFileSync(join(shared, "thesis.txt"), "");
    await assert.rejects(prepareDataDir(shared), { code: "data_dir", message: /chmod 700/ });
    assert.equal(modeOf(shared), 0o755);
  }));

test("a file in the place of the data directory is refused", () =>
  withTemporaryFolder(async (folder) => {
    writeFileSync(join(folder, "f"), "");
    await assert.rejects(prepareDataDir(join(folder, "f")), { code: "data_dir" });
  }));
