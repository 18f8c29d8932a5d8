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
