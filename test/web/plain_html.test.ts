import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { attributeOf, decodeCharacters, hasClass, tagsOf, textOfHtml } from "../../lib/web/plain_html.ts";

for (
  const [html, text] of [
    ["a <b>bold</b> word", "a bold word"],
    ["1 &lt; 2 &amp;&amp; 3 &#62; 2 &#x3e; 1", "1 < 2 && 3 > 2 > 1"],
    ["&nbsp;&hellip;&unknown; &#0;&#xD800;&#x110000; &amp;lt;", " …&unknown; ��� &lt;"],
    ["a <unclosed", "a <unclosed"],
    ["<<b>x</b>", "<x"],
    ["&__proto__; &constructor;", "&__proto__; &constructor;"],
  ] as const
) {
  test(`text of ${JSON.stringify(html)}`, () => assert.equal(textOfHtml(html).replaceAll(" ", " "), text));
}

test("tags of a page come in order, with name, place and attributes", () => {
  const html = `<P class='a b'>x < y <a href="/?a=1&amp;b=2" class=c>z</A><!-- c --><`;
  const tags = [...tagsOf(html)];
  assert.deepEqual(tags.map(({ name, start, end }) => [name, html.slice(start, end)]), [
    ["p", "<P class='a b'>"],
    ["a", '<a href="/?a=1&amp;b=2" class=c>'],
    ["/a", "</A>"],
  ]);
  const [first, second] = tags;
  assert.ok(first !== undefined && second !== undefined);
  assert.deepEqual([hasClass(first, "a"), hasClass(first, "b"), hasClass(first, "")], [true, true, false]);
  assert.deepEqual([attributeOf(second, "href"), attributeOf(second, "id")], ["/?a=1&b=2", undefined]);
});

test("any text has tags and a text, and a decoded text has no more characters", () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom("<", ">", "&", ";", "#", "x", "1", '"', " ", "class=") }), (text) => {
      for (const tag of tagsOf(text)) assert.ok(tag.start < tag.end && tag.end <= text.length);
      assert.ok(decodeCharacters(text).length <= text.length);
      textOfHtml(text);
    }),
  );
});
