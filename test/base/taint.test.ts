import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { joinTaints, ReadLinks, RunTaint } from "../../lib/base/taint.ts";
import { processorMs } from "../support/processor_time.ts";

test("taints are joined without doubles, and are bounded however much comes from outside", () => {
  fc.assert(fc.property(fc.array(fc.array(fc.string({ maxLength: 300 }))), (taints) => {
    const joined = joinTaints(...taints);
    assert.equal(joined.length === 0, taints.flat().length === 0, "none is lost for good");
    assert.equal(new Set(joined).size, joined.length);
    assert.ok(joined.length <= 16);
    assert.ok(joined.every((origin) => origin.length <= 123 && !/[\n\r\u2028]/.test(origin) && origin.isWellFormed()));
    assert.deepEqual(joinTaints(joined), joined);
  }));
  const many = Array.from({ length: 40 }, (_, at) => `web_fetch site${at}.example`);
  assert.deepEqual(joinTaints(many).at(-1), "and others");
  assert.deepEqual(joinTaints(joinTaints(many), ["one more"]), joinTaints(many));
});

test("the taint of a run only grows", () => {
  const taint = new RunTaint(["a"]);
  taint.add([]);
  taint.add(["b", "a"]);
  assert.deepEqual(taint.origins, ["a", "b"]);
});

const linksOf = (text: string, isPerson = false) => {
  const links = new ReadLinks();
  links.add(text, { isPerson });
  return links;
};

test("an address is known as texts, Markdown, HTML and JSON write it, whatever its scheme and fragment", () => {
  for (
    const [text, url] of [
      ["See https://example.com/a.", "https://example.com/a"],
      ["See HTTPS://Example.COM", "https://example.com/"],
      ["(https://example.com/a), and more", "https://example.com/a"],
      ["https://example.com/a_(b)", "https://example.com/a_(b)"],
      ["[one](https://example.com/a)[two](https://example.com/b)", "https://example.com/b"],
      ["[one](https://example.com/a)[two](https://example.com/b)", "https://example.com/a"],
      ["<https://example.com/a?b=c&d=e#top>", "https://example.com/a?b=c&d=e"],
      ["http://example.com/a", "https://example.com/a#end"],
      [String.raw`{"url":"https:\/\/example.com\/a"}`, "https://example.com/a"],
      [String.raw`https://example.com/a\_b`, "https://example.com/a_b"],
      ["<a href='https://example.com/?a=1&amp;b=2'>", "https://example.com/?a=1&b=2"],
      ["https://archive.example/https://example.com/a", "https://archive.example/https://example.com/a"],
      ["https://archive.example/https://example.com/a", "https://example.com/a"],
      [`https://example.com/${"x".repeat(4000)}`, `https://example.com/${"x".repeat(4000)}`],
    ] as const
  ) assert.ok(linksOf(text).has(url), `${text} -> ${url}`);
});

test("an address that was not read letter by letter is not known", () => {
  const links = linksOf("https://example.com/a?b=c https://example.com/long/path example.org/door");
  for (
    const url of [
      "https://example.com/",
      "https://example.com/a",
      "https://example.com/a?b=c&d=SECRET",
      "https://example.com/long",
      "https://secret.example.com/a?b=c",
      "https://user:secret@example.com/a?b=c",
      "https://example.com:8443/a?b=c",
      "https://example.org/door",
      "file:///etc/passwd",
      "no address",
    ]
  ) assert.ok(!links.has(url), url);
});

test("a person may leave the scheme out", () => {
  const links = linksOf("Look at example.org/door, or write to me@mail.example", true);
  assert.ok(links.has("https://example.org/door"));
  assert.ok(linksOf("What is on example.org?", true).has("https://example.org/"));
  assert.ok(!links.has("https://mail.example/"));
});

test("another run's addresses are shared only where that run has read them", () => {
  const links = new ReadLinks();
  links.addShared(
    linksOf("https://example.com/a").sharedIn("Read https://example.com/a and https://evil.example/?d=SECRET"),
  );
  assert.deepEqual(["https://example.com/a", "https://evil.example/?d=SECRET"].map((url) => links.has(url)), [
    true,
    false,
  ]);
});

test("known addresses are bounded, and a hostile text is read in time", () => {
  const many = linksOf(Array.from({ length: 30_000 }, (_, at) => `https://example.com/${at}`).join(" "));
  assert.ok(!many.has("https://example.com/0"));
  assert.ok(many.has("https://example.com/29999"));
  const started = processorMs();
  for (
    const text of [
      "https://".repeat(100_000),
      "a.".repeat(300_000),
      `https://example.com/${")".repeat(500_000)}`,
      `https://example.com/${"\\".repeat(500_000)}`,
      "a".repeat(1_000_000),
      "a-".repeat(500_000),
    ]
  ) linksOf(text, true).has("https://example.com/");
  assert.ok(processorMs() - started < 4000);
});
