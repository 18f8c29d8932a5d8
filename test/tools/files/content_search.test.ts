import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace } from "../../support/workspace.ts";

const FILES = {
  "a.ts": "const gate = 1;\r\nopen(gate);\n",
  "src/b.ts": "The Gate\nno\ngate",
  "src/c.md": "gate",
  "bin": new Uint8Array([103, 97, 116, 101, 0]),
  "dist/d.js": "gate",
  ".gitignore": "dist\n",
  ".env": "gate",
};

test("finds lines as path:line: text, without ignored, binary and sensitive files", () =>
  withWorkspace(FILES, async ({ root }) => {
    const { call } = createToolBench({ root });
    const output = async (input: unknown) => (await call("content_search", input)).result.output;
    assert.equal(
      await output("gate"),
      "a.ts:1: const gate = 1;\na.ts:2: open(gate);\nsrc/b.ts:3: gate\nsrc/c.md:1: gate",
    );
    assert.equal(await output({ pattern: "^gate$", glob: "*.ts" }), "src/b.ts:3: gate");
    assert.equal(await output({ pattern: "THE gate", case_insensitive: true }), "src/b.ts:1: The Gate");
    assert.equal(await output({ pattern: "gate", path: "src", glob: "**/*.md" }), "src/c.md:1: gate");
    assert.equal(await output({ pattern: "gate", path: "src", glob: "" }), "src/b.ts:3: gate\nsrc/c.md:1: gate");
    assert.equal(await output({ pattern: "g.te", path: "src/c.md" }), "src/c.md:1: gate");
    assert.equal(await output("nowhere"), "No line matches in 4 files");
    assert.equal(await output({ pattern: "gate", path: "none" }), 'Cannot open "none": it does not exist');
  }));

test("UTF-16 with its mark is searched and read by the same places, and what only looks like it is not", () => {
  const text = `\ufeffThe Gate\r\n${"ö".repeat(400)} gate 🚪\nend`;
  const little = Buffer.from(text, "utf16le");
  const files = {
    "le.txt": little,
    "be.txt": Buffer.from(little).swap16(),
    "bin.txt": Buffer.from([0xff, 0xfe, 0, 0, 103, 0]),
  };
  return withWorkspace(files, async ({ root }) => {
    const { call } = createToolBench({ root });
    assert.equal((await call("content_search", "^The")).result.output, "be.txt:1: The Gate\nle.txt:1: The Gate");
    const found = (await call("content_search", "gate")).result;
    const places = (found.data as { matches: { path: string; line: number; start_byte: number }[] }).matches;
    assert.deepEqual(places.map(({ path, line }) => [path, line]), [["be.txt", 2], ["le.txt", 2]]);
    for (const { path, line, start_byte } of places) {
      const { output, data } = (await call("read_file", { path, start_line: line, start_byte })).result;
      assert.equal(output, "gate 🚪\nend");
      const { encoding, size } = data as { encoding: string; size: number };
      assert.deepEqual([encoding, size], [`utf-16${path.slice(0, 2)}`, little.length]);
    }
    assert.equal((await call("read_file", "le.txt")).result.output, text);
    assert.match(
      (await call("read_file", "bin.txt")).result.output,
      /it is no text in UTF-8, or in UTF-16 with a byte/,
    );
  });
});

test("a pattern with a line break says that it meets one line at a time", () =>
  withWorkspace({ "a.txt": "one\ntwo\n" }, async ({ root }) => {
    const { call } = createToolBench({ root });
    for (const pattern of ["one\\ntwo", "one\ntwo", "one\\\\\\ntwo"]) {
      assert.match(
        (await call("content_search", { pattern })).result.output,
        /in 1 files\. A pattern meets one line at a time/,
        pattern,
      );
    }
    assert.equal(
      (await call("content_search", { pattern: "one\\\\ntwo" })).result.output,
      "No line matches in 1 files",
    );
    assert.equal((await call("content_search", { pattern: "^[^\\n]+e$" })).result.output, "a.txt:1: one");
  }));

test("gives matches as data, and stops at its limit", () =>
  withWorkspace(FILES, async ({ root }) => {
    const { call } = createToolBench({ root });
    const { output, data } = (await call("content_search", { pattern: "gate", limit: 2 })).result;
    assert.match(
      output,
      /^a\.ts:1: .*\na\.ts:2: .*\n\[The first 2 matches: narrow the pattern, path or glob, or raise limit\]$/,
    );
    assert.deepEqual(data, {
      matches: [{ path: "a.ts", line: 1, text: "const gate = 1;" }, { path: "a.ts", line: 2, text: "open(gate);" }],
      files: 3,
      truncated: true,
    });
    assert.deepEqual((await call("content_search", { pattern: "gate", limit: 4 })).result.data, {
      matches: [
        { path: "a.ts", line: 1, text: "const gate = 1;" },
        { path: "a.ts", line: 2, text: "open(gate);" },
        { path: "src/b.ts", line: 3, text: "gate" },
        { path: "src/c.md", line: 1, text: "gate" },
      ],
      files: 4,
      truncated: false,
    });
  }));

