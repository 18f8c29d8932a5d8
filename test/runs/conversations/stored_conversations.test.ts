import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { COOKIE_JARS } from "../../../lib/memory/browser_records.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createStoredConversations, keepConversations } from "../../../lib/runs/conversations/stored_conversations.ts";
import { createConversations } from "../../../lib/runs/conversations/conversations.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

const caller = { via: "http", tokenId: "tok_1", scopes: ["chat"] } as const;

function setUp(days: number, atWork: readonly string[] = []) {
  const store = createMemoryStore();
  const clock = createFakeClock();
  const conversations = createConversations({ store, random: createSeededRandom() });
  const stored = createStoredConversations({ store, runIn: (id) => atWork.includes(id) ? "run_1" : undefined });
  const say = async (id: string) => {
    const time = new Date(clock.now()).toISOString();
    const messages = [{ role: "user", content: "Hi" }] as const;
    await store.batch(await conversations.writes(id, { runId: "run_1", caller, messages, taint: [], time }));
  };
  const keep = () => keepConversations(stored, { clock, log: SILENT, days: () => days });
  const ids = async () => (await stored.list({ limit: 100 })).conversations.map(({ id }) => id).sort();
  return { store, clock, conversations, stored, say, keep, ids };
}

describe("[conversations] retention_days", () => {
  test("forgets what nothing was added to for so long, at the start and daily, with its messages", async () => {
    const { store, clock, say, keep, ids } = setUp(2);
    await say("old");
    await say("kept");
    await store.batch(["old", "kept"].map((key) => COOKIE_JARS.put(key, { v: 1 } as never)));
    await clock.advance(DAY_MS);
    await say("kept");
    await clock.advance(DAY_MS + 1);
    const stop = keep();
    await clock.advance(0);
    assert.deepEqual(await ids(), ["kept"]);
    assert.equal(await store.get(COOKIE_JARS.name, "old"), undefined);
    assert.notEqual(await store.get(COOKIE_JARS.name, "kept"), undefined);
    assert.equal((await store.read("conversation/old", { afterSeq: 0, limit: 10 })).length, 0);
    assert.equal((await store.read("conversation/kept", { afterSeq: 0, limit: 10 })).length, 2);
    await clock.advance(DAY_MS);
    assert.deepEqual(await ids(), []);
    // A forgotten one starts over under its name
    await say("old");
    await clock.advance(DAY_MS);
    assert.deepEqual(await ids(), ["old"]);
    stop();
    await clock.advance(5 * DAY_MS);
    assert.deepEqual(await ids(), ["old"]);
  });

  test("is idempotent, and spares what is at work", async () => {
    const { clock, stored, say, ids } = setUp(1, ["busy"]);
    await say("busy");
    await say("idle");
    await clock.advance(DAY_MS);
    const before = new Date(clock.now()).toISOString();
    const counts = [await stored.forgetBefore(before), await stored.forgetBefore(before)];
    assert.deepEqual([counts, await ids()], [[1, 0], ["busy"]]);
  });

  test("of 0 forgets branches that a crash left without a word, after a day", async () => {
    const { clock, conversations, say, keep, ids } = setUp(0);
    await say("talk");
    const place = { conversationId: "talk", runId: "run_1" };
    const time = new Date(clock.now()).toISOString();
    const next = { runId: "run_next", lostBefore: time };
    const behind = () => conversations.goOnAfter(place, { ...next, caller, time, isBusy: true });
    const [lost, said] = [await behind(), await behind()];
    await say(said);
    keep();
    await clock.advance(DAY_MS);
    assert.deepEqual(await ids(), [lost, said, "talk"].sort());
    await clock.advance(DAY_MS);
    assert.deepEqual(await ids(), [said, "talk"].sort());
  });

  test("of 0 forgets nothing", async () => {
    const { clock, say, keep, ids } = setUp(0);
    await say("old");
    keep();
    await clock.advance(1000 * DAY_MS);
    assert.deepEqual(await ids(), ["old"]);
  });
});
