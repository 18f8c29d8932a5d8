import assert from "node:assert/strict";
import { test } from "node:test";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { isStorageAway, UnknownWriteError } from "../../../lib/storage/read_records.ts";
import { BatchWriter } from "../../../lib/storage/postgres/batch_writer.ts";
import { DatabaseAwayError } from "../../../lib/storage/postgres/database_errors.ts";
import type { PostgresDatabase } from "../../../lib/storage/postgres/postgres_database.ts";
import { ServerWatch } from "../../../lib/storage/postgres/server_watch.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";

const WRITES = [{ op: "delete", collection: "things", key: "one" }] as const;

/** Writes once, with these answers of the server to the statement and to what is asked after it; the last one again and again. */
async function writeWith(answers: readonly (Error | readonly boolean[])[]): Promise<unknown> {
  const clock = createFakeClock();
  const random = createSeededRandom();
  let asked = 0;
  const query = () => {
    const answer = answers[Math.min(asked++, answers.length - 1)];
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve([{ outcomes: answer }]);
  };
  // The writer and the watch use nothing else of a database
  const database = { name: "test", query } as unknown as PostgresDatabase;
  const watch = new ServerWatch(database, { clock, random, log: SILENT });
  const writer = new BatchWriter({ database, schema: "postern", watch, clock, random });
  const written = writer.write(WRITES).catch((error: unknown) => error);
  await clock.advance(90_000);
  watch.stop();
  return await written;
}

const away = (wasSent: boolean) => new DatabaseAwayError("Lost", { wasSent, cause: undefined });

test("a write whose answer was lost, and could not be asked for, is told apart from one that was never made", async () => {
  const [lost, unsent] = [await writeWith([away(true), away(false)]), await writeWith([away(false)])];
  assert.deepEqual([isStorageAway(lost), isStorageAway(unsent)], [true, true]);
  assert.deepEqual([lost instanceof UnknownWriteError, unsent instanceof UnknownWriteError], [true, false]);
});

test("a standby that is not promoted yet is asked again for the outcome of a write", async () => {
  const readOnly = Object.assign(new Error("cannot execute INSERT in a read-only transaction"), {
    code: "25006",
    severity: "ERROR",
  });
  assert.equal(await writeWith([away(true), readOnly, readOnly, [true]]), true);
});
