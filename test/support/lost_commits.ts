import assert from "node:assert/strict";
import { type Cut, startCuttingProxy } from "./cutting_proxy.ts";
import { openTestDatabase, openTestStore, withSchema } from "./postgres_stores.ts";
import { createSeededRandom } from "./seeded_random.ts";
import type { Store } from "../../lib/storage/store.ts";

const CUTS: readonly Cut[] = ["before", "at_once", "after", "late"];
const WRITERS = 4;

/**
 * Writes to a store through a proxy that cuts connections after a commit was sent, until there were `count` cuts, and compares each answer
 * with what the database has in the end: everything that was answered is there, and nothing is there twice.
 */
export async function loseCommits(count: number): Promise<{ readonly cuts: number; readonly batches: number }> {
  const random = createSeededRandom();
  let cuts = 0;
  let batches = 0;
  await withSchema(async (url, schema) => {
    const direct = new URL(url);
    // The tables are there before the first cut
    await (await openTestStore(await openTestDatabase(url), schema)).close();
    const proxy = await startCuttingProxy(Number(direct.port), (sent) => {
      const [dice = 0, kind = 0] = random.bytes(2);
      return sent.includes("write_group") && dice < 128 ? CUTS[kind % CUTS.length] : undefined;
    });
    direct.port = String(proxy.port);
    const store = await openTestStore(await openTestDatabase(direct.href, { poolSize: WRITERS * 2 }), schema);
    try {
      const written = await Promise.all(Array.from({ length: WRITERS }, async (_, writer) => {
        let length = 0;
        while (proxy.cuts() < count) await writeOnce(store, { writer, at: length++ });
        return length;
      }));
      cuts = proxy.cuts();
      batches = written.reduce((sum, length) => sum + length, 0);
      await proxy.close();
      await compare(await openTestStore(await openTestDatabase(url), schema), written);
    } finally {
      await store.close();
    }
  });
  return { cuts, batches };
}

interface Place {
  readonly writer: number;
  /** Number of the batch, from 0 */
  readonly at: number;
}

/** Writes one batch, which is refused when it was written already, and expects that it is taken exactly once. */
async function writeOnce(store: Store, { writer, at }: Place): Promise<void> {
  for (;;) {
    try {
      const isWritten = await store.batch([
        { op: "append", stream: `s${writer}`, expectedSeq: at, records: [at] },
        { op: "insert", collection: "c", key: `${writer}/${at}`, body: at },
        ...at === 0
          ? [{ op: "insert", collection: "n", key: `${writer}`, body: 0 } as const]
          : [{ op: "putIf", collection: "n", key: `${writer}`, version: at, body: at } as const],
      ]);
      assert.equal(isWritten, true, `batch ${at} of writer ${writer} was written, and then refused`);
      return;
    } catch (error) {
      // Refused before it was sent, or cut off as often as a writer tries: nothing was written, so it is written again
      if ((error as { readonly code?: string }).code !== "storage_unavailable") throw error;
      assert.equal(await untilRead(() => store.get("c", `${writer}/${at}`)), undefined, "refused, and yet written");
      await untilRead(() => store.count("c"));
    }
  }
}

/** Reads again while the store refuses reads. */
async function untilRead<T>(read: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await read();
    } catch (error) {
      if ((error as { readonly code?: string }).code !== "storage_unavailable") throw error;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
}

async function compare(store: Store, written: readonly number[]): Promise<void> {
  try {
    for (const [writer, length] of written.entries()) {
      assert.equal(await store.count("c", `${writer}/`), length);
      assert.equal((await store.get("n", `${writer}`))?.version, length);
      let seen = 0;
      for (;;) {
        const page = await store.read(`s${writer}`, { afterSeq: seen, limit: 1_000 });
        if (page.length === 0) break;
        for (const { seq, body } of page) assert.deepEqual([seq, body], [++seen, seen - 1]);
      }
      assert.equal(seen, length);
    }
  } finally {
    await store.close();
  }
}
