import assert from "node:assert/strict";
import { test } from "node:test";
import { whyAsked } from "../../lib/guard/describe_approval.ts";

test("a person is asked with a reason, and not with the refusal of a call that nobody could answer", () => {
  const refusal =
    'Cannot call "write_file" without approval: it writes, which level "supervised" asks about; set x to allow it';
  assert.equal(
    whyAsked(refusal),
    'You are asked because it writes, which level "supervised" asks about; set x to allow it',
  );
  assert.equal(whyAsked("The procedure begins with a step"), "The procedure begins with a step");
});
