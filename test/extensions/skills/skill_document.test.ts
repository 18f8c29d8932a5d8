import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import { readSkillDocument } from "../../../lib/extensions/skills/skill_document.ts";

const front = (...lines: string[]) => ["---", ...lines, "---", "# Steps", "", "Do it."].join("\n");
const GOOD = ["name: pdf-forms", "description: Fills PDF forms. Use it for PDFs."];

test("a skill has the fields of the format, and the instructions behind them", async () => {
  const text = front(
    ...GOOD,
    "license: Apache-2.0",
    "compatibility: Requires qpdf",
    "metadata:",
    "  author: somebody",
    "  version: 1.5",
    "allowed-tools: Bash(git add:*) Read",
    "disallowed-tools: [web_fetch, git_*]",
  );
  const { document, faults } = await readSkillDocument(text, "pdf-forms");
  assert.deepEqual(faults, []);
  assert.deepEqual(document, {
    name: "pdf-forms",
    description: "Fills PDF forms. Use it for PDFs.",
    license: "Apache-2.0",
    compatibility: "Requires qpdf",
    metadata: { author: "somebody", version: "1.5" },
    allowedTools: ["Bash(git add:*)", "Read"],
    disallowedTools: ["web_fetch", "git_*"],
    isOffered: true,
    body: "# Steps\n\nDo it.",
    bodyLine: 12,
  });
});

