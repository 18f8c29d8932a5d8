import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { describe, test } from "node:test";
import fc from "fast-check";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { anyCharacter } from "../support/any_character.ts";
import { processorMs } from "../support/processor_time.ts";

// The page's modules are plain JavaScript of another type-check (lib/dashboard/page/tsconfig.json), so they come in untyped
const load = (file: string) => import(new URL(`../../lib/dashboard/page/${file}`, import.meta.url).href);
const { parseMetrics, sumOf, quantileBetween } = await load("metrics.js");
const { browserName } = await load("browser_name.js");
const { toBlocks } = await load("markdown_blocks.js");
const { formatNumber, formatDuration, formatMs, formatBytes } = await load("format.js");

test("the page reads the types of resources from their schemas, and types none by hand", () => {
  const folder = new URL("../../lib/dashboard/page/", import.meta.url);
  const views = readdirSync(folder).filter((file) => file.endsWith("_view.js") || file.endsWith("_card.js"));
  assert.ok(views.length > 15, "the views are found");
  const fieldsOf = (text: string) =>
    [...text.matchAll(/@typedef \{\{(.*?)\}\}/gs)].map(([, body = ""]) => body.match(/\w+\??: /g)?.length ?? 0);
  const byHand = views.filter((file) =>
    fieldsOf(readFileSync(new URL(file, folder), "utf8")).some((count) => count > 5)
  );
  assert.deepEqual(byHand, [], "import the type from lib/base/records");
  assert.deepEqual(fieldsOf("/** @typedef {{\n * a: string,\n * b?: number,\n * }} T */"), [2]);
});

describe("browser_name.js", () => {
  test("names the browser and its system", () => {
    const names = [
      ["Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"],
      ["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36", "Chrome on Linux"],
      ["Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"],
      ["Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605 Version/18.0 Safari/605", "Safari on macOS"],
      [
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605 CriOS/140 Safari/604",
        "Chrome on iPhone",
      ],
      ["Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"],
      ["curl/8.0", "Browser"],
    ];
    for (const [userAgent, name] of names) assert.equal(browserName(userAgent), name);
  });
});

describe("metrics.js", () => {
  test("reads what the gateway renders, label values with quotes, newlines and backslashes too", () => {
    const metrics = createMetrics();
    metrics.counter("postern_x_total", "X", ["route"]).with('a"b\\c\nd, e="f"').add(3);
    metrics.gauge("postern_y", "Y").with().set(0.5);
    assert.deepEqual(parseMetrics(metrics.render()), [
      { name: "postern_x_total", labels: { route: 'a"b\\c\nd, e="f"' }, value: 3 },
      { name: "postern_y", labels: {}, value: 0.5 },
    ]);
  });

  test("leaves the probes out of a sum, and says NaN for a metric that is not there", () => {
    const samples = parseMetrics(
      'a_total{route="/metrics"} 90\na_total{route="/pair"} 2\na_total{route="/v1/ping"} 3\n',
    );
    assert.equal(sumOf(samples, "a_total"), 5);
    assert.equal(sumOf(samples, "a_total", ({ route }: { route: string }) => route === "/pair"), 2);
    assert.equal(sumOf(samples, "b_total"), NaN);
  });

  test("estimates a quantile from what came between two scrapes", () => {
    const metrics = createMetrics();
    const histogram = metrics.histogram("d_seconds", "D", { buckets: [0.1, 0.2, 0.4] }).with();
    histogram.observe(0.3);
    const before = parseMetrics(metrics.render());
    assert.equal(quantileBetween(before, before, "d_seconds", 0.5), NaN);
    for (let i = 0; i < 10; i++) histogram.observe(0.15);
    const after = parseMetrics(metrics.render());
    assert.equal(Math.round(quantileBetween(before, after, "d_seconds", 0.5) * 1000), 150);
    histogram.observe(9);
    assert.equal(quantileBetween(before, parseMetrics(metrics.render()), "d_seconds", 1), 0.4);
  });

  test("takes any text without throwing", () => {
    fc.assert(
      fc.property(fc.string({ unit: anyCharacter, maxLength: 300 }), (text) => Array.isArray(parseMetrics(text))),
      {
        numRuns: 200,
      },
    );
  });
});

