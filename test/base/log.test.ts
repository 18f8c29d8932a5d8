import assert from "node:assert/strict";
import { test } from "node:test";
import { HttpError } from "../../lib/base/errors.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import { createLogger, type LogRecord } from "../../lib/base/telemetry/log.ts";

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
    error: new HttpError("storage_unavailable", "Cannot use the database", { status: 503, type: "api_error", cause }),
  });
  log.error("Fault", { error: new HttpError("internal_error", "Oh", { status: 500, type: "api_error", cause }) });
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
