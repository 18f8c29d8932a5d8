import assert from "node:assert/strict";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ConfigError } from "../../lib/base/errors.ts";
import { takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { runFixture } from "../support/run_fixture.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

async function firstLine(lines: AsyncIterable<string>): Promise<string> {
  for await (const line of lines) return line;
  return "";
}

test("one lock at a time, free again after release(), in files of the owner alone", async () => {
  await withTemporaryFolder((folder) => {
    const dataDir = join(folder, "data");
    const lock = takeGatewayLock(dataDir);
    assert.ok(lock);
    assert.equal(statSync(dataDir).mode & 0o777, 0o700);
    assert.equal(statSync(join(dataDir, "gateway.lock")).mode & 0o777, 0o600);
    assert.equal(takeGatewayLock(dataDir), undefined);
    lock.release();
    lock.release();
    const again = takeGatewayLock(dataDir);
    assert.ok(again);
    again.release();
  });
});

test("another process is refused, also after a second attempt in the process that holds it", async () => {
  await withTemporaryFolder(async (folder) => {
    const lock = takeGatewayLock(folder);
    assert.equal(takeGatewayLock(folder), undefined);
    const other = runFixture("storage/lock_holder.ts", folder);
    assert.equal(await firstLine(other.lines), "refused");
    await other.kill();
    lock?.release();
  });
});

test("the lock of a killed process is free", async () => {
  await withTemporaryFolder(async (folder) => {
    const holder = runFixture("storage/lock_holder.ts", folder);
    assert.equal(await firstLine(holder.lines), "held");
    assert.equal(takeGatewayLock(folder), undefined);
    await holder.kill();
    const lock = takeGatewayLock(folder);
    assert.ok(lock);
    lock.release();
  });
});

test("a lock file that cannot be one is a clear error", async () => {
  await withTemporaryFolder((folder) => {
    mkdirSync(join(folder, "gateway.lock"));
    const isUnusable = (error: unknown) =>
      error instanceof ConfigError && error.code === "database_unusable" && error.message.includes("gateway.lock");
    assert.throws(() => takeGatewayLock(folder), isUnusable);
    writeFileSync(join(folder, "file"), "");
    assert.throws(() => takeGatewayLock(join(folder, "file")), isUnusable);
  });
});
