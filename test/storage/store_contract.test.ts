import fc from "fast-check";
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import type { Store, Write } from "../../lib/storage/store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { NO_POSTGRES } from "../support/postgres_server.ts";
import { withPostgresStore } from "../support/postgres_stores.ts";
import { type Driver, keysOf, testStore } from "./store_contract.ts";
import { triesOf } from "../support/seeded_random.ts";

const DRIVERS: readonly Driver[] = [
  {
    name: "memory",
    with: async (use) => {
      const store = createMemoryStore();
      await use(store);
      await store.close();
    },
  },
  {
    name: "sqlite",
    with: async (use) => {
      const folder = mkdtempSync(join(tmpdir(), "postern-store-"));
      try {
        const store = await openSqliteStore({ path: join(folder, "postern.db"), clock: createFakeClock() });
        await use(store);
        await store.close();
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
  },
];

for (const driver of DRIVERS) testStore(driver);

/** Runs `use` with the store on PostgreSQL in every fifth try, and with undefined otherwise and where there is no server. */
const withServer = (index: number, use: (store: Store | undefined) => Promise<void>) =>
  NO_POSTGRES === false && index % 5 === 0 ? withPostgresStore(use) : use(undefined);

test("all drivers agree after any sequence of batches", async () => {
  const name = fc.constantFrom("a", "b", "c");
  const write: fc.Arbitrary<Write> = fc.oneof(
    fc.record({ op: fc.constant("put" as const), collection: name, key: name, body: fc.nat(9) }),
    fc.record({ op: fc.constant("insert" as const), collection: name, key: name, body: fc.nat(9) }),
    fc.record({ op: fc.constant("putIf" as const), collection: name, key: name, version: fc.nat(3), body: fc.nat(9) }),
    fc.record({ op: fc.constant("check" as const), collection: name, key: name, version: fc.nat(3) }),
    fc.record({ op: fc.constant("delete" as const), collection: name, key: name }),
    fc.record({
      op: fc.constant("append" as const),
      stream: name,
      expectedSeq: fc.nat(3),
      records: fc.array(fc.nat(9), { maxLength: 2 }),
    }),
    fc.record({ op: fc.constant("drop" as const), stream: name }),
  );
  const state = async (store: Store) => ({
    records: await Promise.all(
      ["a", "b", "c"].map((collection) => store.scan(collection, { order: "created", limit: 100 })),
    ),
    streams: await Promise.all(["a", "b", "c"].map((stream) => store.read(stream, { afterSeq: 0, limit: 100 }))),
  });
  const folder = mkdtempSync(join(tmpdir(), "postern-store-"));
  let count = 0;
  try {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(write, { maxLength: 4 }), { maxLength: 12 }), async (batches) => {
        const memory = createMemoryStore();
        const sqlite = await openSqliteStore({ path: join(folder, `${count++}.db`), clock: createFakeClock() });
        try {
          await withServer(count, async (server) => {
            const others = server === undefined ? [sqlite] : [sqlite, server];
            const [inMemory, ...inOthers] = await Promise.all(
              [memory, ...others].map((store) => Promise.all(batches.map((batch) => store.batch(batch)))),
            );
            for (const outcomes of inOthers) assert.deepEqual(outcomes, inMemory);
            for (const store of others) assert.deepEqual(await state(store), await state(memory));
          });
        } finally {
          await sqlite.close();
        }
      }),
      { numRuns: triesOf(20) },
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("all drivers find the same texts, and in the same order where none was replaced", async () => {
  const word = fc.constantFrom(
    "gate",
    "gates",
    "gateway",
    "door",
    "Ölfaß",
    "olfass",
    "the",
    "a",
    "x1",
    "x",
    "备份库",
    "备",
    "서버를",
  );
  const text = fc.array(word, { minLength: 1, maxLength: 8 }).map((words) => words.join(" "));
  const place = fc.constantFrom("m:a/1", "m:a/2", "m:b/1", "m:b/2", "m:c", "n:a/1", "n:a/2");
  const put = fc.tuple(place, fc.option(text, { nil: undefined }));
  const query = fc.record({
    query: fc.array(word, { minLength: 1, maxLength: 3 }).map((words) => words.join(" ")),
    prefix: fc.constantFrom("", "a/", "b/", "a/1", "c"),
    limit: fc.integer({ min: 1, max: 5 }),
  });
  const folder = mkdtempSync(join(tmpdir(), "postern-store-"));
  let count = 0;
  try {
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(fc.array(put, { maxLength: 20 }), fc.uniqueArray(put, { selector: ([at]) => at })),
        fc.array(query, { minLength: 1, maxLength: 5 }),
        async (puts, queries) => {
          const memory = createMemoryStore();
          const sqlite = await openSqliteStore({ path: join(folder, `${count++}.db`), clock: createFakeClock() });
          try {
            await withServer(count, async (server) => {
              for (const store of server === undefined ? [memory, sqlite] : [memory, sqlite, server]) {
                await Promise.all(puts.map(([at, text], body) => {
                  const [collection = "", key = ""] = at.split(":");
                  return store.batch([{ op: "put", collection, key, body, ...(text === undefined ? {} : { text }) }]);
                }));
              }
              // FTS5 goes on counting replaced texts where it weighs how rare a word is
              const inOrder = new Set(puts.map(([at]) => at)).size === puts.length;
              for (const query of queries) {
                const asked = inOrder ? query : { ...query, limit: 100 };
                const [onDisk, inMemory] = [await sqlite.search("m", asked), await memory.search("m", asked)];
                if (inOrder) assert.deepEqual(onDisk, inMemory);
                else assert.deepEqual(keysOf(onDisk).sort(), keysOf(inMemory).sort());
                // The sums of scores may differ in their last digit, and so the order of texts that are as good
                const inServer = await server?.search("m", { ...query, limit: 100 });
                if (inServer === undefined) continue;
                assert.deepEqual(
                  keysOf(inServer).sort(),
                  keysOf(await memory.search("m", { ...query, limit: 100 })).sort(),
                );
              }
            });
          } finally {
            await sqlite.close();
          }
        },
      ),
      { numRuns: triesOf(25) },
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});
