import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { OpenFile } from "../../../lib/system/files/files.ts";
import { decodeText, readPart, type TextPlace } from "../../../lib/tools/files/read_text.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

test("gives the text unchanged", () =>
  withWorkspace({ "a.txt": "\ufeffone\r\ntwo\n\n  three", "empty.txt": "" }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const { result } = await call("read_file", "a.txt");
    assert.deepEqual(result, {
      output: "\ufeffone\r\ntwo\n\n  three",
      isError: false,
      data: { path: "a.txt", size: 20, encoding: "utf-8", truncated: false },
    });
    assert.equal((await call("read_file", { path: "empty.txt" })).result.output, "");
  }));

test("gives the lines asked for", () =>
  withWorkspace({ "a.txt": "1\n2\n3\n4", "b.txt": "1\n2\n", "empty.txt": "" }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const lines = async (path: string, start_line?: number, line_count?: number) =>
      (await call("read_file", { path, start_line, line_count })).result.output;
    assert.equal(await lines("a.txt", 2), "2\n3\n4");
    assert.equal(await lines("a.txt", 2, 2), "2\n3\n");
    assert.equal(await lines("a.txt", undefined, 1), "1\n");
    assert.equal(await lines("a.txt", 4, 9), "4");
    assert.equal(await lines("b.txt", 2, 1), "2\n");
    assert.equal(await lines("a.txt", 5), 'Cannot read "a.txt" from line 5: it has 4 lines');
    assert.equal(await lines("b.txt", 3), 'Cannot read "b.txt" from line 3: it has 2 lines');
    assert.equal(await lines("empty.txt", 2), 'Cannot read "empty.txt" from line 2: it has 0 lines');
    assert.equal(await lines("empty.txt", 1), "");
  }));

test("cuts a large file on a character and says how to go on, so that all of it can be read", () =>
  withWorkspace({ "a.txt": "zeile äöü€😀\n".repeat(50) }, async ({ root }) => {
    const { call } = createToolBench({ root, config: { read_file: { max_read_bytes: 93 } } });
    const first = (await call("read_file", "a.txt")).result;
    assert.match(
      first.output,
      /zeile äöü\n\[Cut after 92 of 1000 bytes: go on with "start_line": 5, where it was cut\]$/,
    );
    assert.deepEqual(first.data, { path: "a.txt", size: 1000, encoding: "utf-8", truncated: true, next_line: 5 });
    assert.ok(!first.output.includes("\ufffd"));
    let start_line: number | undefined = 1;
    let lines = 0;
    while (start_line !== undefined) {
      const { result } = await call("read_file", { path: "a.txt", start_line });
      const { next_line } = result.data as { next_line?: number };
      lines += next_line === undefined ? result.output.split("\n").length - 1 : next_line - start_line;
      start_line = next_line;
    }
    assert.equal(lines, 50);
  }));

test("a line longer than the limit is cut with the byte to go on with, so that all of it can be read", () =>
  withWorkspace({ "a.txt": `first\n${"x".repeat(150)}\nlast\n` }, async ({ root }) => {
    const { call } = createToolBench({ root, config: { read_file: { max_read_bytes: 100 } } });
    const read = async (more: Record<string, number>) =>
      (await call("read_file", { path: "a.txt", start_line: 2, ...more })).result;
    const first = await read({});
    assert.equal(
      first.output,
      `${
        "x".repeat(100)
      }\n[Cut after 100 of 162 bytes: go on with "start_line": 2, "start_byte": 101, where it was cut]`,
    );
    assert.deepEqual(first.data, {
      path: "a.txt",
      size: 162,
      encoding: "utf-8",
      truncated: true,
      next_line: 2,
      next_byte: 101,
    });
    const rest = await read({ start_byte: 101 });
    assert.equal(rest.output, `${"x".repeat(50)}\nlast\n`);
    assert.deepEqual(rest.data, { path: "a.txt", size: 162, encoding: "utf-8", truncated: false, start_byte: 101 });
    assert.equal((await read({ start_byte: 149, line_count: 1 })).output, "xx\n");
    assert.equal((await read({ start_byte: 151 })).output, "\nlast\n");
    assert.equal(
      (await read({ start_byte: 152 })).output,
      'Cannot read "a.txt" from byte 152 of line 2: the line has 151 bytes',
    );
    assert.equal(
      (await read({ start_byte: 2, start_line: 9 })).output,
      'Cannot read "a.txt" from line 9: it has 3 lines',
    );
  }));

test("a start inside a character moves to the next whole one and says so", () =>
  withWorkspace({ "a.txt": "é€😀z\n", "nul": new Uint8Array([0xff, 0x80, 0x80, 0]) }, async ({ root }) => {
    const { call, configure } = createToolBench({ root });
    const read = async (start_byte: number, path = "a.txt") =>
      (await call("read_file", { path, start_byte })).result.output;
    assert.equal(await read(3), "€😀z\n");
    assert.equal(await read(2), "€😀z\n\n[Starts at byte 3: byte 2 is inside a character]");
    for (const byte of [4, 5]) {
      assert.equal(await read(byte), `😀z\n\n[Starts at byte 6: byte ${byte} is inside a character]`);
    }
    for (const byte of [7, 8, 9]) {
      assert.equal(await read(byte), `z\n\n[Starts at byte 10: byte ${byte} is inside a character]`);
    }
    assert.equal(await read(11), "\n");
    configure({ read_file: { allow_binary: true } });
    assert.equal(await read(2, "nul"), "gIAA");
  }));

