import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { createStoredRuns } from "../../../lib/runs/journal/stored_runs.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Write } from "../../../lib/storage/store.ts";
import { triesOf } from "../../support/seeded_random.ts";
import { ask, readAll, supervised, textIn, typesOf } from "../../support/supervised.ts";

/** Returns the events a follower sees until the end; leaves after `max` events. */
async function followed(
  runs: RunSupervisor,
  id: string,
  { afterSeq = 0, max = Infinity, signal = new AbortController().signal, into: events = [] as AgentEvent[] } = {},
): Promise<AgentEvent[]> {
  const batches = await runs.follow(id, { afterSeq, signal });
  for await (const batch of batches ?? assert.fail("The run is unknown")) {
    events.push(...batch);
    if (events.length >= max) break;
  }
  return events;
}

const LONG = { text: Array.from({ length: 2000 }, (_, i) => `${i} `) };

describe("following a run", () => {
  test("of the past gives its journal from any seq on", async () => {
    const store = createMemoryStore();
    const before = supervised([{ text: ["a", "b"], toolCalls: [{ name: "look" }] }, LONG], {
      store,
      tools: [{ name: "look" }],
    });
    const handle = await before.runs.start(ask("Go", { durable: true }));
    const live = await readAll(handle);
    const { runs } = supervised([], { store, seed: 2 });
    for (const afterSeq of [0, 1, 5, 700, live.length - 1]) {
      assert.deepEqual(await followed(runs, handle.id, { afterSeq }), live.slice(afterSeq));
    }
    assert.deepEqual(await followed(runs, handle.id, { afterSeq: live.length }), []);
    assert.equal(await runs.follow("run_unknown", { afterSeq: 0, signal: new AbortController().signal }), undefined);
  });

  test("whose journal is damaged ends with an error that names the record, which is set aside", async () => {
    const store = createMemoryStore();
    const handle = await supervised(["Yes"], { store }).runs.start(ask("Go", { durable: true }));
    await readAll(handle);
    const stream = `run/${handle.id}`;
    await store.batch([{ op: "drop", stream }, { op: "append", stream, expectedSeq: 0, records: [{ v: 9 }] }]);
    const { runs } = supervised([], { store, seed: 2 });
    await assert.rejects(followed(runs, handle.id), { code: "record_unreadable", message: /"1" of "run\/run_/ });
    assert.deepEqual(store.unreadable.list().map(({ collection, key }) => [collection, key]), [[stream, "1"]]);
  });

  test("at work gives what it says as it comes, to followers early, late and cut off after every event", async () => {
    const { runs, clock } = supervised([{ text: ["a", "b"], toolCalls: [{ name: "look" }] }, {
      text: ["c", "d", "e"],
      chunkDelayMs: 10,
    }], { tools: [{ name: "look" }] });
    const handle = await runs.start(ask("Go", { durable: true }));
    const early = followed(runs, handle.id);
    const cut = (async () => {
      const events: AgentEvent[] = [];
      while (events.at(-1)?.type !== "done") {
        const afterSeq = events.at(-1)?.seq ?? 0;
        events.push(...(await followed(runs, handle.id, { afterSeq, max: 1 })).slice(0, 1));
      }
      return events;
    })();
    await clock.advance(10);
    const late = followed(runs, handle.id);
    await clock.advance(20);
    const events = await early;
    assert.equal(textIn(events), "ab\n\ncde");
    assert.deepEqual(await late, events);
    assert.deepEqual(await cut, events);
    assert.deepEqual(await readAll(handle), events);
  });

  test("that is attached and recorded works the same", async () => {
    const { runs } = supervised(["Hello"]);
    const handle = await runs.start(ask("Hi", { conversationId: "talk" }));
    const events = await readAll(handle);
    assert.deepEqual(await followed(runs, handle.id), events);
  });

  test("ends without an error when the follower leaves while nothing happens", async () => {
    const { runs, clock } = supervised([{ text: "a", hang: "after" }]);
    const handle = await runs.start(ask("Go", { durable: true }));
    const controller = new AbortController();
    const following = followed(runs, handle.id, { signal: controller.signal });
    await clock.advance(0);
    controller.abort(new CancelError("client_gone"));
    assert.deepEqual(typesOf(await following), ["run_start", "turn_start", "text_delta"]);
    handle.cancel("cancelled");
    assert.equal((await runs.ended(handle.id, new AbortController().signal))?.status, "cancelled");
  });

  test("ends without a terminal event when a shutdown suspends the run", async () => {
    const { runs, clock } = supervised([{ text: "a", hang: "after" }]);
    const handle = await runs.start(ask("Go", { durable: true }));
    const following = followed(runs, handle.id);
    const waiting = runs.ended(handle.id, new AbortController().signal);
    await clock.advance(0);
    const drained = Promise.all([runs.drain(10), assert.rejects(waiting, CancelError)]);
    await clock.advance(10);
    await drained;
    assert.deepEqual(typesOf(await following), ["run_start", "turn_start", "text_delta"]);
  });
});

test("nothing of a run is shown before its first record is on disk, so that none of it can be shown twice after a crash", async () => {
  const store = createMemoryStore();
  const disk = Promise.withResolvers<void>();
  const slow = {
    ...store,
    async batch(writes: readonly Write[]) {
      if (writes.some(({ op }) => op === "append")) await disk.promise;
      return await store.batch(writes);
    },
  };
  const { runs, clock } = supervised([{ text: ["a", "b"] }], { store: slow });
  const handle = await runs.start(ask("Go", { durable: true, claim: () => [] }));
  const events: AgentEvent[] = [];
  const following = followed(runs, handle.id, { into: events });
  await clock.advance(100);
  assert.deepEqual(events, []);
  disk.resolve();
  await following;
  assert.equal(textIn(events), "ab");
});

test("a run at work is followed without a look into its journal, and a store that fails ends the follower while the model thinks", async () => {
  const store = createMemoryStore();
  let reads = 0;
  let isDown = false;
  const failing = {
    ...store,
    async batch(writes: readonly Write[]) {
      if (isDown && writes.some(({ op }) => op === "append")) throw new Error("The disk is gone");
      return await store.batch(writes);
    },
    async read(...options: Parameters<typeof store.read>) {
      reads++;
      if (isDown) throw new Error("The disk is gone");
      return await store.read(...options);
    },
  };
  const script = [{ text: ["a", "b"] }, { text: ["a", "b"], hang: "after" as const }];
  const { runs, clock } = supervised(script, { store: failing });
  const whole = await runs.start(ask("Go", { durable: true }));
  assert.equal(textIn(await followed(runs, whole.id)), "ab");
  assert.equal(reads, 0);
  isDown = true;
  const cut = await runs.start(ask("Go", { durable: true, claim: () => [] }));
  let error: unknown;
  void followed(runs, cut.id).catch((thrown: unknown) => (error = thrown));
  await clock.advance(100);
  assert.match(String(error), /disk is gone/);
});

test("a position that a reader had at a crash is one of the run's, with an agent and without", async () => {
  const store = createMemoryStore();
  const before = supervised([{ text: ["a", "b", "c"], hang: "after" }], { store });
  const { id } = await before.runs.start(ask("Go", { durable: true }));
  const [seen] = (await followed(before.runs, id, { max: 5 })).slice(-1);
  for (const runs of [supervised([], { store, seed: 2 }).runs, createStoredRuns({ store })]) {
    const { recorded = 0, furthest = 0 } = await runs.reach(id) ?? {};
    assert.ok(recorded < (seen?.seq ?? 0) && (seen?.seq ?? 0) <= furthest, `${recorded} ${seen?.seq} ${furthest}`);
  }
  const { id: done } = await before.runs.start(ask("Go", { durable: true }));
  await before.runs.cancel(done, "cancelled");
  await before.runs.ended(done, new AbortController().signal);
  const { recorded, furthest } = await createStoredRuns({ store }).reach(done) ?? {};
  assert.deepEqual([recorded !== 0, furthest], [true, recorded]);
});

test("the end of a run is told to whoever waits for it, before and after", async () => {
  const { runs } = supervised(["Hello"]);
  const { signal } = new AbortController();
  const handle = await runs.start(ask("Hi", { durable: true }));
  assert.equal((await runs.ended(handle.id, signal))?.result, "Hello");
  assert.equal((await runs.ended(handle.id, signal))?.result, "Hello");
  assert.equal(await runs.ended("run_unknown", signal), undefined);
});

test("many followers, most of which never read on, keep next to nothing in memory", async () => {
  const text = Array.from({ length: 20_000 }, () => "word ");
  const { runs } = supervised([{ text }]);
  const handle = await runs.start(ask("Go", { durable: true }));
  const slow: AsyncIterator<readonly AgentEvent[]>[] = [];
  for (let i = 0; i < triesOf(100); i++) {
    const batches = await runs.follow(handle.id, { afterSeq: 0, signal: new AbortController().signal });
    slow.push(batches?.[Symbol.asyncIterator]() ?? assert.fail("unknown"));
  }
  await Promise.all(slow.map((follower) => follower.next()));
  await readAll(handle);
  // Every one takes one more array of at most 512 events; none of them has seen the 20,000
  const arrays = await Promise.all(slow.map((follower) => follower.next()));
  assert.ok(arrays.every((array) => (array.value?.length ?? 0) <= 512));
  const patient = slow[0] ?? assert.fail("none");
  let last: AgentEvent | undefined;
  let words = 0;
  for (let next = await patient.next(); next.done !== true; next = await patient.next()) {
    last = next.value.at(-1);
    words += next.value.length;
  }
  assert.equal(last?.type, "done");
  assert.ok(words > 18_000);
  await Promise.all(slow.map((follower) => follower.return?.()));
});
