import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { test } from "node:test";
import fc from "fast-check";
import { compileLinePattern, type LinePattern } from "../../../lib/tools/files/line_pattern.ts";
import { searchBytes } from "../../../lib/tools/files/search_bytes.ts";

const search = (
  bytes: Uint8Array | string,
  pattern: string,
  more: { caseInsensitive?: boolean; limit?: number } = {},
) => searched(bytes, compileLinePattern(pattern, { caseInsensitive: more.caseInsensitive ?? false }), more.limit).lines;
const searched = (bytes: Uint8Array | string, pattern: LinePattern, limit = 1000) =>
  searchBytes(Buffer.from(bytes as string), { pattern, limit, check: () => {} });
const linesOf = (found: readonly { readonly line: number }[]) => found.map(({ line }) => line);

test("what a pattern requires is found in it", () => {
  const required = (pattern: string, caseInsensitive = false) => {
    const toText = (found: ReturnType<typeof compileLinePattern>["required"]): unknown =>
      found?.kind === "literal"
        ? new TextDecoder().decode(found.bytes)
        : found && [found.kind, ...found.of.map(toText)];
    return toText(compileLinePattern(pattern, { caseInsensitive }).required);
  };
  assert.equal(required("gate"), "gate");
  assert.deepEqual(required("^\\s*(open|shut)?gateway+ .*é$"), ["all", "gatewa", "y", " ", "é"]);
  assert.deepEqual(required("open|shut"), ["any", "open", "shut"]);
  assert.equal(required("Gate", true), "gate");
  assert.equal(required("STREAMKÉY_one", true), "tream");
  for (const pattern of ["[a-z]+", "a?", "(?i)gate", "open|[a-z]", ".*", "(gate)*", "^$"]) {
    assert.equal(required(pattern), undefined, pattern);
  }
  assert.equal(required("ſkS", true), undefined);
});

test("lines are those an editor counts, whatever ends them", () => {
  const text = "\ufeffgate\r\n\r\nno\ngate\n\n  gate";
  for (const pattern of ["gate", "g[a]te", "^gate$|  [g]ate"]) {
    assert.deepEqual(search(text, pattern), [
      { line: 1, text: "gate" },
      { line: 4, text: "gate" },
      { line: 6, text: "  gate" },
    ], pattern);
  }
  assert.deepEqual(search(text, "^$"), [{ line: 2, text: "" }, { line: 5, text: "" }]);
  assert.deepEqual(search("", "^$"), []);
  assert.deepEqual(search("gate\ngate\ngate", "gate", { limit: 2 }).length, 2);
});

test("bytes that are no UTF-8 are looked at as U+FFFD", () => {
  const bytes = new Uint8Array([0xff, 0x67, 0x61, 0x0a, 0xc3, 0x28, 0x67, 0x61]);
  for (const pattern of ["ga", "\\x{FFFD}\\(?g[a]"]) {
    assert.deepEqual(search(bytes, pattern), [{ line: 1, text: "\ufffdga" }, { line: 2, text: "\ufffd(ga" }], pattern);
  }
});

test("a long line is searched to its end, with a literal and without", () => {
  for (const pattern of ["gate", "[g]ate", "gate$", "[g]ate$"]) {
    assert.deepEqual(linesOf(search(`no\n${"é".repeat(1_000_000)}gate\r\nno`, pattern)), [2], pattern);
    assert.deepEqual(linesOf(search(`${"é".repeat(20_000)}gat\ngate`, pattern)), [2], pattern);
  }
  assert.equal(compileLinePattern("a".repeat(900), { caseInsensitive: true }).maxLine, Infinity);
});

test("a line that is too long for its pattern is searched to a bound and named", () => {
  const large = compileLinePattern("(gate|[x-z]{400}[a-c]{400})", { caseInsensitive: false });
  assert.ok(large.maxLine >= 50_000 && large.maxLine < 100_000, String(large.maxLine));
  for (const source of ["gate", "[g]ate"]) {
    const pattern: LinePattern = { ...compileLinePattern(source, { caseInsensitive: false }), maxLine: 100 };
    const found = (text: string) => {
      const { lines, cutLines } = searched(text, pattern);
      return [linesOf(lines), cutLines];
    };
    assert.deepEqual(found(`no\n${"é".repeat(96)}gate\ngate`), [[2, 3], []], source);
    assert.deepEqual(found(`no\n${"é".repeat(96)}gate\r\ngate`), [[2, 3], []], source);
    assert.deepEqual(found(`no\n${"é".repeat(97)}gate\ngate`), [[3], [2]], source);
    assert.deepEqual(found(`gate${"é".repeat(97)}\n`), [[1], [1]], source);
  }
});

test("a shortened line names the byte of its match", () => {
  const startByte = (bytes: Uint8Array | string, pattern: string) => search(bytes, pattern).at(-1)?.startByte;
  for (const pattern of ["gate", "[g]ate"]) {
    assert.equal(startByte(`gate\n${"x".repeat(296)}gate`, pattern), undefined);
    assert.equal(startByte(`gate\r\n\n${"x".repeat(297)}gate\n`, pattern), 298);
    assert.equal(startByte(`\n${"é€😀".repeat(100)}gate\n`, pattern), 901);
    assert.equal(startByte(`\ufeff${"é".repeat(300)}gate\n`, pattern), 604);
    assert.equal(startByte(`\n\ufeff${"\ufffd".repeat(300)}gate\n`, pattern), 904);
    // Each broken piece is one U+FFFD: a lone byte, a character without its end, half a surrogate pair in three pieces
    const broken = Buffer.from([0xff, 0xe2, 0x82, 0x61, 0xf0, 0x9f, 0x98, 0xe9, 0x20, 0xed, 0xa0, 0x80, 0xc3]);
    const line = Buffer.concat([...Array<Buffer>(60).fill(broken), Buffer.from("gate")]);
    assert.equal(startByte(line, pattern), 60 * broken.length + 1);
  }
});

test("looking for literals first finds the same lines as looking at each", () => {
  const word = fc.constantFrom(
    "gate",
    "GATE",
    "Kiosk",
    "\u212aio\u017fk",
    "É",
    "ga",
    "open",
    "é",
    "\u{1F600}",
    " ",
    "\r",
    "\n",
    "\n\n",
    "x",
    "\ufeff",
    "\0",
  );
  const text = fc.array(word, { maxLength: 40 }).map((words) => words.join(""));
  const part = fc.constantFrom(
    "gate",
    "open",
    "é",
    "\u{1F600}",
    "x",
    "(ga|open)",
    "[a-z]?",
    ".*",
    "^",
    "$",
    "\\b",
    " ",
  );
  const pattern = fc.array(part, { minLength: 1, maxLength: 3 }).map((parts) => parts.join(""));
  fc.assert(
    fc.property(
      text,
      fc.array(pattern, { minLength: 1, maxLength: 3 }),
      fc.boolean(),
      (text, patterns, caseInsensitive) => {
        const compiled = compileLinePattern(patterns.join("|"), { caseInsensitive });
        const bytes = Buffer.from(text);
        const options = { limit: 1000, check: () => {} };
        const each = searchBytes(bytes, { ...options, pattern: { ...compiled, required: undefined } });
        assert.deepEqual(searchBytes(bytes, { ...options, pattern: compiled }), each);
      },
    ),
    { numRuns: 200 },
  );
});
