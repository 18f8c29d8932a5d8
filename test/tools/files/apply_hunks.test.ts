import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ToolError } from "../../../lib/base/errors.ts";
import { applyHunks } from "../../../lib/tools/files/apply_hunks.ts";
import { parsePatch } from "../../../lib/tools/files/parse_patch.ts";

/** A text after the hunks written as in a patch. */
function apply(text: string, ...lines: readonly string[]): string {
  const [section] = parsePatch(["*** Begin Patch", "*** Update File: f", ...lines, "*** End Patch"].join("\n"));
  assert.ok(section?.kind === "update");
  return applyHunks(text, section.hunks, "f");
}

const refused = (pattern: RegExp) => (error: unknown) =>
  error instanceof ToolError && error.code === "patch_mismatch" && pattern.test(error.message);

test("hunks replace, remove and insert lines from the top down", () => {
  const text = "a\nb\nc\nd\ne\n";
  assert.equal(apply(text, "@@", " a", "-b", "+B", " c"), "a\nB\nc\nd\ne\n");
  assert.equal(apply(text, "-b", "@@", "-d", "+D", "+D2"), "a\nc\nD\nD2\ne\n");
  assert.equal(apply(text, "-a", "-b", "-c", "-d", "-e"), "");
  assert.equal(apply("", "+one", "+two"), "one\ntwo\n");
  assert.throws(() => apply(text, "@@", "-d", "@@", "-a"), refused(/hunk 2: "a" is only before the hunk above it/));
  assert.throws(() => apply(text, "@@", "-x"), refused(/hunk 1: "x" and what follows are not in the file; read it/));
  assert.throws(() => apply(text, "@@", " a", "-c"), refused(/hunk 1: "a" and what follows/));
});

test("text behind @@ says where to look", () => {
  const text = "def f():\n  x = 1\n  y = 2\ndef g():\n  x = 1\n  y = 2\n";
  assert.equal(
    apply(text, "@@ def g():", "-  x = 1", "+  x = 9"),
    text.replace(/x = 1(?=[^]*$)(?![^]*x = 1)/, "x = 9"),
  );
  assert.equal(apply(text, "@@ def g():", "@@   x = 1", "-  y = 2"), text.slice(0, text.lastIndexOf("  y")));
  assert.equal(apply(text, "@@ def g():", " def g():", "+  z"), text.replace("def g():\n", "def g():\n  z\n"));
  assert.equal(apply(text, "@@ def f():", "+  first"), text.replace("def f():\n", "def f():\n  first\n"));
  assert.throws(() => apply(text, "@@ def h():", "-  x = 1"), refused(/hunk 1: "@@ def h\(\):"/));
  assert.equal(apply("a\nx\na\nx\n", "@@", "-x", "+1", "@@", "-x", "+2"), "a\n1\na\n2\n");
});

test("the end-of-file marker ties a hunk to the last lines", () => {
  const text = "x\ny\nx\n";
  assert.equal(apply(text, "@@", "-x", "+z", "*** End of File"), "x\ny\nz\n");
  assert.equal(apply(text, "@@", "+more", "*** End of File"), "x\ny\nx\nmore\n");
  assert.throws(() => apply(text, "@@", "-y", "*** End of File"), refused(/not the last lines/));
});

test("white space is forgiven as a last resort, and the file's own is kept", () => {
  assert.equal(apply("\tif x:  \n\t\ty\n", "@@", " if x:", "-  y", "+\t\tz"), "\tif x:  \n\t\tz\n");
  assert.equal(apply("a  \na\n", "@@", "-a", "+b"), "a  \nb\n", "an exact place comes first");
  assert.throws(() => apply("\ta\n  a\n", "@@", "-a"), refused(/"a" is at several places, white space apart/));
});

