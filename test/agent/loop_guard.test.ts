import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createLoopGuard, type GuardedCall } from "../../lib/agent/loop_guard.ts";

const call = (name: string, output = "same", isError = false): GuardedCall => ({ name, input: "{}", output, isError });

/** The verdicts over turns of one call each. */
function verdicts(calls: readonly GuardedCall[]): string {
  const guard = createLoopGuard();
  return calls.map((one) => guard.observe([one]).kind[0]).join("");
}

describe("the loop guard", () => {
  test("warns at the third same call with the same result, and stops at the fourth", () => {
    assert.equal(verdicts([call("a"), call("a"), call("a"), call("a")]), "oows");
  });

  test("lets the same call pass while its result changes", () => {
    assert.equal(verdicts(["1", "2", "3", "4", "5"].map((output) => call("a", output))), "ooooo");
  });

  test("warns at A-B-A-B and stops when it goes on", () => {
    assert.equal(verdicts([call("a"), call("b"), call("a"), call("b"), call("a")]), "ooows");
  });

  test("warns at three failures in a row, whatever failed, and stops at the fourth", () => {
    assert.equal(
      verdicts([call("a", "x", true), call("b", "y", true), call("c", "z", true), call("d", "w", true)]),
      "oows",
    );
  });

  test("forgets its warning once the model does something else", () => {
    assert.equal(verdicts([call("a"), call("a"), call("a"), call("b"), call("c"), call("c"), call("c")]), "oowooow");
  });

  test("does not stop in the turn of its own warning, which the model has not read yet", () => {
    const guard = createLoopGuard();
    assert.equal(guard.observe([1, 2, 3, 4, 5].map(() => call("a"))).kind, "warn");
    assert.equal(guard.observe([call("a")]).kind, "stop");
  });
});
