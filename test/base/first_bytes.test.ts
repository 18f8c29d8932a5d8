import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { firstBytes } from "../../lib/base/first_bytes.ts";

test("firstBytes() gives the longest beginning of whole characters that fits", () => {
  const texts = fc.string({ unit: fc.constantFrom("a", "é", "日", "😀"), maxLength: 40 });
  fc.assert(
    fc.property(texts, fc.nat(170), (text, maxBytes) => {
      let longest = "";
      for (const character of text) {
        if (Buffer.byteLength(longest + character) > maxBytes) break;
        longest += character;
      }
      assert.equal(firstBytes(text, maxBytes), longest);
    }),
    { numRuns: 200 },
  );
});

test("firstBytes() takes no memory for a bound far above the text", () => {
  assert.equal(firstBytes("日", Number.MAX_SAFE_INTEGER), "日");
});