test("line endings are kept, and so is the lack of the last one", () => {
  assert.equal(apply("a\r\nb\r\nc\r\n", "@@", " a", "-b", "+B", "+B2"), "a\r\nB\r\nB2\r\nc\r\n");
  assert.equal(apply("a\r\nb\r\n", "@@", " a\r", "-b\r", "+B\r"), "a\r\nB\r\n");
  assert.equal(apply("a\nb\r\nc", "@@", "+x", " b", "+y"), "a\nx\nb\r\ny\r\nc");
  assert.equal(apply("a\nb", "@@", "-b", "+c"), "a\nc");
  assert.equal(apply("a\nb", "@@", " b", "+c"), "a\nb\nc");
  assert.equal(apply("a", "@@", "+b", " a"), "b\na");
  assert.equal(apply("a\nb", "@@", "-b"), "a");
});

test("a patch that would compare without end is refused", () => {
  const hunk = ["@@", ...Array.from({ length: 20_000 }, () => " "), "-x"];
  assert.throws(
    () => apply("\n".repeat(100_000), ...hunk),
    (error) => error instanceof ToolError && error.code === "patch_too_costly",
  );
});

test("applying a patch that was made from edits equals making the edits", () => {
  const texts = fc.array(fc.constantFrom("a", "b", "", "  c", "\td ", "+e", "-f", "@@ g", "*** h"), { maxLength: 3 });
  /** Lines kept before an edit, lines it takes out, lines it puts in */
  const edits = fc.array(
    fc.record({ skip: fc.nat(4), remove: fc.nat(3), add: texts }),
    { minLength: 1, maxLength: 4 },
  );
  const file = fc.record({
    lines: fc.array(fc.constantFrom("a", "b", "", "  c", "\td ", "+e", "@@ g", "*** h"), { maxLength: 20 }),
    ending: fc.constantFrom("\n", "\r\n"),
    open: fc.boolean(),
  });
  fc.assert(
    fc.property(file, edits, fc.nat(3), fc.boolean(), ({ lines, ending, open }, changes, context, isUnique) => {
      const old = isUnique ? lines.map((line, i) => `${line}${i}.`) : lines;
      const text = old.join(ending) + (open || old.length === 0 ? "" : ending);
      // An open last line that is empty is no line
      if (open && old.at(-1) === "") return;
      const expected: string[] = [];
      const patch: string[] = [];
      let at = 0;
      for (const [i, { skip, remove, add }] of changes.entries()) {
        const start = Math.min(old.length, at + skip);
        const end = Math.min(old.length, start + remove);
        expected.push(...old.slice(at, start), ...add);
        // Where lines repeat, only all of them tell the place
        const kept = old.slice(isUnique ? Math.max(at, start - context) : at, start);
        if (isUnique || i === 0) patch.push("@@");
        const written = [...kept.map((line) => ` ${line}`), ...old.slice(start, end).map((line) => `-${line}`)];
        // Without a line of its own, a hunk would stand at the end
        if (isUnique && written.length === 0 && start < old.length) written.push(` ${old[start]}`);
        const isBefore = isUnique && kept.length === 0 && end === start && start < old.length;
        const added = add.map((line) => `+${line}`);
        patch.push(...(isBefore ? [...added, ...written] : [...written, ...added]));
        at = isBefore ? start + 1 : end;
        if (isBefore) expected.push(...old.slice(start, start + 1));
      }
      expected.push(...old.slice(at));
      if (!isUnique) patch.push(...old.slice(at).map((line) => ` ${line}`));
      if (patch.every((line) => line === "@@")) return;
      const filled = patch.filter((line, i) => line !== "@@" || (patch[i + 1] ?? "@@") !== "@@");
      const isOpen = open && old.length > 0;
      const whole = expected.join(ending) + (isOpen || expected.length === 0 ? "" : ending);
      // A file without any line ending, or without any line, says nothing about how lines end
      const result = apply(text, ...filled);
      assert.equal(text.includes("\n") ? result : result.replaceAll("\n", ending), whole);
    }),
    { numRuns: 200 },
  );
});
