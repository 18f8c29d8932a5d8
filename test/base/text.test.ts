import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { cutText, exactLine, exactText, firstBytes, isLonger, listSome } from "../../lib/base/text.ts";

// The page's modules are plain JavaScript of another type-check, so they come in untyped
const { exactText: onPage } = await import(new URL("../../lib/dashboard/page/exact_text.js", import.meta.url).href);

/** Characters that hide or move what a person reads. */
const UNSEEN: readonly (readonly [name: string, code: number])[] = [
  ["right-to-left override", 0x202e],
  ["left-to-right isolate", 0x2066],
  ["pop directional isolate", 0x2069],
  ["Arabic letter mark", 0x061c],
  ["zero width space", 0x200b],
  ["zero width joiner", 0x200d],
  ["word joiner", 0x2060],
  ["byte order mark", 0xfeff],
  ["soft hyphen", 0x00ad],
  ["line separator", 0x2028],
  ["paragraph separator", 0x2029],
  ["next line", 0x0085],
  ["vertical tab", 0x000b],
  ["carriage return", 0x000d],
  ["tabulator", 0x0009],
  ["escape", 0x001b],
  ["no-break space", 0x00a0],
  ["Hangul filler", 0x3164],
  ["variation selector", 0xfe0f],
  ["combining grapheme joiner", 0x034f],
  ["tag letter", 0xe0041],
  ["lone surrogate", 0xd800],
];

for (const [name, code] of UNSEEN) {
  test(`exactText() spells out the ${name}`, () => {
    const text = exactText(`a${String.fromCodePoint(code)}b`);
    assert.match(text, /^a(\\u[0-9a-f]{4}){1,2}b$/);
    assert.equal(JSON.parse(`"${text}"`), `a${String.fromCodePoint(code)}b`);
  });
}

test("exactText() leaves what can be seen as it is, newlines too; exactLine() is one line", () => {
  const text = 'Grüße, Ωμέγα, 日本, 😀, "a\\b"\n<b>';
  assert.equal(exactText(text), text);
  assert.equal(exactLine("a\nb"), "a\\nb");
});

test("a JSON text stays the same JSON", () => {
  const value = { path: "a\u202e\u200b\n\u2028", list: ["\u{e0041}", 1, null] };
  assert.deepEqual(JSON.parse(exactText(JSON.stringify(value, null, 2))), value);
});

test("the dashboard spells out the same characters", () => {
  for (let code = 0; code <= 0x10ffff; code++) {
    const character = String.fromCodePoint(code);
    if (exactText(character) !== onPage(character)) assert.fail(`U+${code.toString(16)} differs`);
  }
});

test("cutText() says how much was cut, and of what", () => {
  assert.equal(cutText("abc", { limit: 3, digest: "d" }), "abc");
  assert.equal(
    cutText("abcd", { limit: 3, digest: "d1" }),
    "abc [cut: 3 of 4 characters are shown; SHA-256 of the whole d1]",
  );
});

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

test("isLonger() counts bytes, not characters", () => {
  assert.equal(isLonger("é", 2), false);
  assert.equal(isLonger("éa", 2), true);
  assert.equal(isLonger("a".repeat(10), 10), false);
});

test("listSome() names the first texts, and counts the others", () => {
  assert.equal(listSome([], 2), "");
  assert.equal(listSome(["a", "b"], 2), "a, b");
  assert.equal(listSome(["a", "b", "c"], 2), "a, b and 1 more");
});
