import assert from "node:assert/strict";
import { test } from "node:test";
import { lazily } from "../../lib/base/lazily.ts";

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
