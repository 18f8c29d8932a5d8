import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { INDEX_LIMITS, toIndexTerms, toSearchQuery } from "../../lib/storage/index_terms.ts";
import { anyCharacter } from "../support/any_character.ts";

const wordsOf = (text: string) => toIndexTerms(text).words;

/** Every term of a query, by its column. */
function termsOf(query: string) {
  const { words, characters, common } = toSearchQuery(query);
  return {
    exact: words.map(({ exact }) => exact.word),
    forms: words.flatMap(({ forms }) => forms?.word ?? []),
    grams: words.flatMap(({ grams }) => grams.map(({ word }) => word)),
    characters: characters.map(({ word }) => word),
    common: common.map(({ word }) => word),
  };
}

/** Tells whether any term of the query is one of the text. */
function finds(query: string, text: string): boolean {
  const { words, stems, grams } = toIndexTerms(text);
  const asked = termsOf(query);
  return [...asked.exact, ...asked.common].some((word) => words.includes(word)) ||
    asked.forms.some((word) => words.includes(word) || stems.includes(word)) ||
    [...asked.grams, ...asked.characters].some((gram) => grams.includes(gram));
}

test("width, case, accents and ligatures are folded", () => {
  assert.deepEqual(wordsOf("ＦＵẞ Fuß FUSS fuss"), ["fuss", "fuss", "fuss", "fuss"]);
  assert.deepEqual(wordsOf("Café cafe\u0301 ŁÓDŹ smørrebrød cœur"), ["cafe", "cafe", "lodz", "smorrebrod", "coeur"]);
  assert.deepEqual(wordsOf("Ёлка ΟΔΌΣ οδός İstanbul ﬁn"), ["елка", "οδοσ", "οδοσ", "istanbul", "fin"]);
  assert.deepEqual(wordsOf("ﾌﾟﾘﾝﾀｰ"), wordsOf("プリンター"));
  assert.deepEqual(wordsOf("कि की"), ["कि", "की"]);
});

test("a text of a script without spaces is indexed by pairs of neighbours and by single characters", () => {
  assert.deepEqual(toIndexTerms("数据库"), { words: ["数据", "据库"], stems: [], grams: ["·数", "·据", "·库"] });
  assert.deepEqual(wordsOf("第3回、サーバー会議。"), ["3", "サー", "ーバ", "バー", "ー会", "会議"]);
  assert.deepEqual(wordsOf("서버를 껐다"), ["서버", "버를", "껐다"]);
  assert.deepEqual(wordsOf("ภาษา").length, 3);
  assert.deepEqual(wordsOf("iPhone手机v2"), ["iphone", "手机", "v2"]);
});

test("one character of Han, Hangul or kana is found, at each place of a text", () => {
  for (const character of "数据库") assert.ok(finds(character, "数据库"), character);
  assert.ok(finds("집", "우리 집에"));
  assert.ok(finds("ね", "いいね"));
  assert.ok(!finds("中", "数据库"));
});

test("forms of a word share a stem", () => {
  const forms = [
    ["deploy", "deploys", "deployed", "deploying"],
    ["running", "run", "runs"],
    ["printer", "printing", "prints"],
    ["compile", "compiled", "compilation"],
    ["city", "cities"],
    ["address", "addresses"],
    ["Haus", "Häuser", "Häusern"],
    ["Rechnung", "Rechnungen"],
    ["sauvegarde", "sauvegardes"],
    ["facture", "facturation"],
    ["contraseña", "contraseñas"],
    ["пароль", "пароли", "паролями"],
    ["копия", "копии", "копиями"],
  ];
  for (const [first = "", ...others] of forms) {
    for (const other of others) {
      assert.deepEqual(termsOf(other).forms, termsOf(first).forms, `${other} and ${first}`);
      assert.ok(finds(first, other) && finds(other, first), `${other} and ${first}`);
    }
  }
});

test("a part of a long word is found, and a compound finds its parts", () => {
  for (const part of ["schifffahrt", "Dampf", "donau", "Gesellschaft"]) {
    assert.ok(finds(part, "Donaudampfschifffahrtsgesellschaft"), part);
  }
  assert.ok(finds("Krankenversicherungsbeitrag", "Beitrag zur Versicherung"));
  assert.ok(finds("dep", "Deployment"));
  assert.ok(finds("recall", "memoryRecallTool"));
  assert.ok(!finds("port", "gate"));
});

test("common words stand apart where a query has others, and count where it has none", () => {
  assert.deepEqual(termsOf("where is the printer"), {
    exact: ["printer"],
    forms: ["print"],
    grams: ["·prin", "·rint", "·inte", "·nter"],
    characters: [],
    common: ["where", "is", "the"],
  });
  assert.deepEqual([termsOf("the who").exact, termsOf("the who").common], [["the", "who"], []]);
  assert.deepEqual([termsOf("ある です").exact, termsOf("鍵です").exact], [["ある", "です"], ["鍵で"]]);
});

test("an emoji is a word; punctuation and syntax are nothing", () => {
  assert.deepEqual(wordsOf("ship it 🚀👍🏽"), ["ship", "it", "🚀", "👍"]);
  assert.ok(finds("🚀", "launch 🚀 list"));
  assert.deepEqual(termsOf('"*() ^:-{}+'), { exact: [], forms: [], grams: [], characters: [], common: [] });
});

test("terms of a query are bounded, whatever its length", () => {
  const numbers = Array.from({ length: 5_000 }, (_, index) => `word${index}`).join(" ");
  const han = Array.from({ length: 10_000 }, (_, index) => String.fromCodePoint(0x4e00 + index)).join("");
  for (const query of [numbers, han, `${numbers.slice(0, 4_000)} ${han}`, "a".repeat(10_000)]) {
    const { exact, forms, grams, characters } = termsOf(query);
    assert.ok(exact.length <= 28 && forms.length <= 12 && grams.length <= 16 && characters.length <= 8);
    for (const term of [...exact, ...forms, ...grams]) assert.ok(term.length <= 65, term);
  }
});

test("terms of a text are bounded, and the last word of 64 KiB is among them", () => {
  const { words } = toIndexTerms(`${"a ".repeat(32_765)}last`);
  assert.equal(words.at(-1), "last");
  const varied = Array.from({ length: 40_000 }, (_, index) => `${index.toString(36)}words`).join(" ");
  for (const text of [varied, "\ufdfa ".repeat(21_000), "数据库".repeat(20_000), "x".repeat(65_536)]) {
    const terms = toIndexTerms(text);
    assert.ok(terms.words.length <= INDEX_LIMITS.words);
    assert.ok(terms.stems.length <= INDEX_LIMITS.stems);
    assert.ok(terms.grams.length <= INDEX_LIMITS.grams);
  }
});

test("a text that is longer than any memory is indexed by its beginning", () => {
  for (const character of ["\u4e2d", "a"]) {
    const { words } = toIndexTerms(`first ${character.repeat(6_000_000)}`);
    assert.equal(words[0], "first");
    assert.ok(words.length <= INDEX_LIMITS.words);
  }
});

test("no term has a blank, a quote or another mark of a query, and a text is found by itself", () => {
  fc.assert(
    fc.property(fc.string({ unit: anyCharacter, maxLength: 40 }), (text) => {
      const { words, stems, grams } = toIndexTerms(text);
      for (const term of [...words, ...stems, ...grams]) assert.match(term, /^[^\0-/:-@[-`{-\x7f]+$/);
      if (words.length + grams.length > 0) assert.ok(finds(text, text), JSON.stringify(text));
    }),
    { numRuns: 100 },
  );
});
