import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MIN_FOUND, MIN_PART, TextFinder } from "../../lib/base/text_finder.ts";

/** Finds by trying each text at each place. */
function found(texts: readonly string[], text: string): readonly (readonly [number, number])[] {
  const places: [number, number][] = [];
  for (let at = 0; at < text.length;) {
    const lengths = texts.filter((each) => each.length >= MIN_FOUND).map((each) => {
      if (text.startsWith(each, at)) return each.length;
      let shared = 0;
      while (shared < each.length && each[shared] === text[at + shared]) shared++;
      return shared >= MIN_PART ? shared : 0;
    });
    const longest = Math.max(0, ...lengths);
    if (longest > 0) places.push([at, longest]);
    at += longest || 1;
  }
  return places;
}

// Few letters, so that texts begin like each other and lie in each other
const part = fc.string({ unit: fc.constantFrom("a", "b", "é", "€"), maxLength: 90 });

test("a finder finds what a search of each text at each place finds", () => {
  fc.assert(
    fc.property(
      fc.array(part, { maxLength: 8 }),
      fc.array(fc.oneof(part, fc.nat(7)), { maxLength: 8 }),
      (texts, parts) => {
        const text = parts.map((each) => (typeof each === "string" ? each : texts[each] ?? "")).join("");
        const finder = new TextFinder(texts.map((each) => [each, each]));
        const places: [number, number][] = [];
        for (let at = 0;;) {
          const next = finder.next(text, at);
          if (next === undefined) break;
          assert.ok(next.value.startsWith(text.slice(next.index, next.index + next.length)));
          places.push([next.index, next.length]);
          at = next.index + next.length;
        }
        assert.deepEqual(places, found(texts, text));
      },
    ),
    { numRuns: 2_000 },
  );
});

test("pending() is never less than what begins a text at the end", () => {
  fc.assert(
    fc.property(fc.array(part, { minLength: 1, maxLength: 4 }), part, fc.nat(), (texts, before, cut) => {
      const [last = ""] = texts;
      if (last.length < MIN_FOUND) return;
      const begun = last.slice(0, cut % last.length);
      const text = before + begun;
      const pending = new TextFinder(texts.map((each) => [each, each])).pending(text);
      const isWhole = found(texts, text).some(([at, length]) => at + length > text.length - begun.length);
      assert.ok(isWhole || pending >= begun.length, `${pending} of ${begun.length}`);
    }),
    { numRuns: 2_000 },
  );
});
