import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { createDrainableExecutor } from "../../../lib/tools/runtime/drainable_executor.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createFakeToolExecutor } from "../../support/fake_tool_executor.ts";
import { type CallChanges, type FlatCall, toToolCall } from "../../support/tool_call.ts";

const toRequest = (changes: CallChanges) => toToolCall("wait", "{}", changes);

/** An executor with one tool that runs until it is told to end, or its signal aborts. */
function createBench() {
  const clock = createFakeClock();
  const { promise, resolve } = Promise.withResolvers<string>();
  const run = (_input: unknown, { signal }: FlatCall) =>
    new Promise<string>((done, fail) => {
      promise.then(done);
      signal.addEventListener("abort", () => fail(signal.reason));
    });
  const calls = createDrainableExecutor(createFakeToolExecutor([{ name: "wait", run }]), { clock });
  return { clock, calls, end: () => resolve("ended") };
}

test("a drain waits for direct calls and leaves no timer behind", async () => {
  const { clock, calls, end } = createBench();
  const work = calls.executor.call(toRequest({ direct: true }));
  let drained = false;
  const drain = calls.drain(30_000).then(() => (drained = true));
  await clock.advance(20_000);
  assert.equal(drained, false);
  end();
  assert.equal((await work).result.output, "ended");
  await drain;
  assert.equal(clock.pending(), 0);
});

test("a direct call that outlives the grace is stopped with shutdown, and one that comes later is refused", async () => {
  const { clock, calls } = createBench();
  const work = assert.rejects(calls.executor.call(toRequest({ direct: true })), {
    name: "CancelError",
    reason: "shutdown",
  });
  const drain = calls.drain(1000);
  await assert.rejects(calls.executor.call(toRequest({ direct: true })), { code: "shutting_down", status: 503 });
  await clock.advance(1000);
  await work;
  await drain;
});

test("calls of runs are their run's: a drain neither waits for them nor stops or refuses them", async () => {
  const { clock, calls, end } = createBench();
  const before = calls.executor.call(toRequest({}));
  await calls.drain(30_000);
  const after = calls.executor.call(toRequest({}));
  await clock.advance(60_000);
  end();
  assert.deepEqual([(await before).result.output, (await after).result.output], ["ended", "ended"]);
});

test("whoever calls can still cancel", async () => {
  const { clock, calls } = createBench();
  const caller = new AbortController();
  const work = calls.executor.call(toRequest({ direct: true, signal: caller.signal }));
  await clock.advance(0);
  caller.abort(new CancelError("client_gone"));
  await assert.rejects(work, { reason: "client_gone" });
  await calls.drain(0);
});
