import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProviderEvent } from "../../../lib/base/records/provider_event.ts";
import { AnthropicDecoder } from "../../../lib/providers/anthropic/anthropic_decoder.ts";

/** The end of a stream of these events. */
function finishOf(...given: readonly object[]) {
  const decoder = new AnthropicDecoder({ name: "up", keySource: undefined, key: undefined, now: () => 0 });
  const events: ProviderEvent[] = [];
  for (const event of given) decoder.push(JSON.stringify(event), events);
  decoder.push(JSON.stringify({ type: "message_stop" }), events);
  const finish = events.at(-1);
  assert.ok(finish?.type === "finish");
  return finish;
}

const start = (usage: unknown) => ({ type: "message_start", message: { model: "m", usage } });
const change = (usage: unknown) => ({ type: "message_delta", delta: { stop_reason: "end_turn" }, usage });

test("counts that were told stay, whatever a later event leaves out of them", () => {
  const begun = start({ input_tokens: 10, cache_read_input_tokens: 4, output_tokens: 1 });
  const told = {
    prompt_tokens: 14,
    completion_tokens: 5,
    total_tokens: 19,
    prompt_tokens_details: { cached_tokens: 4, cache_write_tokens: 0 },
  };
  for (const later of [undefined, null, {}, { output_tokens: null }, "none"]) {
    const { usage } = finishOf(begun, change({ output_tokens: 5 }), change(later));
    assert.deepEqual(usage, told, JSON.stringify(later));
  }
  assert.equal(finishOf(start({}), change({ output_tokens: 5 })).usage, undefined);
});

test("a stop reason that nobody knows is tool_calls after one call or more, else stop", () => {
  const call = (index: number) => ({
    type: "content_block_start",
    index,
    content_block: { type: "tool_use", id: `call_${index}`, name: "read_file", input: {} },
  });
  const end = { type: "message_delta", delta: { stop_reason: "new_reason" } };
  const reasons = [[], [call(0)], [call(0), call(1)]].map((calls) => finishOf(start({}), ...calls, end).finish_reason);
  assert.deepEqual(reasons, ["stop", "tool_calls", "tool_calls"]);
});

test("arguments that are said twice, or followed by a stray text, are one whole object", () => {
  const decode = (...parts: readonly string[]) => {
    const decoder = new AnthropicDecoder({ name: "up", keySource: undefined, key: undefined, now: () => 0 });
    const out: ProviderEvent[] = [];
    const block = { type: "tool_use", id: "t", name: "look", input: {} };
    decoder.push(JSON.stringify({ type: "content_block_start", index: 0, content_block: block }), out);
    for (const partial_json of parts) {
      const delta = { type: "input_json_delta", partial_json };
      decoder.push(JSON.stringify({ type: "content_block_delta", index: 0, delta }), out);
    }
    decoder.push(JSON.stringify({ type: "content_block_stop", index: 0 }), out);
    const said = out.map((event) => event.type === "tool_call_delta" ? event.arguments_delta : "").join("");
    return [said, out.some((event) => event.type === "notice" && event.code === "tool_call_arguments_repeated")];
  };
  assert.deepEqual(decode(), ["{}", false]);
  assert.deepEqual(decode("{}"), ["{}", false]);
  assert.deepEqual(decode("{}", '{"a"', ":1}"), ['{"a":1}', false]);
  assert.deepEqual(decode('{"a":1}', '{"a":1}'), ['{"a":1}', true]);
  assert.deepEqual(decode("{}", '""'), ["{}", true]);
  assert.deepEqual(decode("}", '{"a":1}'), ['}{"a":1}', false], "broken as it came");
});

test("the vendor's other figures of the usage are kept beside the counts", () => {
  const finish = finishOf(
    {
      type: "message_start",
      message: {
        usage: {
          input_tokens: 5,
          output_tokens: 1,
          service_tier: "standard",
          cache_creation: { ephemeral_5m_input_tokens: 0 },
        },
      },
    },
    {
      type: "message_delta",
      delta: { stop_reason: "end_turn" },
      usage: { output_tokens: 3, server_tool_use: { web_search_requests: 1 } },
    },
  );
  assert.deepEqual(finish.usage, {
    prompt_tokens: 5,
    completion_tokens: 3,
    total_tokens: 8,
    vendor: {
      service_tier: "standard",
      cache_creation: { ephemeral_5m_input_tokens: 0 },
      server_tool_use: { web_search_requests: 1 },
    },
  });
});