suite("what other programs let pass is told of, with its line", () => {
  const cases: readonly (readonly [string, readonly string[], number, RegExp, folder?: string])[] = [
    ["a name that is not the folder's", ["name: forms", "description: D"], 2, /must be the name of the skill's folder/],
    ["no name", ["description: D"], 2, /it is missing; the folder's name "pdf-forms" is used/],
    ["capitals", ["description: D", "name: PDF-Forms"], 3, /lowercase letters/],
    ["a hyphen at the end", ["name: pdf-", "description: D"], 2, /may not begin or end with a hyphen/],
    ["two hyphens", ["name: pdf--x", "description: D"], 2, /two in a row/],
    ["a long name", [`name: ${"a".repeat(65)}`, "description: D"], 2, /1 to 64 characters/],
    ["a long description", ["name: pdf-forms", `description: ${"d".repeat(1025)}`], 3, /1025 characters/],
    ["a field of others", [...GOOD, "model: opus"], 4, /no such field/],
    ["a colon in a value", ["name: pdf-forms", "description: Use when: it rains"], 3, /as if .* quotation marks/],
    ["several brackets", [...GOOD, "allowed-tools: [a] [b]"], 4, /as if .* quotation marks/],
    ["capitals in name and folder", ["name: PDF", "description: D"], 2, /it is called "pdf" here/, "PDF"],
    ["a folder in decomposed letters", ["description: D"], 2, /the folder's name "caf\u00e9" is used/, "cafe\u0301"],
    ["metadata that are a list", [...GOOD, "metadata: [1]"], 4, /list of fields/],
    ["allowed tools that are none", [...GOOD, "allowed-tools: 5"], 4, /names of tools/],
    ["a long requirement", [...GOOD, `compatibility: ${"c".repeat(501)}`], 4, /501 characters and may have 500/],
  ];
  for (const [what, lines, line, reason, folder = "pdf-forms"] of cases) {
    test(what, async () => {
      const { document, faults } = await readSkillDocument(front(...lines), folder);
      assert.ok(document);
      assert.equal(faults.length, 1, JSON.stringify(faults));
      assert.equal(faults[0]?.line, line);
      assert.equal(faults[0]?.isFatal, false);
      assert.match(faults[0]?.reason ?? "", reason);
    });
  }
});

suite("a description that its author forgot to quote is the text that is written there", () => {
  const cases: readonly (readonly [given: readonly string[], text: string])[] = [
    [["Use when: it rains"], "Use when: it rains"],
    [["[Beta] Fills forms"], "[Beta] Fills forms"],
    [["{name} fills forms"], "{name} fills forms"],
    [["`qpdf` fills forms"], "`qpdf` fills forms"],
    [["**Fills** forms"], "**Fills** forms"],
    [["**Fills**"], "**Fills**"],
    [["* fills forms"], "* fills forms"],
    [['"Forms" are filled'], '"Forms" are filled'],
    [["'Forms' are filled: all"], "'Forms' are filled: all"],
    [["@team fills forms"], "@team fills forms"],
    [["!important: fills forms"], "!important: fills forms"],
    [["%d forms"], "%d forms"],
    [
      ["Fills forms.", "  Use when: it rains,", "  # not this", "  or snows."],
      "Fills forms. Use when: it rains, or snows.",
    ],
    [["[Beta]", "  Fills: forms"], "[Beta] Fills: forms"],
    [["Fills forms", "at: all times"], "Fills forms"],
  ];
  for (const [[first = "", ...more], text] of cases) {
    test([first, ...more].join(" / "), async () => {
      const lines = ["name: pdf-forms", `description: ${first}`, ...more, "argument-hint: [file] [format]", "x: y"];
      const { document, faults } = await readSkillDocument(front(...lines), "pdf-forms");
      assert.equal(document?.description, text);
      assert.equal(faults.find(({ key }) => key === "x")?.line, lines.length + 1);
      assert.deepEqual(faults.filter(({ reason }) => /quotation marks/.test(reason)).length, 1);
    });
  }
});

suite("a skill is refused for", () => {
  const cases: readonly (readonly [string, string, string, number, RegExp])[] = [
    ["no front matter", "# Steps", "pdf", 1, /must begin with front matter/],
    ["a front matter without end", "---\nname: pdf\ndescription: D", "pdf", 1, /must begin with front matter/],
    ["a front matter that is no list of fields", "---\n- a\n---\n", "pdf", 2, /list of fields/],
    ["an empty front matter", "---\n---\n", "pdf", 2, /list of fields/],
    ["YAML that cannot be read", "---\nmetadata:\n  by: 'me\n---\n", "pdf", 3, /not valid YAML/],
    ["an alias", "---\nname: &a pdf\ndescription: *a\n---\n", "pdf", 3, /aliases are not taken/],
    [
      "forbidden tools in several brackets",
      front(...GOOD, "disallowed-tools: [a] [b]"),
      "pdf-forms",
      4,
      /not valid YAML/,
    ],
    ["no description", "---\nname: pdf\n---\n", "pdf", 2, /it is missing; it tells the model/],
    ["an empty description", "---\nname: pdf\ndescription: ' '\n---\n", "pdf", 3, /not empty/],
    ["no name and a folder that cannot be one", "---\ndescription: D\n---\n", "My PDFs", 2, /it is missing/],
    [
      "forbidden tools that cannot be read",
      `${front(...GOOD, "disallowed-tools: 5")}`,
      "pdf-forms",
      4,
      /names of tools/,
    ],
    [
      "a hidden skill that cannot be told",
      front(...GOOD, "disable-model-invocation: yes please"),
      "pdf-forms",
      4,
      /true or/,
    ],
  ];
  for (const [what, text, folder, line, reason] of cases) {
    test(what, async () => {
      const { document, faults } = await readSkillDocument(text, folder);
      assert.equal(document, undefined);
      const fatal = faults.find(({ isFatal }) => isFatal);
      assert.match(fatal?.reason ?? "", reason);
      assert.equal(fatal?.line, line);
    });
  }
});

suite("a front matter that takes long to parse is refused before, with its line", () => {
  const cases: readonly (readonly [string, string, RegExp])[] = [
    ["many bytes", `x: ${"a".repeat(8_192)}`, /longer than 8192 bytes/],
    ["a line of 1 MB", `x: ${"- ".repeat(500_000)}`, /longer than 8192 bytes/],
    ["many lines", "\n".repeat(400), /over 400 lines/],
    ["deep lists", `x: ${"[".repeat(301)}`, /over 300 opening brackets/],
  ];
  for (const [what, line, reason] of cases) {
    test(what, async () => {
      const { document, faults } = await readSkillDocument(front(...GOOD, line), "pdf-forms");
      assert.equal(document, undefined);
      assert.match(faults[0]?.reason ?? "", reason);
    });
  }

  test("without an end", async () => {
    const { faults } = await readSkillDocument(`---\n${"a: 1\n".repeat(100_000)}`, "pdf-forms");
    assert.deepEqual(faults.map(({ isFatal }) => isFatal), [true]);
  });
});

test("lists that authors make long are bounded, and what takes a tool away is not cut but refused", async () => {
  const read = async (...lines: readonly string[]) => await readSkillDocument(front(...GOOD, ...lines), "pdf-forms");
  const many = Array.from({ length: 201 }, (_, at) => `t${at}`).join(" ");
  assert.deepEqual((await read(`allowed-tools: ${many}`)).document?.allowedTools, []);
  assert.equal((await read(`disallowed-tools: ${many}`)).document, undefined);
  assert.equal((await read(`disallowed-tools: ${"a(".repeat(3_000)}`)).document, undefined);
  const fields = Array.from({ length: 390 }, (_, at) => `f${at}: 1`);
  assert.equal((await read(...fields)).faults.length, 51);
  const metadata = Array.from({ length: 390 }, (_, at) => `  f${at}: 1`);
  assert.equal(Object.keys((await read("metadata:", ...metadata)).document?.metadata ?? {}).length, 100);
});

test("any text gives a document or a fatal fault, and the name and description of a document are safe to show", async () => {
  const line = fc.oneof(
    fc.constantFrom(
      "name: pdf",
      "description: D",
      "---",
      "metadata:",
      "  a: b",
      "allowed-tools: [a",
      "x: &a 1",
      "y: *a",
      "__proto__: 1",
    ),
    fc.string({ unit: "binary", maxLength: 40 }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(line, { maxLength: 12 }), async (lines) => {
      const { document, faults } = await readSkillDocument(["---", ...lines].join("\n"), "pdf");
      assert.equal(document === undefined, faults.some(({ isFatal }) => isFatal));
      assert.doesNotMatch(document?.name ?? "", /[^\p{L}\p{N}-]/u);
      assert.doesNotMatch(document?.description ?? "", /[\r\n]/);
    }),
    { numRuns: 300 },
  );
});
