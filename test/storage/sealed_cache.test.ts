import assert from "node:assert/strict";
import { test } from "node:test";
import type { Driver } from "unstorage";
import fsDriver from "unstorage/drivers/fs-lite";
import memoryDriver from "unstorage/drivers/memory";
import { createTestGateway, scriptedProvider } from "../../handlers/testing/mod.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createDocuments } from "../../lib/storage/documents.ts";
import { readCacheDriver } from "../../lib/storage/sealed_cache.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

/** Documents over a driver, what the driver holds, and what was logged. */
function documentsOver(driver: Driver, store = createMemoryStore()) {
  const lines: string[] = [];
  const clock = createFakeClock();
  const log = { warn: (line: string) => void lines.push(line) };
  const cache = { driver: readCacheDriver(driver), clock, random: createSystemRandom(), log };
  return { documents: createDocuments({ store, cache }), clock, lines, store };
}

/** The map behind a driver in memory. */
const heldBy = (driver: Driver) => driver.getInstance?.() as Map<string, string>;

test("values lie with the driver, and say nothing there", async () => {
  const driver = memoryDriver();
  const { documents, store } = documentsOver(driver);
  for (const family of ["models", "pages", "robots", "skills"] as const) {
    await documents.set(`${family}/secret-name`, ["secret value", 1]);
    assert.deepEqual(await documents.get(`${family}/secret-name`), ["secret value", 1]);
    assert.equal(await documents.get(`${family}/other`), undefined);
  }
  await documents.set("models/secret-name", ["another"]);
  assert.deepEqual(await documents.get("models/secret-name"), ["another"]);
  const held = heldBy(driver);
  assert.equal(held.size, 4, "a later value takes the place of an earlier one");
  for (const [name, value] of held) assert.match(`${name} ${value}`, /^postern-[0-9a-f]{32} [A-Za-z0-9+/]{16}\.\S+$/);
  // The zone that was told is no copy of anything: it stays with the records
  await documents.set("zones/cron", { zone: "UTC" });
  assert.equal(held.size, 4);
  // A gateway with other records has other values under the same driver
  const other = documentsOver(driver);
  assert.equal(await other.documents.get("models/secret-name"), undefined);
  await other.documents.set("models/secret-name", ["of the other"]);
  assert.deepEqual(await documents.get("models/secret-name"), ["another"]);
  assert.deepEqual(await documentsOver(driver, store).documents.get("models/secret-name"), ["another"], "a restart");
});

test("a value that was altered, exchanged, put back, or is no text is none, and is replaced", async () => {
  const driver = memoryDriver();
  const held = heldBy(driver);
  const { documents, lines } = documentsOver(driver);
  await documents.set("models/a", ["first"]);
  const [[name = "", first = ""] = []] = [...held];
  await documents.set("models/b", ["b"]);
  const [, [, ofOther = ""] = []] = [...held];
  await documents.set("models/a", ["second"]);
  const second = held.get(name) ?? "";
  const letter = second.at(-6) === "A" ? "B" : "A";
  const attacks: readonly (readonly [what: string, value: unknown])[] = [
    ["put back", first],
    ["exchanged", ofOther],
    ["altered", `${second.slice(0, -6)}${letter}${second.slice(-5)}`],
    ["cut", second.slice(0, -4)],
    ["in the clear", JSON.stringify(["second"])],
    ["too long", `${second}${"A".repeat(5_000_000)}`],
    ["an object", { nonce: "", data: "" }],
    ["a number", 1],
    ["nothing", ""],
  ];
  for (const [what, value] of attacks) {
    held.set(name, value as string);
    assert.equal(await documents.get("models/a"), undefined, what);
  }
  held.set(name, second);
  assert.deepEqual(await documents.get("models/a"), ["second"]);
  held.set(name, first);
  await documents.set("models/a", ["third"]);
  assert.deepEqual(await documents.get("models/a"), ["third"]);
  assert.deepEqual(lines, []);
});

test("a driver that hangs or throws costs one wait, is logged once, and is asked again later", async () => {
  for (const how of ["hangs", "throws", "rejects"] as const) {
    const memory = memoryDriver();
    let isBad = false;
    let asked = 0;
    const answer = <T>(work: () => T): T | Promise<T> => {
      asked++;
      if (!isBad) return work();
      if (how === "throws") throw new Error("no");
      return how === "hangs" ? new Promise<T>(() => {}) : Promise.reject(new Error("no"));
    };
    const driver: Driver = {
      ...memory,
      getItem: (key, options) => answer(() => memory.getItem(key, options)),
      setItem: (key, value, options) => answer(() => memory.setItem?.(key, value, options)),
    };
    const { documents, clock, lines } = documentsOver(driver);
    const get = async () => {
      const found = documents.get("models/a");
      await clock.advance(1_000);
      return await found;
    };
    await documents.set("models/a", ["kept"]);
    isBad = true;
    asked = 0;
    for (let time = 0; time < 3; time++) assert.equal(await get(), undefined, how);
    await documents.set("models/a", ["lost"]);
    assert.deepEqual([asked, lines.length], [1, 1], how);
    await clock.advance(30_000);
    assert.equal(await get(), undefined);
    assert.deepEqual([asked, lines.length], [2, 1], how);
    isBad = false;
    await clock.advance(30_000);
    assert.deepEqual(await get(), ["kept"], how);
    isBad = true;
    assert.equal(await get(), undefined);
    assert.equal(lines.length, 2, "a new failure is told again");
    assert.equal(clock.pending(), 0);
  }
});

test("createGateway() keeps lists of models with a driver over files, and refuses what is no driver", async () => {
  await withTemporaryFolder(async (base) => {
    const driver = fsDriver({ base });
    const model = scriptedProvider([]);
    const gateway = await createTestGateway({ providers: { model }, cache: driver });
    try {
      assert.equal((await gateway.request("/v1/models")).status, 200);
      const names = await driver.getKeys("", {});
      assert.ok(names.length > 0 && names.every((name: string) => name.startsWith("postern-")), names.join());
    } finally {
      await gateway.close();
    }
  });
  for (const wrong of [{}, { getItem: () => null }, null, "redis"]) {
    const created = createTestGateway({ cache: wrong as unknown as Driver });
    await assert.rejects(created, (error) => error instanceof ConfigError && error.code === "cache_invalid");
  }
});
