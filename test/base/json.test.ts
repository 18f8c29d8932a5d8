import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { canonicalDigest, canonicalJson, isRecord } from "../../lib/base/json.ts";

test("canonicalJson() sorts keys by UTF-16 units and drops undefined", () => {
  assert.equal(
    canonicalJson({ b: 1, a: [true, null, "x"], c: undefined, "\u20ac": 1e21 }),
    '{"a":[true,null,"x"],"b":1,"€":1e+21}',
  );
});

test("canonicalJson() of any JSON value parses back to it, whatever the key order", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const parsed = JSON.parse(JSON.stringify(value));
      assert.deepEqual(JSON.parse(canonicalJson(parsed)), parsed);
    }),
    { numRuns: 200 },
  );
  assert.equal(canonicalDigest({ a: 1, b: 2 }), canonicalDigest({ b: 2, a: 1 }));
});

test("canonicalJson() refuses what JSON cannot carry", () => {
  for (const value of [NaN, Infinity, 1n, () => 1, Symbol("x")]) assert.throws(() => canonicalJson(value), TypeError);
});

test("isRecord() takes objects with members alone", () => {
  assert.deepEqual([{}, { a: 1 }].map(isRecord), [true, true]);
  assert.deepEqual([null, undefined, [], "a", 1, true].map(isRecord), [false, false, false, false, false, false]);
});
