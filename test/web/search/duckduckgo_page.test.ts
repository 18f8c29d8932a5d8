import assert from "node:assert/strict";
import { test } from "node:test";
import { readDuckduckgo } from "../../../lib/web/search/duckduckgo_page.ts";

const read = (text: string, status = 200) => readDuckduckgo({ status, text });
const BYTES = 4_000_000;
/** Pages that make a careless reader take time in proportion to the square of their length. */
const HOSTILE = [
  "<",
  "<a",
  '<a class="',
  '<a class="result__a">',
  '<a class="result__a" href="',
  "&",
  "<a class=' ",
  "< >",
  "&#",
];

for (const piece of HOSTILE) {
  test(`4 MB of ${JSON.stringify(piece)} are read in two seconds`, () => {
    const begun = process.cpuUsage();
    read(piece.repeat(BYTES / piece.length));
    const { user, system } = process.cpuUsage(begun);
    assert.ok(user + system < 2_000_000, `${(user + system) / 1000} ms`);
  });
}

test("a snippet that speaks of no results, or of a challenge, is only text", () => {
  const page = (snippet: string) =>
    `<a class="result__a" href="https://a.example/">A</a><a class="result__snippet">${snippet}</a>`;
  for (const text of ['class="no-results"', '&lt;div class="no-results"&gt;', 'id="challenge-form"']) {
    const answer = read(page(text));
    assert.deepEqual(answer.kind === "results" && answer.results.map(({ url }) => url), ["https://a.example/"]);
  }
});

test("links to DuckDuckGo itself and to what is no page are no results", () => {
  const links = [
    "/y.js?ad_domain=x",
    "//duckduckgo.com/l/?uddg=javascript%3Aalert(1)",
    "//duckduckgo.com/l/",
    "javascript:alert(1)",
    "https://help.duckduckgo.com/",
  ];
  const page = links.map((href) => `<a class="result__a" href="${href}">x</a>`).join("");
  assert.deepEqual(read(page), { kind: "failed", problem: "changed", says: "" });
});
