import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError, cancelError } from "../../../lib/base/cancel.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import { runBounded } from "../../../lib/tools/runtime/run_call.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

/** Work that fails with `error` once its signal aborts. */
const failsWhenStopped = (error: (signal: AbortSignal) => unknown) => (signal: AbortSignal) =>
  new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(error(signal)), { once: true }));

function bounded<T>(work: (signal: AbortSignal) => Promise<T>, timeoutMs = 1000) {
  const clock = createFakeClock();
  const controller = new AbortController();
  return { clock, controller, ending: runBounded(work, { clock, timeoutMs, signal: controller.signal }) };
}

test("what a tool says to the model after it was told to stop is told, and nothing else it throws is", async () => {
  const said = bounded(failsWhenStopped(() => new ToolError("partly_written", "Two of three files were written")));
  said.controller.abort(new CancelError("client_gone"));
  const ending = await said.ending;
  assert.equal(ending.kind, "failed");
  assert.ok(ending.kind === "failed" && ending.error instanceof ToolError && ending.error.code === "partly_written");
  for (const error of [(signal: AbortSignal) => cancelError(signal), () => new Error("torn")]) {
    const stopped = bounded(failsWhenStopped(error));
    stopped.controller.abort(new CancelError("client_gone"));
    const { kind, error: reason } = await stopped.ending as { kind: string; error: CancelError };
    assert.deepEqual([kind, reason.reason], ["stopped", "client_gone"]);
    assert.equal(stopped.clock.pending(), 0);
  }
});

test("work is told to stop at its time limit, not before", async () => {
  const { clock, ending } = bounded(failsWhenStopped((signal) => cancelError(signal)));
  await clock.advance(999);
  assert.equal(clock.pending(), 1);
  await clock.advance(1);
  const { kind, error } = await ending as { kind: string; error: CancelError };
  assert.deepEqual([kind, error.reason, clock.pending()], ["stopped", "timeout", 0]);
});

test("the time limit stands still while a person is waited for, also for two at once", async () => {
  const person = Promise.withResolvers<void>();
  const second = Promise.withResolvers<void>();
  const clock = createFakeClock();
  const ending = runBounded(
    async (signal, limit) => {
      const waits = [limit.pause(() => person.promise), limit.pause(() => second.promise)];
      await Promise.all(waits);
      return await failsWhenStopped(cancelError)(signal);
    },
    { clock, timeoutMs: 1000, signal: new AbortController().signal },
  );
  await clock.advance(50_000);
  person.resolve();
  await clock.advance(50_000);
  second.resolve();
  await clock.advance(999);
  assert.equal(clock.pending(), 1);
  await clock.advance(1);
  const { kind, error } = await ending as { kind: string; error: CancelError };
  assert.deepEqual([kind, error.reason, clock.pending()], ["stopped", "timeout", 0]);
});

test("work that does not hear its signal is left behind 2 s after it was told to stop", async () => {
  const { clock, controller, ending } = bounded(() => new Promise<never>(() => {}));
  let isOver = false;
  ending.then(() => isOver = true);
  controller.abort(new CancelError("shutdown"));
  await clock.advance(1999);
  assert.equal(isOver, false);
  await clock.advance(1);
  const { kind, error } = await ending as { kind: string; error: CancelError };
  assert.deepEqual([kind, error.reason, clock.pending()], ["stopped", "shutdown", 0]);
});

test("no work begins for a caller that has gone", async () => {
  const signal = AbortSignal.abort(new CancelError("client_gone"));
  let began = 0;
  const work = () => Promise.resolve(++began);
  const { kind } = await runBounded(work, { clock: createFakeClock(), timeoutMs: 1000, signal });
  assert.deepEqual([kind, began], ["stopped", 0]);
});
