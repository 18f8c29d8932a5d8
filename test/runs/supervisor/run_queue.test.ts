import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { HttpError } from "../../../lib/base/errors.ts";
import { RunQueue } from "../../../lib/runs/supervisor/run_queue.ts";

const signal = new AbortController().signal;
const free = { conversationId: null, isChild: false };
const inTalk = { conversationId: "talk", isChild: false };
const limits = (given: Partial<{ maxConcurrent: number; maxQueued: number; maxPerConversation: number }>) => () => ({
  maxConcurrent: 16,
  maxQueued: 1000,
  maxPerConversation: 8,
  ...given,
});
const isOverloaded = (error: unknown) =>
  error instanceof HttpError && error.status === 503 && error.code === "overloaded";

describe("the run queue", () => {
  test("lets max_concurrent runs work and the next ones wait in order", async () => {
    const queue = new RunQueue(limits({ maxConcurrent: 2 }));
    const places = [1, 2, 3, 4].map(() => queue.enter(free));
    assert.deepEqual(places.map((place) => place.ready()), [true, true, false, false]);
    const third = places[2]?.wait(signal);
    places[0]?.leave();
    await third;
    assert.deepEqual(places.map((place) => place.ready()), [true, true, true, false]);
  });

  test("refuses one more than max_queued", () => {
    const queue = new RunQueue(limits({ maxConcurrent: 1, maxQueued: 1 }));
    queue.enter(free);
    queue.enter(free);
    assert.throws(() => queue.enter(free), isOverloaded);
  });

  test("keeps the last eighth of max_queued for tokens that have fewer runs in it", () => {
    const queue = new RunQueue(limits({ maxConcurrent: 1, maxQueued: 16 }));
    const enter = (tokenId: string | null) => queue.enter({ ...free, tokenId });
    for (let i = 0; i < 15; i++) enter("tok_greedy");
    assert.throws(() => enter("tok_greedy"), isOverloaded);
    for (const other of ["tok_other", null]) enter(other);
    assert.throws(() => enter("tok_other"), isOverloaded);
  });

  test("works a conversation's runs one after the other and lets others pass", () => {
    const queue = new RunQueue(limits({}));
    const [first, second] = [queue.enter(inTalk), queue.enter(inTalk)];
    assert.deepEqual([first.ready(), second.ready(), queue.enter(free).ready()], [true, false, true]);
    first.leave();
    assert.equal(second.ready(), true);
  });

  test("refuses one more than max_per_conversation", () => {
    const queue = new RunQueue(limits({ maxPerConversation: 2 }));
    for (let i = 0; i < 3; i++) queue.enter(inTalk);
    assert.throws(() => queue.enter(inTalk), isOverloaded);
    assert.equal(queue.enter(free).ready(), true);
  });

  test("gives a child no slot, since its parent holds one", () => {
    const queue = new RunQueue(limits({ maxConcurrent: 1 }));
    queue.enter(free);
    assert.equal(queue.enter({ conversationId: null, isChild: true }).ready(), true);
  });

  test("wakes a cancelled wait with its reason and forgets the place", async () => {
    const queue = new RunQueue(limits({ maxConcurrent: 1, maxQueued: 1 }));
    const first = queue.enter(free);
    const second = queue.enter(free);
    const controller = new AbortController();
    const waiting = second.wait(controller.signal);
    controller.abort(new CancelError("client_gone"));
    await assert.rejects(waiting, (error) => error instanceof CancelError && error.reason === "client_gone");
    second.leave();
    const third = queue.enter(free);
    first.leave();
    assert.deepEqual([second.ready(), third.ready()], [false, true]);
  });

  test("counts a place that is left twice once", () => {
    const queue = new RunQueue(limits({ maxConcurrent: 1 }));
    const first = queue.enter(free);
    first.leave();
    first.leave();
    assert.deepEqual([queue.enter(free).ready(), queue.enter(free).ready()], [true, false]);
  });

  test("lets plain requests pass beside the slots, up to slots and queue together", () => {
    const queue = new RunQueue(limits({ maxConcurrent: 1, maxQueued: 1 }));
    const busy = queue.enter(free);
    const plain = [1, 2].map(() => queue.enter({ ...free, isPlain: true }));
    assert.deepEqual(plain.map((place) => place.ready()), [true, true]);
    assert.throws(() => queue.enter({ ...free, isPlain: true }), isOverloaded);
    plain[0]?.leave();
    plain[0]?.leave();
    assert.equal(queue.enter({ ...free, isPlain: true }).ready(), true);
    assert.throws(() => queue.enter({ ...free, isPlain: true }), isOverloaded);
    busy.leave();
    assert.equal(queue.enter(free).ready(), true);
  });

  test("lends the slot of one that waits for a person, and gives it back over the limit", async () => {
    const queue = new RunQueue(limits({ maxConcurrent: 1 }));
    const asking = queue.enter(inTalk);
    const answered = Promise.withResolvers<string>();
    const [waits, behind, other] = [asking.pause(() => answered.promise), queue.enter(inTalk), queue.enter(free)];
    assert.deepEqual([behind.ready(), other.ready()], [false, true]);
    answered.resolve("yes");
    assert.equal(await waits, "yes");
    const next = queue.enter(free);
    other.leave();
    assert.equal(next.ready(), false);
    asking.leave();
    assert.deepEqual([behind.ready(), next.ready()], [true, false]);
  });

  test("tells of a slot that is lent and that nobody here takes", async () => {
    let told = 0;
    const queue = new RunQueue(limits({ maxConcurrent: 1 }), () => told++);
    const [asking, next] = [queue.enter(free), queue.enter(free)];
    const lent = Promise.withResolvers<void>();
    const waits = asking.pause(() => lent.promise);
    assert.deepEqual([next.ready(), told], [true, 0], "the next one has it");
    await next.pause(async () => {});
    assert.equal(told, 1);
    next.leave();
    lent.resolve();
    await waits;
    assert.equal(told, 1);
  });

  test("counts the slot of a paused place that is left once", async () => {
    const queue = new RunQueue(limits({ maxConcurrent: 1 }));
    const asking = queue.enter(free);
    const ended = Promise.withResolvers<void>();
    const waits = asking.pause(() => ended.promise);
    asking.leave();
    ended.resolve();
    await waits;
    assert.deepEqual([queue.enter(free).ready(), queue.enter(free).ready()], [true, false]);
  });
});
