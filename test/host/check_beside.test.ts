import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { checkBeside } from "../../lib/host/check_beside.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { withCliMachine } from "../support/cli_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const PAGE_BYTES = 4096;

/** A database whose start works, and one of whose pages is damaged when asked for. */
async function makeDatabase(path: string, { damaged }: { readonly damaged: boolean }): Promise<void> {
  const store = await openSqliteStore({ path, clock: systemClock });
  for (let index = 0; index < 50; index++) {
    await store.insertOnce("documents", `k${index}`, { v: 1, text: `filler-${index}-${"x".repeat(1000)}` });
  }
  await store.close();
  if (!damaged) return;
  const bytes = readFileSync(path);
  const page = Math.floor(bytes.indexOf("filler-25-") / PAGE_BYTES);
  bytes.fill(0xee, page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
  writeFileSync(path, bytes);
}

test("damage that no read of a start meets is found beside it", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    await makeDatabase(path, { damaged: true });
    const check = checkBeside({ path, clock: systemClock, env: process.env });
    await assert.rejects(check.damage, { code: "database_corrupt", file: path });
    check.stop();
  }));

test("a database that is whole says nothing, and a check that is stopped neither", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    await makeDatabase(path, { damaged: false });
    const check = checkBeside({ path, clock: systemClock, env: process.env });
    await check.ended;
    const stopped = checkBeside({ path, clock: systemClock, env: process.env });
    stopped.stop();
    await stopped.ended;
    assert.equal(await Promise.race([check.damage, stopped.damage, Promise.resolve("nothing")]), "nothing");
  }));

test("a gateway on a damaged database ends with exit 78 and says what to do", () =>
  withCliMachine(async (machine) => {
    mkdirSync(machine.dataDir, { recursive: true, mode: 0o700 });
    await makeDatabase(join(machine.dataDir, "postern.db"), { damaged: true });
    const { code, stderr } = await machine.run(["gateway", "--port", "0"]);
    assert.equal(code, 78, stderr);
    assert.match(stderr, /is damaged.*postern restore <file>/);
  }));
