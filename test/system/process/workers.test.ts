import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { createWorkers, WorkerError, type Workers } from "../../../lib/system/process/workers.ts";

const MODULE = new URL("./worker_job.ts", import.meta.url);

const start = (workers: Workers, input: unknown, more: { signal?: AbortSignal } = {}) =>
  workers.run({ module: MODULE, input, maxHeapMb: 64, signal: new AbortController().signal, ...more });

test("a job's answer comes back", async () => {
  const workers = createWorkers({ maxWorkers: 2 });
  const input = { text: "a", bytes: new Uint8Array(new SharedArrayBuffer(3)) };
  assert.deepEqual(await start(workers, input), { got: input });
  await workers.close();
});

test("a job sees no environment", async () => {
  const workers = createWorkers({ maxWorkers: 1 });
  assert.deepEqual(await start(workers, "environment"), []);
});

test("a busy job ends when its signal aborts, and gives its place to the next", async () => {
  const workers = createWorkers({ maxWorkers: 1 });
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
  const workers = createWorkers({ maxWorkers: 2 });
  await assert.rejects(
    start(workers, "heap"),
    (error) => error instanceof WorkerError && error.code === "out_of_memory",
  );
  await assert.rejects(start(workers, "throw"), (error) => error instanceof WorkerError && error.code === "broken");
  assert.deepEqual(await start(workers, 1), { got: 1 });
});

test("close() ends what runs and what waits, and refuses what comes", async () => {
  const workers = createWorkers({ maxWorkers: 1 });
  const ended = Promise.allSettled([start(workers, "busy"), start(workers, "busy")]);
  await workers.close();
  assert.deepEqual((await ended).map(({ status }) => status), ["rejected", "rejected"]);
  await assert.rejects(start(workers, 1), { name: "CancelError" });
});
