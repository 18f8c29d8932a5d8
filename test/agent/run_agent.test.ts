import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ProviderError } from "../../lib/base/errors.ts";
import { ask, only, readAll, supervised, textIn, typesOf } from "../support/supervised.ts";

describe("a turn of text", () => {
  test("streams every read as one array and ends with done and the usage", async () => {
    const { runs } = supervised([{ text: ["Hel", "lo"] }]);
    const handle = await runs.start(ask("Hi"));
    const batches: string[][] = [];
    const events = [];
    for await (const batch of handle.events()) {
      batches.push(typesOf(batch));
      events.push(...batch);
    }
    assert.deepEqual(batches, [["run_start", "turn_start", "text_delta"], ["text_delta"], ["turn_end", "done"]]);
    assert.deepEqual(events.map((event) => event.seq), [1, 2, 3, 4, 5, 6]);
    assert.equal(textIn(events), "Hello");
    const done = only(events, "done");
    assert.equal(done.finish_reason, "stop");
    assert.deepEqual(done.usage, { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 });
  });

  test("throws a provider's refusal before the first delta", async () => {
    const refusal = new ProviderError("model_not_found", "No such model", { provider: "scripted", status: 404 });
    const { runs } = supervised([{ errorBefore: refusal }]);
    const handle = await runs.start(ask("Hi"));
    await assert.rejects(readAll(handle), (error) => error === refusal);
  });

  test("ends with an error event when the provider fails after the first delta", async () => {
    const broken = new ProviderError("provider_error", "The reply broke off", { provider: "scripted" });
    const { runs } = supervised([{ text: "Half", errorAfter: broken }]);
    const events = await readAll(await runs.start(ask("Hi")));
    assert.deepEqual(typesOf(events), ["run_start", "turn_start", "text_delta", "error"]);
    assert.equal(only(events, "error").code, "provider_error");
  });
});

describe("tool calls of the agent", () => {
  test("run between two turns and their results go back to the model", async () => {
    const { runs, provider } = supervised(
      [{ text: "Let me look.", toolCalls: [{ name: "read_file", arguments: { path: "a.txt" } }] }, "It says hello."],
      { tools: [{ name: "read_file", run: () => "hello" }] },
    );
    const events = await readAll(await runs.start(ask("What is in a.txt?")));
    assert.deepEqual(typesOf(events), [
      "run_start",
      "turn_start",
      "text_delta",
      "turn_end",
      "tool_start",
      "tool_end",
      "turn_start",
      "text_delta",
      "turn_end",
      "done",
    ]);
    assert.deepEqual(events.map((event) => event.seq), events.map((_, i) => i + 1));
    assert.equal(textIn(events), "Let me look.\n\nIt says hello.");
    assert.deepEqual(only(events, "tool_start").input, { path: "a.txt" });
    assert.equal(only(events, "tool_end").output, "hello");
    const [, assistant, result] = provider.requests[1]?.messages.slice(1) ?? [];
    assert.equal(assistant?.role === "assistant" && assistant.content, "Let me look.");
    assert.equal(result?.role === "tool" && result.content, "hello");
    assert.deepEqual(only(events, "done").usage, { prompt_tokens: 20, completion_tokens: 10, total_tokens: 30 });
  });
});
