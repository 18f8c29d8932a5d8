import assert from "node:assert/strict";
import { test } from "node:test";
import { closeMade, lazily, lazilyEach, lazilyStarted } from "../../lib/base/lazily.ts";

test("it is made at the first use, once", () => {
  let times = 0;
  const value = lazily(() => ++times);
  assert.equal(times, 0);
  assert.deepEqual([value(), value()], [1, 1]);
});

test("an undefined value is kept like any other", () => {
  let times = 0;
  const value = lazily(() => void times++);
  value();
  value();
  assert.equal(times, 1);
});

test("what throws is tried again at the next use", () => {
  let times = 0;
  const value = lazily(() => {
    if (++times === 1) throw new RangeError("broken");
    return times;
  });
  assert.throws(value, RangeError);
  assert.equal(value(), 2);
});

test("what was made is there without another use, until it fails", async () => {
  const value = lazily((): Promise<number> => Promise.reject(new RangeError("broken")));
  assert.equal(value.made(), undefined);
  const making = value();
  assert.equal(value.made(), making);
  await assert.rejects(making, RangeError);
  assert.equal(value.made(), undefined);
});

test("all who wait for one promise get its error, and the next use tries again", async () => {
  let times = 0;
  const value = lazily(async () => {
    if (++times === 1) throw new RangeError("broken");
    return times;
  });
  const settled = await Promise.allSettled([value(), value()]);
  assert.deepEqual(settled.map(({ status }) => status), ["rejected", "rejected"]);
  assert.equal(await value(), 2);
});

interface Counter {
  readonly name: string;
  add(by: number): Promise<number>;
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** Counts loads, and lists what was called. */
function counters() {
  const seen: string[] = [];
  const load = (): Promise<Counter> => {
    seen.push("load");
    let total = 0;
    return Promise.resolve({
      name: "counter",
      // `this` is used, as a service that is a class would
      add(by) {
        seen.push(`add ${this.name}`);
        return Promise.resolve(total += by);
      },
      start: () => (seen.push("start"), Promise.resolve()),
      stop: () => (seen.push("stop"), Promise.resolve()),
    });
  };
  return { seen, load };
}

test("start() loads and starts a service that has work, and no other", async () => {
  const idle = counters();
  await lazilyStarted(idle.load, () => Promise.resolve(false)).start();
  assert.deepEqual(idle.seen, []);
  const busy = counters();
  await lazilyStarted(busy.load, () => Promise.resolve(true)).start();
  assert.deepEqual(busy.seen, ["load", "start"]);
});

test("a service that is loaded before start() is started by it, one that is loaded after it at once", async () => {
  const isNeeded = () => Promise.resolve(false);
  const before = counters();
  const early = lazilyStarted(before.load, isNeeded);
  await (await early.load()).add(1);
  await early.start();
  assert.deepEqual(before.seen, ["load", "add counter", "start"]);
  const after = counters();
  const late = lazilyStarted(after.load, isNeeded);
  await late.start();
  await (await late.load()).add(1);
  assert.deepEqual(after.seen, ["load", "start", "add counter"]);
});

test("stop() stops a loaded service, and loads none", async () => {
  const isNeeded = () => Promise.resolve(false);
  const unused = counters();
  await lazilyStarted(unused.load, isNeeded).stop();
  assert.deepEqual(unused.seen, []);
  const used = counters();
  const service = lazilyStarted(used.load, isNeeded);
  await service.start();
  await (await service.load()).add(1);
  await service.stop();
  assert.deepEqual(used.seen, ["load", "start", "add counter", "stop"]);
});

test("a service that could not be started when it was loaded is loaded and started at the next call", async () => {
  let starts = 0;
  const load = () =>
    Promise.resolve({
      ask: () => Promise.resolve("answer"),
      start: () => (++starts === 1 ? Promise.reject(new RangeError("broken")) : Promise.resolve()),
      stop: () => Promise.resolve(),
    });
  const service = lazilyStarted(load, () => Promise.resolve(false));
  await service.start();
  await assert.rejects(service.load(), RangeError);
  assert.equal(await (await service.load()).ask(), "answer");
  assert.equal(starts, 2);
});

test("closeMade() closes what was made, and makes nothing", async () => {
  let closed = 0;
  const load = lazily(() => Promise.resolve({ close: () => void closed++ }));
  await closeMade(load);
  assert.deepEqual([load.made(), closed], [undefined, 0]);
  await load();
  await closeMade(load);
  assert.equal(closed, 1);
  const failing = lazily((): Promise<{ close(): void }> => Promise.reject(new RangeError("broken")));
  const failed = assert.rejects(failing(), RangeError);
  await closeMade(failing);
  await failed;
});

test("lazilyEach() makes the value of each object once, undefined too, and asks again after a failure", () => {
  const asked: string[] = [];
  const nameOf = lazilyEach(({ name }: { readonly name: string | undefined }) => {
    asked.push(String(name));
    if (asked.length === 1) throw new RangeError("broken");
    return name;
  });
  const [one, none] = [{ name: "one" }, { name: undefined }];
  assert.throws(() => nameOf(one), RangeError);
  assert.deepEqual([nameOf(one), nameOf(none), nameOf(one), nameOf(none)], ["one", undefined, "one", undefined]);
  assert.equal(nameOf({ ...one }), "one", "another object is asked by itself");
  assert.deepEqual(asked, ["one", "one", "undefined", "one"]);
});
