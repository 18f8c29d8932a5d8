import assert from "node:assert/strict";
import { chmodSync, chownSync, existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  type ControlRecord,
  readControlFile,
  removeControlFile,
  writeControlFile,
} from "../../lib/host/control_file.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const RECORD: ControlRecord = {
  address: "http://127.0.0.1:42617/",
  pid: process.pid,
  token: "pst_secret",
  started_at: "2026-01-01T00:00:00.000Z",
  version: "0.1.0",
  workspace: "/work",
};

test("what was written is read, from a file for its user alone", () =>
  withTemporaryFolder(async (folder) => {
    await writeControlFile(folder, RECORD);
    assert.deepEqual(await readControlFile(folder), RECORD);
    assert.equal(statSync(join(folder, "control.json")).mode & 0o777, 0o600);
  }));

test("a file left open by someone else is replaced by a closed one", () =>
  withTemporaryFolder(async (folder) => {
    writeFileSync(join(folder, "control.json"), "{}", { mode: 0o644 });
    await writeControlFile(folder, RECORD);
    assert.equal(statSync(join(folder, "control.json")).mode & 0o777, 0o600);
  }));

test("a record is not believed when others can read it, its process is gone, or its address is not this machine", () =>
  withTemporaryFolder(async (folder) => {
    assert.equal(await readControlFile(folder), undefined);
    await writeControlFile(folder, RECORD);
    chmodSync(join(folder, "control.json"), 0o644);
    assert.equal(await readControlFile(folder), undefined);
    for (
      const wrong of [{ pid: 2 ** 30 }, { address: "http://evil.example:1/" }, {
        address: "http://127.0.0.1.evil.example:1/",
      }, { token: "" }]
    ) {
      await writeControlFile(folder, { ...RECORD, ...wrong });
      assert.equal(await readControlFile(folder), undefined, JSON.stringify(wrong));
    }
  }));

test("a record that another user wrote is not believed", {
  skip: process.getuid?.() !== 0 && "only root can give a file away",
}, () =>
  withTemporaryFolder(async (folder) => {
    await writeControlFile(folder, RECORD);
    chownSync(join(folder, "control.json"), 65_534, 65_534);
    assert.equal(await readControlFile(folder), undefined);
  }));

test("a record outside the loopback interface has no token, and no other one is believed", () =>
  withTemporaryFolder(async (folder) => {
    for (const address of ["http://192.0.2.5:42617/", "http://[2001:db8::1]:42617/", "http://gateway.lan:80/"]) {
      await writeControlFile(folder, { ...RECORD, address, token: "" });
      assert.equal((await readControlFile(folder))?.address, address);
      await writeControlFile(folder, { ...RECORD, address });
      assert.equal(await readControlFile(folder), undefined, address);
    }
  }));

test("a gateway removes its own record and leaves that of another process", () =>
  withTemporaryFolder(async (folder) => {
    await writeControlFile(folder, RECORD);
    await removeControlFile(folder, RECORD.pid + 1);
    assert.equal(existsSync(join(folder, "control.json")), true);
    await removeControlFile(folder, RECORD.pid);
    assert.equal(existsSync(join(folder, "control.json")), false);
  }));
