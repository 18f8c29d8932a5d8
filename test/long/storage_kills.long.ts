import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { markMoved, readMovedMark } from "../../lib/storage/moving/moved_mark.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { type CliMachine, withCliMachine } from "../support/cli_process.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const KILLS = 10;
const MARK = { database: "db/x", schema: "postern", movedAt: "2026-01-01T00:00:00.000Z", copyId: "copy_1" };

/** Runs a command, kills it after a random time, and does so again until that was done `KILLS` times. */
async function killOften(
  machine: CliMachine,
  { argv, onEnd }: {
    readonly argv: readonly string[];
    /** Receives each end of a process. */
    readonly onEnd: (code: number | null, stderr: string) => Promise<void>;
  },
): Promise<void> {
  const random = createSeededRandom(12);
  const started = systemClock.monotonic();
  const first = await machine.spawn(argv).ended;
  const longest = Math.ceil(systemClock.monotonic() - started) + 1;
  await onEnd(first.code, first.stderr);
  for (let kills = 0; kills < KILLS;) {
    const { child, ended } = machine.spawn(argv);
    await Promise.race([systemClock.sleep(new DataView(random.bytes(4).buffer).getUint32(0) % longest), ended]);
    child.kill("SIGKILL");
    const { code, stderr } = await ended;
    if (code === null) kills++;
    await onEnd(code, stderr);
  }
}

test("storage unmark that is killed has taken the mark away or has not, and the next call does", () =>
  withCliMachine(async (machine) => {
    const path = join(machine.dataDir, "postern.db");
    const source = await openSqliteStore({ path, clock: systemClock });
    await source.insertOnce("documents", "one", { v: 1, text: "kept" });
    await source.close();
    const mark = () => {
      const file = new DatabaseSync(path);
      markMoved(file, MARK);
      file.close();
    };
    mark();
    await killOften(machine, {
      argv: ["storage", "unmark", "--yes"],
      async onEnd(code, stderr) {
        assert.ok(code === null || code === 0, stderr);
        const left = readMovedMark(path);
        if (left !== undefined) return assert.equal(left.schema, MARK.schema);
        const store = await openSqliteStore({ path, clock: systemClock });
        assert.equal(await store.count("documents"), 1);
        await store.close();
        mark();
      },
    });
  }));
