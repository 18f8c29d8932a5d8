import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { Pairing } from "../../lib/access/pairing.ts";
import { Tokens } from "../../lib/access/tokens.ts";
import { HttpError } from "../../lib/base/errors.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

async function setUp(store: Store = createMemoryStore()) {
  const clock = createFakeClock();
  const random = createSeededRandom();
  const tokens = await Tokens.open({ store, clock, random });
  const restart = () => new Pairing({ store, clock, random, tokens, ttlSeconds: () => 3600 });
  return { store, clock, tokens, restart, pairing: restart() };
}

const WRONG = "WRNG-CDEF";

const refused = (code: string, status: number, retryAfter?: string) => (error: unknown) => {
  assert.ok(error instanceof HttpError, String(error));
  assert.deepEqual([error.code, error.status, error.headers["retry-after"]], [code, status, retryAfter]);
  return true;
};
const invalid = refused("pairing_code_invalid", 403);
const locked = (seconds: number) => refused("pairing_locked", 429, String(seconds));

test("a code is exchanged for an admin token, once", async () => {
  const { pairing, tokens } = await setUp();
  const { code, expiresInSeconds } = await pairing.createCode();
  assert.match(code, /^[A-HJ-NP-Z2-9]{4}-[A-HJ-NP-Z2-9]{4}$/);
  assert.equal(expiresInSeconds, 3600);
  const { token, record } = await pairing.redeem(code);
  assert.deepEqual(tokens.verify(token), { tokenId: record.id, scopes: ["admin"] });
  await assert.rejects(pairing.redeem(code), invalid);
  assert.equal(await tokens.count(), 1);
});

test("a code is read without case, hyphens and spaces", async () => {
  const { pairing } = await setUp();
  const spellings = [
    (code: string) => code.toLowerCase(),
    (code: string) => code.replace("-", ""),
    (code: string) => ` ${code.toLowerCase().split("").join(" ")}\t`,
    (code: string) => code.split("").join("-"),
  ];
  for (const spell of spellings) assert.ok(await pairing.redeem(spell((await pairing.createCode()).code)));
});

test("no code is another answer than a wrong one, and no miss", async () => {
  const { pairing } = await setUp();
  const { code } = await pairing.createCode();
  for (const missing of [null, "", "   "]) {
    for (let attempt = 0; attempt < 5; attempt++) {
      await assert.rejects(pairing.redeem(missing), refused("pairing_code_required", 401));
    }
  }
  await pairing.redeem(code);
});

for (const driver of ["memory", "sqlite"]) {
  test(`of 100 parallel redeems of the right code exactly one gets a token (${driver})`, async () => {
    await withTemporaryFolder(async (folder) => {
      const store = driver === "memory"
        ? createMemoryStore()
        : await openSqliteStore({ path: join(folder, "postern.db"), clock: createFakeClock() });
      const { restart, tokens } = await setUp(store);
      // Several faces of one store, as if more than one process answered
      const pairings = Array.from({ length: 10 }, restart);
      const { code } = await restart().createCode();
      const results = await Promise.allSettled(
        Array.from({ length: 100 }, (_, index) => pairings[index % 10]?.redeem(code)),
      );
      assert.equal(results.filter(({ status }) => status === "fulfilled").length, 1);
      for (const result of results) if (result.status === "rejected") assert.ok(result.reason instanceof HttpError);
      assert.deepEqual([await tokens.count(), await store.count("tokens")], [1, 1]);
      await store.close();
    });
  });
}

test("the store holds no code", async () => {
  const { pairing, store } = await setUp();
  const { code } = await pairing.createCode();
  const kept = JSON.stringify(await store.scan("pairing_codes", { limit: 10 }));
  assert.ok(!kept.includes(code) && !kept.includes(code.replace("-", "")));
});

test("a code expires", async () => {
  const { pairing, clock } = await setUp();
  const { code } = await pairing.createCode();
  await clock.advance(3_599_999);
  const { code: second } = await pairing.createCode();
  await assert.rejects(pairing.redeem(code), invalid);
  await clock.advance(3_600_000);
  await assert.rejects(pairing.redeem(second), invalid);
});

test("a new code takes the place of the earlier one", async () => {
  const { pairing } = await setUp();
  const first = await pairing.createCode();
  const second = await pairing.createCode();
  await assert.rejects(pairing.redeem(first.code), invalid);
  assert.ok(await pairing.redeem(second.code));
});