test("lines with the same text in other code points are found where none has those of the pattern", () =>
  withWorkspace(
    { "a.md": "x\nCafe\u0301 noir\n", "b.md": `${"-".repeat(400)}e\u0301te\u0301${"-".repeat(400)}` },
    async ({ root, write }) => {
      const { call } = createToolBench({ root });
      const search = async (pattern: string) => (await call("content_search", { pattern })).result;
      const told = "[No line has the code points of the pattern: these have the same text in others]";
      assert.equal((await search("caf\u00e9|Caf\u00e9 n")).output, `a.md:2: Cafe\u0301 noir\n${told}`);
      assert.deepEqual((await search("\u00e9t\u00e9")).data, {
        matches: [{
          path: "b.md",
          line: 1,
          text: `...${"-".repeat(100)}e\u0301te\u0301${"-".repeat(195)}...`,
          start_byte: 401,
        }],
        files: 2,
        truncated: false,
      });
      assert.equal((await search("caf\u00e8")).output, "No line matches in 2 files");
      write("c.md", "Caf\u00e9 noir\n");
      assert.equal((await search("Caf\u00e9")).output, "c.md:1: Caf\u00e9 noir");
    },
  ));

test("shows a long line around its match, with the byte that read_file goes on at", () =>
  withWorkspace({ "a.txt": `no\n${"é".repeat(50_000)}needle${"y".repeat(1000)}` }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const { output, data } = (await call("content_search", "needle")).result;
    assert.match(
      output,
      /^a\.txt:2: \.\.\.é{100}needley{194}\.\.\. \[start_byte 100001\]\n\[Long lines are shortened .* goes on at the match\]$/,
    );
    const { matches, truncated } = data as { matches: { start_byte: number }[]; truncated: boolean };
    assert.deepEqual([matches[0]?.start_byte, truncated], [100_001, false]);
    const read = await call("read_file", { path: "a.txt", start_line: 2, start_byte: matches[0]?.start_byte });
    assert.equal(read.result.output, `needle${"y".repeat(1000)}`);
  }));

test("says which lines were too long for the pattern", () =>
  withWorkspace({ "a.txt": `${"x".repeat(90_000)}gate\n`.repeat(6) }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const { output, data } = (await call("content_search", "[g]ate|[k-m]{800}")).result;
    assert.match(
      output,
      /^No line matches in 1 files\n\[Of 6 long lines only the first \d+ characters were searched, .*: a\.txt:1, .*a\.txt:5 and others\]$/,
    );
    assert.equal((data as { truncated: boolean }).truncated, true);
  }));

test("refuses patterns that do not parse or grow too large, and paths that lead outside", () =>
  withWorkspace(FILES, async ({ root }) => {
    const { call } = createToolBench({ root });
    for (const pattern of ["[", "(", "a**", "\\1", "(?=x)", "(a{100}){100}", "(x{1000}|y{1000}){2}"]) {
      const { result } = await call("content_search", { pattern });
      assert.equal(result.isError, true, pattern);
      assert.match(result.output, /"pattern"/, pattern);
    }
    for (
      const input of [{ pattern: "x", path: ".." }, { pattern: "x", glob: "../*" }, {
        pattern: "x",
        path: "/etc/passwd",
      }]
    ) {
      assert.equal((await call("content_search", input)).result.isError, true, JSON.stringify(input));
    }
  }));

test("no pattern makes it hang, and the event loop goes on turning", () =>
  withWorkspace({ "a.txt": `${"ab".repeat(20_000)}\n${"a".repeat(40_000)}\n`.repeat(20) }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const started = systemClock.monotonic();
    for (const pattern of ["(a+)+$x", "(a|aa)+!", "(.*)*(.*)*c", "(a?){200}a{200}c", "(a|b)*a(a|b){300}c"]) {
      await call("content_search", { pattern });
    }
    assert.ok(systemClock.monotonic() - started < 60_000);
  }));

test("hears a cancellation in the middle of a file", () =>
  withWorkspace({ "a.txt": "line of text\n".repeat(300_000) }, async ({ root }) => {
    const { call } = createToolBench({ root });
    // The search may be done by then: that tells nothing, and the next one is cancelled
    await until(async () => {
      const controller = new AbortController();
      const calling = call("content_search", "(x|y)+z", { signal: controller.signal });
      systemClock.after(20, () => controller.abort(new CancelError("client_gone")));
      const reason = await calling.then(() => "done", (error: unknown) => (error as CancelError).reason);
      if (reason !== "done") assert.equal(reason, "client_gone");
      return reason !== "done";
    });
  }));
