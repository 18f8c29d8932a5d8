import assert from "node:assert/strict";
import { test } from "node:test";
import { createScriptedProvider } from "../../fixtures/scripted_provider.ts";
import { CancelError } from "../../lib/base/cancel.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { callsOf, collect, REQUEST, textOf } from "./support/provider_setup.ts";

test("turns play in order, and a request past the end is an error", async () => {
  const provider = createScriptedProvider(["Hello", { toolCalls: [{ name: "look", arguments: ["{", "}"] }] }]);
  assert.equal(textOf(await collect(provider)), "Hello");
  const events = await collect(provider);
  assert.deepEqual(callsOf(events), [{ id: "call_1_0", name: "look", arguments: "{}" }]);
  const last = events.at(-1);
  assert.equal(last?.type === "finish" ? last.finish_reason : undefined, "tool_calls");
  await assert.rejects(collect(provider), /script has ended/);
});

test("errors come before the first event or in place of the end", async () => {
  const before = new Error("before");
  const after = new Error("after");
  const provider = createScriptedProvider([{ errorBefore: before }, { text: "x", errorAfter: after }]);
  await assert.rejects(collect(provider), before);
  await assert.rejects(collect(provider), after);
});

test("delays are by the clock", async () => {
  const clock = createFakeClock();
  const provider = createScriptedProvider([{ delayMs: 1000, text: ["a", "b"], chunkDelayMs: 500 }], { clock });
  let done = false;
  const work = collect(provider).finally(() => done = true);
  await clock.advance(1499);
  assert.equal(done, false);
  await clock.advance(1);
  assert.equal(textOf(await work), "ab");
});

test("a turn hangs until it is aborted, and the request is kept as it was", async () => {
  const provider = createScriptedProvider([{ hang: "before" }]);
  const controller = new AbortController();
  const messages = [...REQUEST.messages];
  const work = collect(provider, { messages }, controller.signal);
  messages.push({ role: "user", content: "later" });
  controller.abort(new CancelError("shutdown"));
  await assert.rejects(work, (error) => error instanceof CancelError && error.reason === "shutdown");
  assert.equal(provider.requests[0]?.messages.length, 1);
  assert.deepEqual([provider.active, provider.aborted], [0, 1]);
});
