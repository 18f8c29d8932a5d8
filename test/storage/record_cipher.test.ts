import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createRecordCipher, SealError } from "../../lib/storage/record_cipher.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const key = (byte = 7) => new Uint8Array(32).fill(byte);
const cipher = (byte = 7) => createRecordCipher(key(byte), createSeededRandom(byte));

test("any text opens again with what it was bound to, and with nothing else", () => {
  const { seal, open } = cipher();
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), fc.string(), fc.string(), (text, bound, other) => {
      const sealed = seal(text, bound);
      assert.equal(open(sealed, bound), text);
      if (other !== bound) assert.throws(() => open(sealed, other), SealError);
    }),
    { numRuns: 100 },
  );
});

test("every nonce is fresh, and the text does not show", () => {
  const { seal } = cipher();
  const sealed = [seal("the secret plan", "a"), seal("the secret plan", "a")];
  assert.notEqual(sealed[0]?.nonce, sealed[1]?.nonce);
  assert.notEqual(sealed[0]?.data, sealed[1]?.data);
  for (const { data } of sealed) assert.ok(!Buffer.from(data, "base64").includes("secret"));
});

test("one flipped bit anywhere, one other letter, a piece cut off or put on is an error", () => {
  const { seal, open } = cipher();
  const sealed = seal("pay 100 to Ann", "bound");
  for (const field of ["nonce", "data"] as const) {
    const bytes = Buffer.from(sealed[field], "base64");
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const altered = Buffer.from(bytes);
      altered[bit >> 3] = (altered[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      assert.throws(() => open({ ...sealed, [field]: altered.toString("base64") }, "bound"), SealError);
    }
    const text = sealed[field];
    for (let at = 0; at < text.length; at++) {
      for (const letter of ["A", "b", "=", "-", " ", "é"]) {
        if (text[at] === letter) continue;
        const altered = text.slice(0, at) + letter + text.slice(at + 1);
        assert.throws(() => open({ ...sealed, [field]: altered }, "bound"), SealError, `${field} ${at} ${letter}`);
      }
    }
    for (const altered of [text.slice(0, -1), text.slice(4), `${text}A`, `${text}AAAA`, ` ${text}`, ""]) {
      assert.throws(() => open({ ...sealed, [field]: altered }, "bound"), SealError);
    }
  }
});

test("another key is told from an altered text", () => {
  const sealed = cipher(1).seal("text", "bound");
  assert.throws(() => cipher(2).open(sealed, "bound"), /sealed with another key/);
  assert.throws(() => cipher(2).open({ ...sealed, key: cipher(2).seal("", "").key }, "bound"), /altered/);
});
