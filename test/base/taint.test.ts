import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { joinTaints, RunTaint } from "../../lib/base/taint.ts";

test("taints are joined without doubles, and are bounded however much comes from outside", () => {
  fc.assert(fc.property(fc.array(fc.array(fc.string({ maxLength: 300 }))), (taints) => {
    const joined = joinTaints(...taints);
    assert.equal(joined.length === 0, taints.flat().length === 0, "none is lost for good");
    assert.equal(new Set(joined).size, joined.length);
    assert.ok(joined.length <= 16);
    assert.ok(joined.every((origin) => origin.length <= 123 && !/[\n\r\u2028]/.test(origin) && origin.isWellFormed()));
    assert.deepEqual(joinTaints(joined), joined);
  }));
  const many = Array.from({ length: 40 }, (_, at) => `web_fetch site${at}.example`);
  assert.deepEqual(joinTaints(many).at(-1), "and others");
  assert.deepEqual(joinTaints(joinTaints(many), ["one more"]), joinTaints(many));
});

test("the taint of a run only grows", () => {
  const taint = new RunTaint(["a"]);
  taint.add([]);
  taint.add(["b", "a"]);
  assert.deepEqual(taint.origins, ["a", "b"]);
});
