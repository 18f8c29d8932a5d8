import assert from "node:assert/strict";
import { test } from "node:test";
import { helpOfEach } from "../../../cli/help_text.ts";
import { readDocumentation } from "../../../lib/providers/offline/documentation.ts";
import { rankPassages } from "../../../lib/providers/offline/rank_passages.ts";
import { stemsOf } from "../../../lib/providers/offline/words.ts";

test("the README and the pages of the package and the help of each command are its documentation", async () => {
  const passages = await readDocumentation(helpOfEach);
  assert.ok(passages.every(({ isOwn }) => isOwn));
  assert.ok(passages.some(({ source, heading }) => source === "Postern's README" && heading === "First minute"));
  assert.ok(passages.some(({ source, heading }) => source === "Postern's docs/http.md" && heading === "Pair a client"));
  assert.ok(passages.every(({ source }) => !source.includes("docs/design")), "that is for who works on Postern");
  const help = passages.find(({ source }) => source === "postern schedule run --help");
  assert.match(help?.text ?? "", /Usage: postern schedule run/);
  assert.deepEqual([help?.isCode, help?.isRow], [false, false], "help counts as much as prose");
  const withoutHelp = await readDocumentation(() => Promise.reject(new Error("no commands here")));
  assert.ok(withoutHelp.length > 50 && withoutHelp.length < passages.length);
});

test("the documentation keeps the stems of its words, and is ranked as a text that does not", async () => {
  const kept = await readDocumentation(helpOfEach);
  assert.ok(kept.every(({ stems }) => stems !== undefined));
  const fresh = kept.map(({ stems: _, ...passage }) => passage);
  for (const question of ["How do I pair a browser?", "Which three tools does read_file need?", "no such qwerty"]) {
    const [some, same] = [kept, fresh].map((passages) =>
      rankPassages(stemsOf(question), passages).map(({ passage: { source, line }, ...rank }) => ({
        source,
        line,
        ...rank,
      }))
    );
    assert.deepEqual(some, same);
  }
  // Once in the text, once in the heading, which counts twice, and not as a part of another word
  const passage = { source: "a.md", heading: "Pair", headings: "", line: 1, isCode: false, isRow: false, isOwn: false };
  const [best] = rankPassages(["pair"], [{ ...passage, text: "pair repair" }, {
    ...passage,
    text: "repair",
    heading: "",
  }]);
  assert.deepEqual([best?.passage.text, best?.coverage], ["pair repair", 1]);
  assert.equal(rankPassages(["pair"], [{ ...passage, text: "repair", heading: "" }]).length, 0);
});
