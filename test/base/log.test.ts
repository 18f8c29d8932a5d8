import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { refuse } from "../../lib/base/errors.ts";
import { createOpenedList } from "../../lib/base/opened_list.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import { createTelemetry } from "../../lib/base/telemetry/create_telemetry.ts";
import { createLogger, createRecentLog, type LogRecord, RECENT_LINES } from "../../lib/base/telemetry/log.ts";

const SECRET = "canary-0123456789";

function collect(level: "error" | "warn" | "info" | "debug") {
  const records: LogRecord[] = [];
  const { redact } = createRedactor([SECRET]);
  const log = createLogger({ level, now: () => 42, sink: (record) => void records.push(record), redact });
  return { log, records };
}

test("a child logger adds its fields, and the level filters", () => {
  const { log, records } = collect("info");
  const child = log.child({ request_id: "req_1" });
  child.info("Hello", { run_id: "run_1" });
  child.debug("Unseen");
  assert.deepEqual(records, [{
    level: "info",
    time: 42,
    message: "Hello",
    fields: { request_id: "req_1", run_id: "run_1" },
  }]);
});

test("a line of a gateway names the program as its reader types it, in the log and in what is kept of it", async () => {
  const records: LogRecord[] = [];
  const opened = createOpenedList();
  const telemetry = createTelemetry({
    clock: systemClock,
    version: "1",
    level: () => "info",
    sink: (record) => void records.push(record),
    secrets: [],
    opened,
    programName: "npx postern",
  });
  telemetry.log.error("The audit was changed: run postern audit verify", { file: "postern.toml" });
  await opened.close();
  assert.deepEqual(records.map(({ message }) => message), ["The audit was changed: run npx postern audit verify"]);
  const { lines: [kept] } = telemetry.recentLog.list({ sinceSeq: 0, beforeSeq: Infinity, level: "info", limit: 1 });
  assert.equal(kept?.message, records[0]?.message);
});

test("a known secret reaches no line: not in messages, nested fields, errors or their causes", () => {
  const { log, records } = collect("debug");
  log.error(`Key ${SECRET}`, {
    deep: { list: [SECRET] },
    error: new Error(`Bad ${SECRET}`, { cause: new Error(`From ${SECRET}`) }),
  });
  assert.equal(records.length, 1);
  assert.ok(!JSON.stringify(records).includes(SECRET));
  assert.match(JSON.stringify(records), /"name":"Error"/);
});

test("an error that only says that something is away is one line, without the place in the code; any other is whole", () => {
  const { log, records } = collect("info");
  const cause = new Error("connect ECONNREFUSED");
  log.error("Away", {
    error: refuse("storage_unavailable", "Cannot use the database", { cause }),
  });
  log.error("Fault", { error: refuse("internal_error", "Oh", { cause }) });
  const [away, fault] = records.map(({ fields }) => fields["error"] as Readonly<Record<string, unknown>>);
  assert.deepEqual(away, { code: "storage_unavailable", message: "Cannot use the database" });
  assert.match(JSON.stringify(fault), /"stack":.*"cause":.*ECONNREFUSED.*"stack":/);
});

test("a field that refers to itself does not hang the log", () => {
  const { log, records } = collect("info");
  const loop: Record<string, unknown> = {};
  loop["self"] = loop;
  log.info("Loop", { loop });
  assert.equal(records.length, 1);
});

test("the recent log keeps the newest 1,000 lines, each with its own fields", () => {
  const recent = createRecentLog();
  const line = (n: number) => ({ level: "info", time: n, message: `line ${n}`, fields: { n } }) as const;
  for (let n = 1; n <= RECENT_LINES; n++) recent.add(line(n));
  recent.add({ level: "warn", time: 0, message: "other fields", fields: { reason: "none" } });
  for (let n = 2; n <= 10; n++) recent.add(line(RECENT_LINES + n));
  const { lines, hasMore } = recent.list({ sinceSeq: 0, beforeSeq: Infinity, level: "debug", limit: RECENT_LINES });
  assert.equal(lines.length, RECENT_LINES);
  assert.equal(hasMore, false);
  assert.deepEqual(lines[0], { seq: 1010, ...line(1010) });
  assert.deepEqual(lines[9], {
    seq: 1001,
    level: "warn",
    time: 0,
    message: "other fields",
    fields: { reason: "none" },
  });
  assert.deepEqual(lines.at(-1), { seq: 11, ...line(11) });
});

test("lines that were listed stay as they are while newer lines are written over them", () => {
  const recent = createRecentLog();
  const given = { n: 0 };
  const add = (fields: Readonly<Record<string, unknown>>) =>
    recent.add({ level: "info", time: 0, message: "line", fields });
  add(given);
  const { lines } = recent.list({ sinceSeq: 0, beforeSeq: Infinity, level: "debug", limit: 1 });
  for (let n = 1; n <= RECENT_LINES; n++) add({ n });
  assert.deepEqual(lines, [{ seq: 1, level: "info", time: 0, message: "line", fields: { n: 0 } }]);
  assert.deepEqual(given, { n: 0 });
});
