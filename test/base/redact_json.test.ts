import assert from "node:assert/strict";
import { test } from "node:test";
import { createRedactor, redactJson } from "../../lib/base/redact.ts";

test("redactJson() masks secrets in every text of a value, names too, and changes nothing else", () => {
  const { redact } = createRedactor(["canary-of-the-test"]);
  const value = { a: ["x canary-of-the-test", 7, null, true], "canary-of-the-test": { b: "plain" } };
  assert.deepEqual(redactJson(value, redact), {
    a: ["x [redacted]", 7, null, true],
    "[redacted]": { b: "plain" },
  });
  assert.equal(value.a[0], "x canary-of-the-test");
});
