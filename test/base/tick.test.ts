import assert from "node:assert/strict";
import { test } from "node:test";
import { batchPerTick } from "../../lib/base/tick.ts";

const tick = () => new Promise((resolve) => setImmediate(resolve));

test("a tick takes a part of what has come, in order, and the next ticks the rest", async () => {
  const taken: number[] = [];
  const give = batchPerTick<number>(4, (item) => void taken.push(item));
  for (let i = 0; i < 10; i++) give(i);
  const counts = [taken.length];
  while (taken.length < 10) {
    await tick();
    if (taken.length !== counts.at(-1)) counts.push(taken.length);
  }
  assert.deepEqual(taken, taken.toSorted((a, b) => a - b));
  assert.deepEqual(counts, [0, 4, 8, 10]);
});

test("what comes while others wait does not overtake them, and nothing is left behind", async () => {
  const taken: string[] = [];
  const give = batchPerTick<string>(4, (item) => {
    taken.push(item);
    if (item === "first 5") give("last");
  });
  for (let i = 0; i < 6; i++) give(`first ${i}`);
  setImmediate(() => {
    for (let i = 0; i < 4; i++) give(`second ${i}`);
  });
  for (let i = 0; i < 10; i++) await tick();
  const series = (name: string, length: number) => Array.from({ length }, (_, i) => `${name} ${i}`);
  assert.deepEqual(taken, [...series("first", 6), ...series("second", 4), "last"]);
});

test("what comes in one tick goes on side by side: each does its step before one does the next", async () => {
  const steps: string[] = [];
  const give = batchPerTick<() => void>(32, (resolve) => resolve());
  const work = async (name: string) => {
    await new Promise<void>((resolve) => give(resolve));
    for (let step = 0; step < 3; step++) {
      steps.push(`${step}${name}`);
      await undefined;
    }
  };
  await Promise.all(["a", "b", "c"].map(work));
  assert.deepEqual(steps, ["0a", "0b", "0c", "1a", "1b", "1c", "2a", "2b", "2c"]);
});
