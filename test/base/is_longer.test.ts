import assert from "node:assert/strict";
import { test } from "node:test";
import { isLonger } from "../../lib/base/is_longer.ts";

test("isLonger() counts bytes, not characters", () => {
  assert.equal(isLonger("é", 2), false);
  assert.equal(isLonger("éa", 2), true);
  assert.equal(isLonger("a".repeat(10), 10), false);
});
