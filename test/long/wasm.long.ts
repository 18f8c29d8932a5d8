/** Calls of WASM plugins by the thousand: what they leave behind in threads, descriptors and memory, and every hostile module there is. */
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import { withModule } from "../support/wasm_bench.ts";
import { HOSTILE_MODULES } from "../support/wasm_modules.ts";
import { answeringWat, programWat } from "../support/wat.ts";

const CALLS = 10_000;
const TIMEOUTS = 1_000;
/** Bytes that a process may grow by, whatever the number of calls. */
const MAX_GROWTH = 64 * 1_048_576;
const skip = existsSync("/proc/self/task") ? false : "there is no /proc";

const threads = () => readdirSync("/proc/self/task").length;
const descriptors = () => readdirSync("/proc/self/fd").length;

/** Runs work once to warm up and then often, and compares what is there before and after. */
async function requireNoGrowth(count: number, work: () => Promise<void>): Promise<void> {
  for (let at = 0; at < count / 4; at++) await work();
  const before = { threads: threads(), descriptors: descriptors(), memory: process.memoryUsage().rss };
  for (let at = 0; at < count; at++) await work();
  const grown = process.memoryUsage().rss - before.memory;
  console.log(`${count} calls: ${Math.round(grown / 1_048_576)} MiB more`);
  assert.ok(grown < MAX_GROWTH, `memory grew by ${grown} bytes`);
  assert.ok(threads() <= before.threads + 2, `${threads()} threads, ${before.threads} before`);
  assert.ok(descriptors() <= before.descriptors + 2, `${descriptors()} descriptors, ${before.descriptors} before`);
}

test(
  "10,000 calls leave nothing behind",
  { skip },
  () =>
    withModule(
      answeringWat("ready"),
      ({ call }) => requireNoGrowth(CALLS, async () => assert.equal((await call()).output, "ready")),
    ),
);

test("1,000 calls with 30 MB each leave nothing behind", { skip }, () =>
  withModule(
    programWat(
      "(drop (memory.grow (i32.const 500))) (memory.fill (i32.const 0) (i32.const 7) (i32.const 32000000)) (i32.const 9)",
    ),
    ({ call }) => requireNoGrowth(1_000, () => assert.rejects(call(), { message: /returned 9/ })),
    { wasm: { fuel_limit: 10_000_000 } },
  ));

test("1,000 calls that are stopped leave nothing behind", { skip }, () => {
  // The time limit of a call is its least, one second
  const clock: Clock = { ...systemClock, after: (ms, fn) => systemClock.after(ms === 1000 ? 1 : ms, fn) };
  return withModule(
    programWat("(loop $again (br $again)) (i32.const 0)"),
    ({ call }) => requireNoGrowth(TIMEOUTS, () => assert.rejects(call(), { code: "plugin_timeout" })),
    { clock, wasm: { fuel_limit: 0, timeout_secs: 1 } },
  );
});

test(
  "100 modules that are opened and closed leave nothing behind",
  { skip },
  () =>
    requireNoGrowth(
      100,
      () => withModule(answeringWat("ready"), async ({ call }) => assert.equal((await call()).output, "ready")),
    ),
);

for (const { name, fate, make } of HOSTILE_MODULES) {
  test(`a hostile module: ${name}`, async () => {
    const loaded = { is: false };
    const work = withModule(make(), async ({ call }) => {
      loaded.is = true;
      await call();
    });
    await assert.rejects(work, { name: "ToolError" });
    if (fate === "refused") assert.equal(loaded.is, false);
  });
}
