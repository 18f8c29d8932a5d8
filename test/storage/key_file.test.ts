import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ConfigError } from "../../lib/base/errors.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { loadKeyFile } from "../../lib/storage/key_file.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const random = createSystemRandom();
const load = (path: string) => loadKeyFile(path, random);
const isUnusable = (about: RegExp) => (error: unknown) =>
  error instanceof ConfigError && error.code === "key_file" && about.test(error.message);

test("a missing key is made, mode 0600, and is the same one from then on", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "a.key");
    const key = await load(path);
    assert.equal(key.length, 32);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.deepEqual(await load(path), key);
    assert.deepEqual(new Uint8Array(readFileSync(path)), key);
    assert.deepEqual(readdirSync(folder), ["a.key"]);
  }));

test("the folder is synced once a key is made, and not for one that is there", () =>
  withTemporaryFolder(async (folder) => {
    const synced: string[] = [];
    const syncFolder = async (path: string) => void synced.push(`${path} ${readdirSync(path).join()}`);
    await loadKeyFile(join(folder, "a.key"), random, { syncFolder });
    await loadKeyFile(join(folder, "a.key"), random, { syncFolder });
    assert.deepEqual(synced, [`${folder} a.key`]);
  }));

test("of many who make it at once all get the same key", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "a.key");
    const keys = await Promise.all(Array.from({ length: 20 }, () => load(path)));
    for (const key of keys) assert.deepEqual(key, keys[0]);
    assert.deepEqual(readdirSync(folder), ["a.key"]);
  }));

test("a key of another length is refused and stays as it is", () =>
  withTemporaryFolder(async (folder) => {
    for (const length of [0, 1, 31, 33, 64]) {
      const path = join(folder, `${length}.key`);
      writeFileSync(path, new Uint8Array(length), { mode: 0o600 });
      await assert.rejects(load(path), isUnusable(new RegExp(`"${length}.key".* has ${length} bytes in place of 32`)));
      assert.equal(statSync(path).size, length);
    }
  }));

test("a key that others may read is refused, and says what closes it", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "a.key");
    const key = await load(path);
    for (const mode of [0o640, 0o604, 0o620, 0o666]) {
      chmodSync(path, mode);
      await assert.rejects(load(path), isUnusable(/others may read or write it .*chmod 600/));
    }
    chmodSync(path, 0o600);
    assert.deepEqual(await load(path), key);
  }));

test("a link, a folder and a place that is not there are refused", () =>
  withTemporaryFolder(async (folder) => {
    const real = join(folder, "real.key");
    await load(real);
    symlinkSync(real, join(folder, "link.key"));
    await assert.rejects(load(join(folder, "link.key")), isUnusable(/symbolic link/));
    symlinkSync(join(folder, "nowhere"), join(folder, "dangling.key"));
    await assert.rejects(load(join(folder, "dangling.key")), isUnusable(/symbolic link/));
    mkdirSync(join(folder, "folder.key"));
    await assert.rejects(load(join(folder, "folder.key")), isUnusable(/no regular file/));
    await assert.rejects(load(join(folder, "missing", "a.key")), isUnusable(/cannot be made/));
  }));
