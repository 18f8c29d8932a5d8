import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger, type LogRecord } from "../../lib/base/telemetry/log.ts";
import { SharedApprovalNews } from "../../lib/guard/approval_news.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { awayError } from "../support/clustered.ts";
import { createFakeClock } from "../support/fake_clock.ts";

test("a look that fails is made again: quietly while the database is down, and with a line in the log for anything else", async () => {
  const clock = createFakeClock();
  const lines: LogRecord[] = [];
  const log = createLogger({
    ...{ now: clock.now, level: "info", redact: (text) => text },
    sink: (record) => void lines.push(record),
  });
  const failures: Error[] = [awayError(), new TypeError("a bug")];
  const store = createMemoryStore();
  const { scan } = store;
  store.scan = (...given) => {
    const failure = failures.shift();
    return failure === undefined ? scan(...given) : Promise.reject(failure);
  };
  const bus = { tell: () => {}, onNote: () => () => {} };
  const news = new SharedApprovalNews({ store, clock, log, bus });
  const listening = news.listen("apr_settled_elsewhere", new AbortController().signal);
  await clock.advance(1_000);
  assert.deepEqual(lines, []);
  await clock.advance(1_000);
  assert.deepEqual(lines.map(({ level, message }) => [level, message]), [
    ["error", "Approvals could not be looked at: the gateway tries again in a second"],
  ]);
  await clock.advance(1_000);
  await listening.heard;
  listening.stop();
  assert.equal(clock.pending(), 0, "nobody waits, and nothing is looked at");
});
