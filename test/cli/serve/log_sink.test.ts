import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogSink, createProcessLog, toLogLine } from "../../../cli/serve/log_sink.ts";
import { LOG_LEVELS, type LogLevel } from "../../../lib/base/telemetry/log.ts";

const TIME = Date.UTC(2026, 0, 2, 3, 4, 5, 6);

function written(format: "pretty" | "json", message: string, fields: Record<string, unknown> = {}): string {
  let text = "";
  createLogSink({ format, write: (line) => (text += line) })({ level: "debug", time: TIME, message, fields });
  return text;
}

test("a JSON line is one object with time, level, message and the fields", () => {
  const line = written("json", "Request %s\n", { status: 200, error: { name: "Error" } });
  assert.deepEqual(JSON.parse(line), {
    time: "2026-01-02T03:04:05.006Z",
    level: "debug",
    message: "Request %s\n",
    status: 200,
    error: { name: "Error" },
  });
  assert.equal(line.indexOf("\n"), line.length - 1);
});

test("a line for people has the same on one line, and nothing a terminal would obey", () => {
  assert.equal(
    written("pretty", "Request", { route: "/x", line: undefined, status: 200 }),
    "03:04:05.006 debug Request route=/x status=200\n",
  );
  assert.equal(written("pretty", "a\u001b[31m\nb", { p: "\u0007" }), "03:04:05.006 debug a\\x1b[31m\\nb p=\\x07\n");
});

test("on a terminal that takes colour, the levels of warnings and errors stand out, and nothing else", () => {
  const line = (level: LogLevel, format: "pretty" | "json" = "pretty") =>
    toLogLine({ level, time: TIME, message: "m", fields: {} }, { format, colour: true });
  assert.equal(line("warn"), "03:04:05.006 \u001b[33mwarn \u001b[0m m");
  assert.equal(line("error"), "03:04:05.006 \u001b[1;31merror\u001b[0m m");
  assert.equal(line("info"), "03:04:05.006 info  m");
  assert.ok(!line("error", "json").includes("\u001b"));
});

test("the log of a process writes each record of its level to every place, repeated ones and objects too", () => {
  const places: readonly string[][] = [[], []];
  const sinks = places.map((lines) => createLogSink({ format: "pretty", write: (line) => void lines.push(line) }));
  const all = createProcessLog(sinks);
  const ofTrouble = createProcessLog(sinks, "warn");
  for (const level of LOG_LEVELS) {
    const record = { level, time: TIME, message: level, fields: { message: "m", args: ["a"] } };
    for (let time = 0; time < 9; time++) all(record);
    ofTrouble({ ...record, message: "trouble" });
  }
  const lineOf = (level: LogLevel, message: string) =>
    `${toLogLine({ level, time: TIME, message, fields: { message: "m", args: ["a"] } }, { format: "pretty" })}\n`;
  const expected = LOG_LEVELS.flatMap((level) => [
    ...Array.from({ length: 9 }, () => lineOf(level, level)),
    ...level === "error" || level === "warn" ? [lineOf(level, "trouble")] : [],
  ]);
  for (const lines of places) assert.deepEqual(lines, expected);
});

test("what a stranger says makes no further field of a line for people, and does not turn it around", () => {
  const line = written("pretty", "An MCP server says", {
    server: "files",
    line: 'ok token_id=tok_1 "x"',
    url: "/a?b=c",
  });
  assert.equal(
    line,
    '03:04:05.006 debug An MCP server says server=files line="ok token_id=tok_1 \\"x\\"" url=/a?b=c\n',
  );
  assert.equal(written("pretty", "m", { reason: "it is off" }), "03:04:05.006 debug m reason=it is off\n");
  assert.equal(written("pretty", "m", { v: "a\u202eb\u2028c" }), "03:04:05.006 debug m v=a\\u202eb\\u2028c\n");
});
