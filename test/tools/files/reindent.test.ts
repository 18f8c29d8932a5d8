import assert from "node:assert/strict";
import { test } from "node:test";
import { createReindent, pairIndentations } from "../../../lib/tools/files/reindent.ts";

/** Pairs of indentations, written as "patch>file". */
const pairs = (...texts: readonly string[]) =>
  texts.map((text) => {
    const [patch = "", file = ""] = text.split(">");
    return { patch, file };
  });

test("the same indentation in the patch becomes the same in the file", () => {
  const reindent = createReindent(pairs(">\t", "  >\t\t\t"));
  assert.deepEqual(["a", "  a", "\t\t\ta"].map(reindent), ["\ta", "\t\t\ta", "\t\t\ta"]);
  assert.equal(reindent("    a"), undefined, "neither moved nor multiplied");
  assert.equal(createReindent(pairs("  >\t", "  >\t\t"))("  a"), undefined, "two for one");
});

test("lines that are all moved move the others", () => {
  assert.equal(createReindent(pairs(">    ", "  >      "))("    a"), "        a");
  assert.equal(createReindent(pairs("    >  ", "      >    "))("        a"), "      a");
  assert.equal(createReindent(pairs("    >  ", "      >    "))(" a"), undefined, "not so far to the left");
  assert.equal(createReindent(pairs("\t  >  "))("\ta"), "a");
  assert.equal(createReindent(pairs("\t  >  "))("  \ta"), undefined, "another start");
  assert.equal(createReindent(pairs("  >    ", "    >  "))("      a"), undefined, "moved two ways");
});

test("a unit of the patch becomes the unit of the file", () => {
  const reindent = createReindent(pairs("    >\t", "        >\t\t", ">"));
  assert.deepEqual(["            a", "  a", "\ta"].map(reindent), ["\t\t\ta", undefined, "\ta"]);
  assert.equal(createReindent(pairs("  >\t", "    >\t\t\t"))("      a"), undefined, "two units");
  assert.equal(createReindent(pairs("  >\t", "\t\t>\t"))("    a"), undefined, "two characters");
  assert.equal(createReindent(pairs("  >\t"))(" \t a"), undefined);
});

test("blank lines, and lines where nothing differs, stay", () => {
  assert.equal(createReindent(pairs("  >\t"))("   "), "   ");
  assert.equal(createReindent(pairs("  >  "))("      a"), "      a");
  assert.equal(createReindent([])("   a"), "   a");
  const old = ["  a", "", " "].map((text) => ({ kind: "keep" as const, text, crlf: false }));
  assert.deepEqual(pairIndentations(old, ["\ta", "\t", ""]), pairs("  >\t"));
});