test("after five misses even the right code waits 300 seconds, and then counts again", async () => {
  const { pairing, clock } = await setUp();
  const { code } = await pairing.createCode();
  for (let miss = 0; miss < 5; miss++) await assert.rejects(pairing.redeem(WRONG), invalid);
  await assert.rejects(pairing.redeem(code), locked(300));
  await clock.advance(299_001);
  await assert.rejects(pairing.redeem(code), locked(1));
  await clock.advance(999);
  for (let miss = 0; miss < 4; miss++) await assert.rejects(pairing.redeem(WRONG), invalid);
  assert.ok(await pairing.redeem(code));
});

test("100 parallel guesses get five tries, not more", async () => {
  const { pairing } = await setUp();
  const { code } = await pairing.createCode();
  const guesses = Array.from(
    { length: 100 },
    (_, index) => index === 50 ? code : `WRNG-${String(index).padStart(4, "A")}`,
  );
  const results = await Promise.allSettled(guesses.map((guess) => pairing.redeem(guess)));
  const codes = results.map((result) => result.status === "rejected" ? (result.reason as HttpError).code : "paired");
  assert.equal(codes.filter((result) => result === "pairing_code_invalid").length, 5);
  assert.equal(codes.filter((result) => result === "pairing_locked").length, 95);
});

test("misses and the lock survive a restart; a new code clears both", async () => {
  const { pairing, restart } = await setUp();
  const { code } = await pairing.createCode();
  for (let miss = 0; miss < 3; miss++) await assert.rejects(pairing.redeem(WRONG), invalid);
  for (let miss = 0; miss < 2; miss++) await assert.rejects(restart().redeem(WRONG), invalid);
  await assert.rejects(restart().redeem(code), locked(300));
  const fresh = await restart().createCode();
  assert.ok(await pairing.redeem(fresh.code));
});

test("no lock holds for the code that an operator asked for; it works once and expires", async () => {
  const { pairing, restart, clock } = await setUp();
  const by = { via: "http", tokenId: "control" } as const;
  const { code } = await pairing.createCode(by);
  assert.match(code, /^([A-HJ-NP-Z2-9]{4}-){3}[A-HJ-NP-Z2-9]{4}$/);
  for (let miss = 0; miss < 5; miss++) await assert.rejects(pairing.redeem(WRONG), invalid);
  await assert.rejects(pairing.redeem(WRONG), locked(300));
  assert.deepEqual([pairing.isLongCode(code), pairing.isLongCode(WRONG), pairing.isLongCode(null)], [
    true,
    false,
    false,
  ]);
  await assert.rejects(pairing.redeem("WRNG-CDEF-GHJK-LMNP"), invalid);
  assert.ok(await restart().redeem(code));
  await assert.rejects(pairing.redeem(code), invalid);
  const { code: late } = await pairing.createCode(by);
  await clock.advance(3_600_000);
  await assert.rejects(pairing.redeem(late), invalid);
});

test("while the count of misses cannot be read no code counts, and a new code makes it again", async () => {
  const { pairing, store } = await setUp();
  const { code } = await pairing.createCode();
  await store.batch([{ op: "put", collection: "pairing_guard", key: "guard", body: { v: 9 } }]);
  await assert.rejects(pairing.redeem(code), locked(300));
  assert.deepEqual(store.unreadable.list().map(({ collection, key }) => `${collection} ${key}`), [
    "pairing_guard guard",
  ]);
  const fresh = await pairing.createCode();
  assert.ok(await pairing.redeem(fresh.code));
  assert.equal(store.unreadable.count(), 0);
});

test("a success forgets the misses before it", async () => {
  const { pairing, store } = await setUp();
  const { code } = await pairing.createCode();
  for (let miss = 0; miss < 4; miss++) await assert.rejects(pairing.redeem(WRONG), invalid);
  await pairing.redeem(code);
  assert.equal(await store.count("pairing_guard"), 0);
  for (let miss = 0; miss < 5; miss++) await assert.rejects(pairing.redeem(code), invalid);
  await assert.rejects(pairing.redeem(code), locked(300));
});

test("strange codes are plain misses", async () => {
  const { pairing } = await setUp();
  for (const code of ["x".repeat(1_000_000), "ß".repeat(8), "\ud800", "ABCD-EFGI\0", "__proto__", "ﬀﬀﬀﬀ"]) {
    await pairing.createCode();
    await assert.rejects(pairing.redeem(code), invalid);
  }
});

test("a code that could not be turned into a token is good for another try", async () => {
  const { pairing, tokens } = await setUp();
  for (let index = 0; index < 1000; index++) await tokens.issue({ scopes: ["chat"], label: "x" });
  const { code } = await pairing.createCode();
  await assert.rejects(pairing.redeem(code), refused("conflict", 409));
  await tokens.revokeAll();
  assert.ok(await pairing.redeem(code));
});