test("a limit smaller than a character names the setting that shows more", () =>
  withWorkspace({ "a.txt": "😀" }, async ({ root }) => {
    const { call } = createToolBench({ root, config: { read_file: { max_read_bytes: 2 } } });
    const { output } = (await call("read_file", "a.txt")).result;
    assert.equal(output, "\n[Cut after 0 of 4 bytes: a larger [security.read_file] max_read_bytes shows more]");
  }));

test("a file of exactly the limit is not cut", () =>
  withWorkspace({ "a.txt": "x".repeat(100) }, async ({ root }) => {
    const { call } = createToolBench({ root, config: { read_file: { max_read_bytes: 100 } } });
    assert.equal((await call("read_file", "a.txt")).result.output, "x".repeat(100));
  }));

test("binary files are refused, or given as base64 when that is allowed", () =>
  withWorkspace({ "nul": new Uint8Array([65, 0, 66]), "latin1": new Uint8Array([0xe9, 0x20]) }, async ({ root }) => {
    const { call, configure } = createToolBench({ root });
    for (const path of ["nul", "latin1"]) {
      const { result } = await call("read_file", path);
      assert.equal(result.isError, true);
      assert.match(result.output, /allow_binary = true/);
    }
    configure({ read_file: { allow_binary: true } });
    const { result } = await call("read_file", "nul");
    assert.deepEqual([result.output, (result.data as { encoding: string }).encoding], ["QQBC", "base64"]);
  }));

test("refusals reach the model as sentences that name the way out", () =>
  withWorkspace({ ".env": "KEY=1", "a/b.txt": "" }, async ({ root }) => {
    const { call, configure } = createToolBench({ root });
    const output = async (path: string) => {
      const { result } = await call("read_file", path);
      assert.equal(result.isError, true, path);
      return result.output;
    };
    assert.match(await output(".env"), /allow_sensitive_file_reads = true opens them$/);
    assert.match(await output("/tmp/x"), /the path is absolute, give it relative to the allowed root$/);
    assert.match(await output("../x"), /"\.\." is not allowed/);
    assert.match(await output("none.txt"), /^Cannot open "none\.txt": it does not exist$/);
    assert.match(await output("a"), /it is not a regular file$/);
    configure({ autonomy: { allow_sensitive_file_reads: true } });
    assert.equal((await call("read_file", ".env")).result.output, "KEY=1");
    configure({ autonomy: { forbidden_paths: ["a"] } });
    const denied = await call("read_file", "a/b.txt");
    assert.deepEqual([denied.ran, denied.result.isError], [false, true]);
    assert.match(denied.result.output, /forbidden path/);
  }));

test("the allowed root holds for read_file", () =>
  withWorkspace({ "docs/a.txt": "doc", "b.txt": "no" }, async ({ root }) => {
    const { call } = createToolBench({ root, config: { read_file: { allowed_root: "docs" } } });
    assert.equal((await call("read_file", "a.txt")).result.output, "doc");
    assert.equal((await call("read_file", "b.txt")).result.isError, true);
  }));

test("parts put together are the file, for any text and limit", async () => {
  const { signal } = new AbortController();
  const text = fc.array(fc.constantFrom("a", "é", "€", "😀", "\n", "\r\n", "\ufeff"), { maxLength: 60 }).map((parts) =>
    parts.join("")
  );
  await fc.assert(
    fc.asyncProperty(text, fc.integer({ min: 4, max: 40 }), async (whole, maxBytes) => {
      const file = inMemory(new TextEncoder().encode(whole));
      let read = "";
      for (let place: TextPlace = { line: 1, byte: 1 };;) {
        const part = await readPart(file, {
          startLine: place.line,
          startByte: place.byte,
          lineCount: undefined,
          maxBytes,
          signal,
        });
        if (part.kind === "no_line") return assert.equal(read, whole);
        assert.ok(part.kind === "part");
        const decoded = decodeText(part.bytes);
        assert.ok(decoded !== undefined && part.bytes.length <= maxBytes);
        assert.equal(part.startByte, place.byte);
        if (!part.cut) return assert.equal(read + decoded, whole);
        assert.ok(part.next !== undefined);
        read += part.next.line === place.line ? decoded : decoded.slice(0, decoded.lastIndexOf("\n") + 1);
        place = part.next;
      }
    }),
    { numRuns: 200 },
  );
});

function inMemory(bytes: Uint8Array): OpenFile {
  return {
    size: bytes.length,
    isVersion: () => true,
    read: async (buffer, position) => {
      const part = bytes.subarray(position, position + buffer.length);
      buffer.set(part);
      return part.length;
    },
    close: async () => {},
  };
}