describe("markdown_blocks.js", () => {
  const kinds = (text: string) => toBlocks(text).map(({ kind }: { kind: string }) => kind);

  test("tells paragraphs, headings, lists and code apart", () => {
    const text =
      "Intro\nmore\n\n# Title\n- a\n  b\n- c\n\n1. x\n\n```js\n# not a title\n```\n\n    indented\n\n    still\n\nend";
    assert.deepEqual(kinds(text), ["paragraph", "heading", "list", "list", "code", "code", "paragraph"]);
    assert.deepEqual(textsOf(toBlocks(text)[2]), [["a\nb"], ["c"]]);
    assert.equal(toBlocks(text)[4].text, "# not a title");
    assert.equal(toBlocks(text)[5].text, "indented\n\nstill");
  });

  // deno-lint-ignore no-explicit-any -- the page's modules come in untyped
  const textsOf = ({ items }: any) => items.map((blocks: any[]) => blocks.map((block) => block.text ?? textsOf(block)));

  test("reads lists within lists, their numbers, and what belongs to an item", () => {
    const [list, end] = toBlocks(
      "3. one\n   - a\n     - deep\n   - b\n\n   more of one\n4. two\n\n   ```sh\n   ls\n   ```\nlazy\n\nend",
    );
    assert.deepEqual([list.ordered, list.start, end.text], [true, 3, "end"]);
    assert.deepEqual(textsOf(list), [["one", [["a", [["deep"]]], ["b"]], "more of one"], ["two", "ls", "lazy"]]);
    assert.deepEqual(kinds("- a\n\n- b\n\n1. c\n* * *\n-"), ["list", "list", "rule", "list"]);
  });

  test("reads texts of any length, and shows what is behind 20,000 lines as it is written", () => {
    for (const line of ["- a\n", "a\n", "\n", "> \n", "- a\n\n\n", "| a |\n| - |\n"]) {
      const text = line.repeat(400_000);
      const blocks = toBlocks(`- item\n${text}- last`);
      const rest = blocks.at(-1);
      assert.equal(rest.kind, "code", line);
      assert.ok(rest.text.endsWith("- last") && blocks.length <= 20_001, line);
    }
  });

  test("reads quotes, and tables with their alignment and cells that hold a bar", () => {
    const [quote] = toBlocks("> # Title\n> said\n>\n> > deeper");
    assert.deepEqual(quote.blocks.map(({ kind }: { kind: string }) => kind), ["heading", "paragraph", "quote"]);
    const [before, table, after] = toBlocks(
      "Look:\n| a | b |c|\n|:--|:-:|--:|\n| 1 | x \\| y |\n| `z` | | 3 | 4 |\n\nend",
    );
    assert.deepEqual([before.text, table.align, after.text], ["Look:", ["left", "center", "right"], "end"]);
    assert.deepEqual(table.rows, [["a", "b", "c"], ["1", "x | y", ""], ["`z`", "", "3"]]);
    assert.deepEqual(kinds("a | b\nno line"), ["paragraph"]);
    assert.deepEqual(kinds("a | b\n--- | --- | ---"), ["paragraph"]);
  });

  test("keeps the language of code", () => {
    assert.deepEqual(toBlocks("~~~ts title=x\nlet a\n~~~")[0].language, "ts");
    assert.deepEqual(toBlocks("```\nx\n```")[0].language, "");
  });

  test("is done soon with lists and quotes that go on for ever", () => {
    const started = processorMs();
    for (const mark of ["- ", "> ", "1. ", "* > ", "| a |\n|---|\n"]) toBlocks(mark.repeat(20_000));
    toBlocks(Array.from({ length: 5000 }, (_, i) => `${" ".repeat(i % 60)}- x`).join("\n\n"));
    assert.ok(processorMs() - started < 5000, `${processorMs() - started} ms`);
  });

  test("shows a fence that is still open as code", () => {
    assert.deepEqual(kinds("Look:\n```\nhalf"), ["paragraph", "code"]);
  });

  test("loses no word of any text", () => {
    const line = fc.oneof(
      fc.constantFrom(
        "# h",
        "- item",
        "```",
        "    code",
        "",
        "~~~",
        "2) two",
        "   ",
        "> quote",
        "* * *",
        "| a | b |",
        "|---|---|",
        "  - x",
        "   y",
        ">",
      ),
      fc.string({ maxLength: 20 }).map((text) => text.replaceAll(/\s/g, "x")),
    );
    fc.assert(
      fc.property(fc.array(line, { maxLength: 30 }), (lines) => {
        const sources = toBlocks(lines.join("\n")).map(({ source }: { source: string }) => source).join("\n");
        const words = (text: string) => text.split(/\s+/).filter((word) => word !== "");
        assert.deepEqual(words(sources), words(lines.join("\n")));
      }),
      { numRuns: 200 },
    );
  });
});

describe("format.js", () => {
  test("keeps figures short", () => {
    assert.deepEqual([0, 0.254, 12.34, 999.6, 12_345, 2_400_000, NaN].map(formatNumber), [
      "0",
      "0.25",
      "12.3",
      "1,000",
      "12,345",
      "2.4M",
      "-",
    ]);
    assert.deepEqual([4, 200, 4000, 200_000].map(formatDuration), ["4 s", "3 min", "1 h 6 min", "2 d 7 h"]);
    assert.deepEqual([0.42, 12.6, 3400].map(formatMs), ["0.4 ms", "13 ms", "3.4 s"]);
    assert.equal(formatBytes(88_080_384), "84 MiB");
  });
});
