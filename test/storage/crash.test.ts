import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { runFixture } from "../support/run_fixture.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

/** Runs the writer until it has acknowledged `count` writes, kills it, and gives all it acknowledged: stream to last seq. */
async function writeUntilKilled(path: string, count: number): Promise<Map<string, number>> {
  const writer = runFixture("storage/acknowledging_writer.ts", path);
  const acknowledged = new Map<string, number>();
  let seen = 0;
  let killed: Promise<void> | undefined;
  for await (const line of writer.lines) {
    // The last line may have been cut by the kill
    const match = /^(stream\d+) (\d+)$/.exec(line);
    if (match?.[1] !== undefined) acknowledged.set(match[1], Number(match[2]));
    if (++seen >= count) killed ??= writer.kill();
  }
  await killed;
  return acknowledged;
}

test("every acknowledged batch is there after SIGKILL, whole, and nothing else is half there", async () => {
  for (const count of [1, 137, 1500]) {
    await withTemporaryFolder(async (folder) => {
      const path = join(folder, "postern.db");
      const acknowledged = await writeUntilKilled(path, count);
      assert.ok(acknowledged.size > 0);
      const store = await openSqliteStore({ path, clock: createFakeClock() });
      for (let index = 0; index < 20; index++) {
        const stream = `stream${index}`;
        const seqs: number[] = [];
        for (;;) {
          const page = await store.read(stream, { afterSeq: seqs.length, limit: 1000 });
          seqs.push(...page.map(({ seq }) => seq));
          if (page.length < 1000) break;
        }
        assert.ok(seqs.length >= (acknowledged.get(stream) ?? 0), `${stream} lost an acknowledged record`);
        assert.equal((await store.get("last", stream))?.body, seqs.length === 0 ? undefined : seqs.length);
      }
      await store.close();
    });
  }
});
