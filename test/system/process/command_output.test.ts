import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createRedactor } from "../../../lib/base/redact.ts";
import { createOutputRing } from "../../../lib/system/process/command_output.ts";
import { anyCharacter } from "../../support/any_character.ts";

test("read in parts it gives the whole, for any text and any cuts", () => {
  fc.assert(
    fc.property(fc.string({ unit: anyCharacter }), fc.integer({ min: 4, max: 20 }), (given, limit) => {
      const text = given.toWellFormed();
      const ring = createOutputRing(100_000);
      const bytes = new TextEncoder().encode(text);
      for (let at = 0; at < bytes.length; at += 3) ring.write(bytes.slice(at, at + 3));
      let read = "";
      for (let offset = 0; offset < bytes.length;) {
        const part = ring.read(offset, limit);
        assert.ok(part.nextOffset > offset);
        read += part.text;
        offset = part.nextOffset;
      }
      assert.equal(read, text);
    }),
    { numRuns: 100 },
  );
});

test("keeps the last bytes and says where they begin", () => {
  const ring = createOutputRing(10);
  for (let i = 0; i < 10; i++) ring.write(new TextEncoder().encode(`${i}${i}${i}`));
  assert.deepEqual(ring.read(0, 100), { text: "6777888999", offset: 20, nextOffset: 30, total: 30 });
  assert.deepEqual(ring.read(25, 3), { text: "889", offset: 25, nextOffset: 28, total: 30 });
  assert.deepEqual(ring.read(50, 3), { text: "", offset: 30, nextOffset: 30, total: 30 });
});

test("a secret that comes in pieces is masked, and its begin waits for the rest until the end", () => {
  const { part } = createRedactor(["secret-of-the-test"]);
  const ring = createOutputRing(1000, part);
  const write = (text: string) => ring.write(new TextEncoder().encode(text));
  write("one secret-of");
  const first = ring.read(0, 100);
  assert.deepEqual([first.text, first.nextOffset, first.total], ["one ", 4, 13]);
  write("-the-test two sec");
  const second = ring.read(first.nextOffset, 100);
  assert.deepEqual([second.text, second.nextOffset], ["[redacted] two ", 27]);
  // Read from within the secret
  assert.equal(ring.read(10, 100).text, "[redacted] two ");
  assert.equal(ring.read(0, 8).text, "one [redacted]");
  ring.end();
  assert.equal(ring.read(second.nextOffset, 100).text, "sec");
});
