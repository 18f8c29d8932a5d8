import assert from "node:assert/strict";
import { test } from "node:test";
import { BestItems, cosineOf, toUnit } from "../../lib/storage/vectors.ts";

test("a vector of length 1 keeps its direction", () => {
  const unit = toUnit(Float32Array.of(3, 4));
  assert.deepEqual([...unit].map((value) => value.toFixed(6)), ["0.600000", "0.800000"]);
  assert.ok(Math.abs(cosineOf(unit, toUnit(Float32Array.of(30, 40))) - 1) < 1e-6);
  assert.ok(Math.abs(cosineOf(unit, toUnit(Float32Array.of(-4, 3)))) < 1e-6);
});

test("a vector without a direction is refused", () => {
  for (const values of [[], [0, 0], [1, Number.NaN], [Number.POSITIVE_INFINITY], Array(8193).fill(1)]) {
    assert.throws(() => toUnit(Float32Array.from(values)), RangeError);
  }
});

test("the best items are those of the highest scores, the first of equal ones first", () => {
  const best = new BestItems<number>(3);
  for (const [item, score] of [1, 5, 2, 5, 3, 0, 4, 5, 4].entries()) best.add(item, score);
  assert.deepEqual(best.list(), [1, 3, 7]);
  const few = new BestItems<string>(3);
  few.add("only", -1);
  assert.deepEqual(few.list(), ["only"]);
});
