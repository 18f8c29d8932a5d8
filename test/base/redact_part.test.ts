import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createRedactor } from "../../lib/base/redact.ts";

const SECRET = "abcabcab-x!7 abcabcab/secret-ö";
const OTHER = "other-secret-01";
const MASK = "[redacted]";

/** Every way a secret may be written. */
const forms = (secret: string) => {
  const bytes = Buffer.from(secret);
  return [
    secret,
    bytes.toString("base64"),
    bytes.toString("base64url"),
    bytes.toString("hex"),
    encodeURIComponent(secret),
    JSON.stringify(secret),
  ];
};

test("a secret across the border of two parts is masked in both, wherever the border lies", () => {
  const { part } = createRedactor([SECRET]);
  for (const form of forms(SECRET)) {
    const bytes = Buffer.from(`before ${form} after`);
    for (let border = 0; border <= bytes.length; border++) {
      const shown = [{ from: 0, to: border }, { from: border, to: bytes.length }]
        .map((range) => Buffer.from(part.redact(bytes, range)).toString()).join("");
      assert.match(shown, /^before .{0,3}(\[redacted\]){1,2}.{0,3} after$/, `${form} at ${border}: ${shown}`);
    }
  }
});

test("an output that grows shows nothing of a secret, whatever the chunks it comes in", () => {
  const piece = fc.oneof(
    fc.string({ maxLength: 10 }),
    fc.constantFrom(SECRET, SECRET.slice(0, 9), SECRET.slice(0, 3), SECRET.slice(12), ...forms(OTHER)),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), fc.array(fc.nat(40), { maxLength: 30 }), (parts, sizes) => {
      const { part, redact } = createRedactor([SECRET, OTHER]);
      const whole = Buffer.from(parts.join(""));
      const shown: Uint8Array[] = [];
      let came = 0;
      let at = 0;
      for (const size of [...sizes, whole.length]) {
        came = Math.min(whole.length, came + size);
        const bytes = whole.subarray(0, came);
        const to = came === whole.length ? came : came - part.pending(bytes);
        if (to <= at) continue;
        shown.push(part.redact(bytes, { from: at, to }));
        at = to;
      }
      const text = Buffer.concat(shown).toString();
      for (const secret of [SECRET, OTHER]) assert.ok(!text.includes(secret), text);
      // Without a secret nothing is changed
      if (redact(whole.toString()) === whole.toString()) assert.equal(text, whole.toString());
    }),
    { numRuns: 200 },
  );
});

test("pending() is what may begin a secret, and nothing else", () => {
  const { part } = createRedactor([SECRET]);
  const pending = (text: string) => part.pending(Buffer.from(text));
  assert.equal(pending("Continue? [y/N] "), 0);
  assert.equal(pending("text abcab"), 5);
  assert.equal(pending(`text ${SECRET}`), 0);
  assert.equal(pending(""), 0);
  assert.equal(createRedactor().part.pending(Buffer.from("abc")), 0);
});

test("a part of binary output is left as it is where no secret lies", () => {
  const { part } = createRedactor([SECRET]);
  const bytes = Uint8Array.from({ length: 512 }, (_, index) => index & 255);
  assert.deepEqual([...part.redact(bytes, { from: 100, to: 400 })], [...bytes.subarray(100, 400)]);
  assert.equal(Buffer.from(part.redact(Buffer.from(`ö${SECRET}ö`), { from: 0, to: 99 })).toString(), `ö${MASK}ö`);
});
