import assert from "node:assert/strict";
import { test } from "node:test";
import { takesColour, toDefinitions, toTable, wrapText } from "../../../cli/terminal/terminal_text.ts";

const HEADING = ["ID", "STATUS", "OUTCOME"];
const ROWS = [["run_1", "completed", "The folder holds three files"], ["run_2", "failed", ""]];

test("text breaks between words; a word longer than a line stays whole, so that it can be copied", () => {
  assert.deepEqual(wrapText("to be or not to be", 8), ["to be or", "not to", "be"]);
  assert.deepEqual(wrapText("see /a/very/long/path for it", 6), ["see", "/a/very/long/path", "for it"]);
  assert.deepEqual(wrapText("any length", undefined), ["any length"]);
});

test("lines of a text and their indents stay when it is wrapped", () => {
  assert.deepEqual(wrapText("Run:\n  postern chat now\n\nend", 12), ["Run:", "  postern", "  chat now", "", "end"]);
});

test("a table is as wide as its cells where the width is unknown, as in a pipe", () => {
  assert.equal(
    toTable(HEADING, ROWS),
    "ID     STATUS     OUTCOME\nrun_1  completed  The folder holds three files\nrun_2  failed",
  );
});

test("the last column of a table that is too wide is wrapped inside its column", () => {
  assert.equal(
    toTable(HEADING, ROWS, 44),
    "ID     STATUS     OUTCOME\nrun_1  completed  The folder holds three\n                  files\nrun_2  failed",
  );
});

test("columns stand under each other where characters are wide, drawn over others, or of two units", () => {
  const rows = [["文件", "三"], ["e\u0301t\u00e9", "x"], ["\u{1f600}", "y"], ["\u{20bb7}", "z"], ["ｶﾞ", "w"], [
    "a\u200bb",
    "v",
  ]];
  assert.equal(
    toTable(["NAME", "IS"], rows),
    "NAME      IS\n文件      三\ne\u0301t\u00e9       x\n\u{1f600}        y\n\u{20bb7}        z\nｶﾞ        w\na\\u200bb  v",
  );
  assert.equal(toDefinitions([["文件", "a"], ["b", "c"]], 40), "  文件  a\n  b     c");
});

test("wide text is wrapped where the terminal ends", () => {
  assert.deepEqual(wrapText("文件 文件 文件", 9), ["文件 文件", "文件"]);
  assert.deepEqual(wrapText("e\u0301e\u0301 e\u0301", 4), ["e\u0301e\u0301 e\u0301"]);
});

test("without room for its last column, a table keeps the columns that fit, and the other cells stand below with their names", () => {
  assert.equal(
    toTable(HEADING, ROWS, 32),
    "ID     STATUS\nrun_1  completed\n  OUTCOME  The folder holds\n           three files\nrun_2  failed",
  );
  assert.equal(
    toTable(HEADING, [ROWS[0] ?? []], 10),
    "ID\nrun_1\n  STATUS\n    completed\n  OUTCOME\n    The\n    folder\n    holds\n    three\n    files",
  );
});

test("names stand in one column, and what they mean is wrapped in the next", () => {
  const rows = [["Address", "http://127.0.0.1:42617/"], ["Provider", "ollama/small, since it answers there"]] as const;
  assert.equal(
    toDefinitions(rows, 42),
    "  Address   http://127.0.0.1:42617/\n  Provider  ollama/small, since it answers\n            there",
  );
  assert.equal(
    toDefinitions(rows, 24),
    "  Address\n    http://127.0.0.1:42617/\n  Provider\n    ollama/small, since\n    it answers there",
  );
});

test("colour is for terminals alone, and not where NO_COLOR or a dumb terminal says no", () => {
  const isTerminal = { stdout: false, stderr: true };
  assert.ok(takesColour({ isTerminal, env: { TERM: "xterm", NO_COLOR: "" } }, "stderr"));
  assert.ok(!takesColour({ isTerminal, env: { TERM: "xterm" } }, "stdout"));
  assert.ok(!takesColour({ isTerminal, env: { TERM: "dumb" } }, "stderr"));
  assert.ok(!takesColour({ isTerminal, env: { TERM: "xterm", NO_COLOR: "1" } }, "stderr"));
});
