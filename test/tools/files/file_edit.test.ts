import assert from "node:assert/strict";
import { chmodSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { editText } from "../../../lib/tools/files/edit_text.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const ON = { write_file: { enabled: true }, autonomy: { level: "full" } } as const;
const edit = (old_text: string, new_text: string) => ({ old_text, new_text });

test("replaces texts one after the other and keeps the mode", () =>
  withWorkspace({ "a.txt": "one\ntwo\nthree\n" }, async ({ root, path }) => {
    chmodSync(path("a.txt"), 0o755);
    const { call } = createToolBench({ root, config: ON });
    const { result } = await call("file_edit", { path: "a.txt", edits: [edit("two", "2"), edit("2\nthree", "drei")] });
    assert.deepEqual(result, {
      output: "dry_run=false path=a.txt bytes=9 edits=2",
      isError: false,
      data: { dry_run: false, path: "a.txt", bytes: 9, edits: 2 },
    });
    assert.equal(readFileSync(path("a.txt"), "utf8"), "one\ndrei\n");
    assert.equal(statSync(path("a.txt")).mode & 0o777, 0o755);
  }));

test("a text that is missing or not alone changes nothing", () =>
  withWorkspace({ "a.txt": "aaa b b\n" }, async ({ root, path }) => {
    const { call } = createToolBench({ root, config: ON });
    const output = async (...edits: readonly ReturnType<typeof edit>[]) =>
      (await call("file_edit", { path: "a.txt", edits })).result.output;
    assert.match(await output(edit("aaa", "x"), edit("c", "d")), /edits\[1\]: its old_text is not in the file; read/);
    assert.match(await output(edit("aaa", "x"), edit("aaa", "d")), /not in the file, after the edits before it/);
    assert.match(await output(edit("b", "x")), /edits\[0\]: its old_text is in the file more than once; add the lines/);
    assert.match(await output(edit("aa", "x")), /more than once/);
    assert.match(await output(edit("", "x")), /"edits\.0\.old_text" must not be empty/);
    assert.match((await call("file_edit", { path: "a.txt", edits: [] })).result.output, /"edits" must not be empty/);
    const dry = await call("file_edit", { path: "a.txt", edits: [edit("aaa", "x")], dry_run: true });
    assert.equal(dry.result.output, "dry_run=true path=a.txt bytes=6 edits=1");
    assert.equal(readFileSync(path("a.txt"), "utf8"), "aaa b b\n");
  }));

test("line endings and the byte order mark are kept", () =>
  withWorkspace({
    "crlf.txt": "\ufeffone\r\ntwo\r\n",
    "lf.txt": "one\ntwo\n",
    "mixed.txt": "one\ntwo\r\n",
  }, async ({ root, path }) => {
    const { call } = createToolBench({ root, config: ON });
    const edited = async (name: string, oldText: string, newText: string) => {
      await call("file_edit", { path: name, edits: [edit(oldText, newText)] });
      return readFileSync(path(name), "utf8");
    };
    assert.equal(await edited("crlf.txt", "one\ntwo", "1\n2\n3"), "\ufeff1\r\n2\r\n3\r\n");
    assert.equal(await edited("lf.txt", "one\r\ntwo", "1\r\n2"), "1\n2\n");
    assert.equal(await edited("mixed.txt", "two\r\n", "2\n"), "one\n2\n");
  }));

test("the same text in other code points is found after the exact one, and what stays is as it was in the file", () => {
  const [composed, apart] = ["Caf\u00e9", "Cafe\u0301"];
  const edited = (text: string, oldText: string, newText: string) => editText(text, [edit(oldText, newText)], "f");
  assert.equal(edited(`${apart} au lait\n`, `${composed} au`, `${composed} sans`), `${apart} sans lait\n`);
  assert.equal(edited(`${composed} au\n`, `${apart} au`, `${apart} sans`), `${composed} sans\n`);
  assert.equal(edited(`${apart}\n${composed}\n`, composed, "Tee"), `${apart}\nTee\n`, "an exact place comes first");
  assert.equal(edited("\u1112\u1161\u11ab\n", "\ud55c", "x"), "x\n", "a syllable of Hangul");
  assert.throws(() => edited(`${apart} ${apart}\n`, composed, "x"), /more than once/);
  assert.throws(() => edited(`${apart}\n`, "Caf\u00e8", "x"), /not in the file/);
  assert.equal(edited(`x${apart}\r\ny\r\n`, `x${composed}\ny`, `x${composed}\nz\ny`), `x${apart}\r\nz\r\ny\r\n`);
});

test("an edit meets its text over mixed line ends, whose lines keep theirs", () => {
  const text = "a\r\nb\nc\r\nd\n";
  const edited = (oldText: string, newText: string) => editText(text, [edit(oldText, newText)], "f");
  assert.equal(edited("a\nb\nc\n", "a\nB\nc\n"), "a\r\nB\nc\r\nd\n");
  assert.equal(edited("a\nb", "a\nx\ny\nb"), "a\r\nx\r\ny\r\nb\nc\r\nd\n");
  assert.equal(edited("c\nd", "c\nx"), "a\r\nb\nc\r\nx\n");
  assert.throws(() => editText("a\r\nb\na\nb\n", [edit("a\nb\r\n", "x")], "f"), /more than once/);
});

test("an edit by other code points changes nothing outside its place", () => {
  const piece = fc.constantFrom("e\u0301", "\u00e9", "a", " ", "\r\n", "\n", "\u1100\u1161", "\uac00", "x\u0323\u0307");
  const pieces = fc.array(piece, { maxLength: 6 }).map((each) => each.join(""));
  fc.assert(
    fc.property(pieces, pieces, pieces, pieces, (before, given, after, added) => {
      const other = (text: string) => text.normalize("NFD").replaceAll(/\r?\n/g, "\n");
      // Marks and syllables of a neighbour would become a part of it
      const text = `${before}<${given}>${after}`;
      const result = editText(text, [edit(`<${other(given)}>`, `<${other(added)}>`)], "f");
      assert.ok(result.startsWith(`${before}<`) && result.endsWith(`>${after}`));
      assert.equal(other(result.slice(before.length + 1, -after.length - 1)), other(added));
      assert.equal(editText(text, [edit(`<${other(given)}>`, `<${other(given)}>`)], "f").length, text.length);
    }),
  );
});

test("the limits and refusals of write_file hold", () =>
  withWorkspace({ "a.txt": "x", "bin": new Uint8Array([65, 0]), ".env": "A=1" }, async ({ root, path }) => {
    const { call } = createToolBench({ root, config: { ...ON, write_file: { enabled: true, max_write_bytes: 4 } } });
    const output = async (name: string, oldText: string, newText: string) =>
      (await call("file_edit", { path: name, edits: [edit(oldText, newText)] })).result.output;
    assert.match(await output("a.txt", "x", "xxxxx"), /it would have 5 bytes/);
    assert.match(await output("bin", "A", "B"), /^Cannot edit "bin": it is not UTF-8 text$/);
    assert.match(await output("none", "A", "B"), /^Cannot edit "none": it does not exist$/);
    assert.match(await output(".env", "A", "B"), /allow_sensitive_file_writes/);
    writeFileSync(path("big"), "y".repeat(1_100_000));
    assert.match(await output("big", "y", "z"), /it has 1100000 bytes, more than/);
  }));

test("asks under supervised, is denied for readers, and off by default", () =>
  withWorkspace({ "a.txt": "one" }, async ({ root, path }) => {
    const { call, configure } = createToolBench({ root });
    const input = { path: "a.txt", edits: [edit("one", "two")] };
    assert.match((await call("file_edit", input)).result.output, /\[security\.write_file\] enabled = true/);
    for (const level of ["supervised", "read_only"] as const) {
      configure({ write_file: { enabled: true }, autonomy: { level } });
      assert.equal((await call("file_edit", input)).ran, false, level);
    }
    assert.equal(readFileSync(path("a.txt"), "utf8"), "one");
  }));

test("editText() gives the text with exactly the one part replaced", () => {
  const word = fc.string({ unit: fc.constantFrom("a", "b", "\n", "$", "&"), maxLength: 8 });
  fc.assert(
    fc.property(word, fc.string({ minLength: 1 }), word, word, (before, middle, after, replacement) => {
      const marked = `<${middle.replaceAll(/[<>\r\n]/g, "")}>`;
      assert.equal(editText(before + marked + after, [edit(marked, replacement)], "p"), before + replacement + after);
    }),
    { numRuns: 200 },
  );
});
