import assert from "node:assert/strict";
import * as nodeModule from "node:module";
import { dirname } from "node:path";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { nextTick } from "../../../lib/base/tick.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { WorkerError, Workers } from "../../../lib/system/process/workers.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { until } from "../../support/until.ts";

const MODULE = new URL("./worker_job.ts", import.meta.url);

const start = (workers: Workers, input: unknown, more: { signal?: AbortSignal; keepMs?: number } = {}) =>
  workers.run({ module: MODULE, input, maxHeapMb: 64, signal: new AbortController().signal, ...more });

test("a job's answer comes back", async () => {
  const workers = new Workers({ maxWorkers: 2, clock: systemClock });
  const input = { text: "a", bytes: new Uint8Array(new SharedArrayBuffer(3)) };
  assert.deepEqual(await start(workers, input), { got: input });
  await workers.close();
});

test("a job sees no environment", async () => {
  const workers = new Workers({ maxWorkers: 1, clock: systemClock });
  assert.deepEqual(await start(workers, "environment"), []);
});

test("a thread uses what the process has compiled before, where the runtime keeps it", async () => {
  const workers = new Workers({ maxWorkers: 1, clock: systemClock });
  nodeModule.enableCompileCache?.();
  const used = await start(workers, "compile cache") as string | undefined;
  // Below it each set of V8's options has a folder of its own, and a test before this one may have changed them
  const rootOf = (folder: string | undefined) => folder && dirname(folder);
  assert.equal(rootOf(used), rootOf(nodeModule.getCompileCacheDir?.()));
});

test("a busy job ends when its signal aborts, and gives its place to the next", async () => {
  const workers = new Workers({ maxWorkers: 1, clock: systemClock });
  const controller = new AbortController();
  const busy = start(workers, "busy", { signal: controller.signal });
  const waiting = new AbortController();
  const never = start(workers, "never", { signal: waiting.signal });
  const next = start(workers, "next");
  waiting.abort(new CancelError("client_gone"));
  await assert.rejects(never, { name: "CancelError", reason: "client_gone" });
  controller.abort(new CancelError("timeout"));
  await assert.rejects(busy, { name: "CancelError", reason: "timeout" });
  assert.deepEqual(await next, { got: "next" });
  await assert.rejects(start(workers, "late", { signal: controller.signal }), { reason: "timeout" });
});

test("a job that runs out of memory or breaks ends alone", async () => {
  const workers = new Workers({ maxWorkers: 2, clock: systemClock });
  await assert.rejects(
    start(workers, "heap"),
    (error) => error instanceof WorkerError && error.code === "out_of_memory",
  );
  await assert.rejects(start(workers, "throw"), (error) => error instanceof WorkerError && error.code === "broken");
  assert.deepEqual(await start(workers, 1), { got: 1 });
});

test("close() ends what runs and what waits, and refuses what comes", async () => {
  const workers = new Workers({ maxWorkers: 1, clock: systemClock });
  const ended = Promise.allSettled([start(workers, "busy"), start(workers, "busy")]);
  await workers.close();
  assert.deepEqual((await ended).map(({ status }) => status), ["rejected", "rejected"]);
  await assert.rejects(start(workers, 1), { name: "CancelError" });
});

test("a thread ends with its job", async () => {
  const workers = new Workers({ maxWorkers: 1, clock: systemClock });
  assert.deepEqual([await start(workers, "count"), await start(workers, "count")], [1, 1]);
});

test("a thread that is kept does the next job, until nobody had one for a while", async () => {
  const clock = createFakeClock();
  const workers = new Workers({ maxWorkers: 2, clock });
  const count = () => start(workers, "count", { keepMs: 1000 });
  assert.equal(await count(), 1);
  await clock.advance(999);
  assert.equal(await count(), 2);
  await clock.advance(999);
  assert.deepEqual((await Promise.all([count(), count()])).sort(), [1, 3], "two jobs at once have a thread each");
  assert.equal(clock.pending(), 1, "one thread is kept at most");
  await clock.advance(1000);
  assert.equal(clock.pending(), 0);
  assert.equal(await count(), 1);
  await workers.close();
  assert.equal(clock.pending(), 0, "close() ends what is kept");
});

test("a thread is not kept after a job that was cancelled or broke", async () => {
  const clock = createFakeClock();
  const workers = new Workers({ maxWorkers: 1, clock });
  const controller = new AbortController();
  assert.equal(await start(workers, "count", { keepMs: 1000 }), 1);
  const busy = start(workers, "busy", { keepMs: 1000, signal: controller.signal });
  await nextTick();
  controller.abort(new CancelError("client_gone"));
  await assert.rejects(busy, { reason: "client_gone" });
  assert.equal(await start(workers, "count", { keepMs: 1000 }), 1);
  await assert.rejects(start(workers, "throw", { keepMs: 1000 }), WorkerError);
  assert.equal(await start(workers, "count", { keepMs: 1000 }), 1);
  await workers.close();
});

test("a kept thread that ended by itself is replaced", async () => {
  const workers = new Workers({ maxWorkers: 1, clock: systemClock });
  assert.equal(await start(workers, "end later", { keepMs: 60_000 }), undefined);
  await until(async () => {
    // Until its end is heard of, a job may still come to it, and is refused
    const answer = await start(workers, "count", { keepMs: 60_000 }).catch((error: unknown) => error);
    return answer === 1;
  });
  assert.equal(await start(workers, "count", { keepMs: 60_000 }), 2);
  await workers.close();
});
