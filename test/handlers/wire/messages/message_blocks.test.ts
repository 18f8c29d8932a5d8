import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type BlockEvent,
  MessageBlocks,
  toMessageContent,
  toMessageUsage,
} from "../../../../handlers/wire/messages/message_blocks.ts";
import { openSeal } from "../../../../handlers/wire/sealed_fields.ts";
import type { AgentEvent, AgentEventBody } from "../../../../lib/base/records/agent_event.ts";

/** Block events of a run's events, in the short form "start 0 text", "delta 0 text_delta", "stop 0". */
function told(...bodies: readonly AgentEventBody[]) {
  const blocks = new MessageBlocks();
  const events: BlockEvent[] = [];
  bodies.forEach((body, i) => blocks.add({ seq: i + 1, time: "", ...body } as AgentEvent, events));
  blocks.end(events);
  const short = events.map((event) => {
    if (event.type === "content_block_stop") return `stop ${event.index}`;
    return event.type === "content_block_start"
      ? `start ${event.index} ${event.content_block["type"]}`
      : `delta ${event.index} ${event.delta["type"]}`;
  });
  return { short, content: toMessageContent(events) };
}

const text = (delta: string): AgentEventBody => ({ type: "text_delta", delta });
const call = (index: number, arguments_delta: string, name?: string): AgentEventBody => ({
  type: "client_tool_call_delta",
  index,
  call_id: `t${index}`,
  arguments_delta,
  ...(name === undefined ? {} : { name }),
});

test("text and thinking are blocks, one open at a time", () => {
  const { short, content } = told({ type: "reasoning_delta", delta: "Hm" }, text("a"), text("b"));
  assert.deepEqual(short, [
    "start 0 thinking",
    "delta 0 thinking_delta",
    "stop 0",
    "start 1 text",
    "delta 1 text_delta",
    "delta 1 text_delta",
    "stop 1",
  ]);
  assert.deepEqual(content, [{ type: "thinking", thinking: "Hm", signature: "" }, { type: "text", text: "ab" }]);
});

test("the vendor's own parts of thinking are sealed in the last block of their turn", () => {
  const details = (detail: object): AgentEventBody => ({
    type: "reply_fields",
    message: { reasoning_details: [detail] },
    provider: "up",
  });
  const [one, hidden, two] = [{ text: "Hm", index: 0 }, { data: "enc", index: 1 }, { text: "So", index: 0 }];
  const end: AgentEventBody = {
    type: "turn_end",
    turn: 1,
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  };
  const { short, content } = told(
    ...[{ type: "reasoning_delta", delta: "Hm" } as const, details(one), details(hidden), end],
    ...[{ type: "reasoning_delta", delta: "So" } as const, details(two), call(0, "{}", "look")],
  );
  assert.deepEqual(short, [
    ...["start 0 thinking", "delta 0 thinking_delta", "delta 0 signature_delta", "stop 0"],
    ...["start 1 redacted_thinking", "stop 1"],
    ...["start 2 thinking", "delta 2 thinking_delta", "delta 2 signature_delta", "stop 2"],
    ...["start 3 tool_use", "delta 3 input_json_delta", "stop 3"],
  ]);
  const sealed = content.slice(0, -1).map(({ signature, data }) => openSeal(String(signature ?? data)));
  assert.deepEqual(sealed, [[one], [one, hidden], [two]].map((list) => ({ reasoning_details: list, provider: "up" })));
});

test("calls follow each other", () => {
  const { short, content } = told(text("a"), call(0, "", "one"), call(0, '{"x":1}'), call(1, "", "two"), call(1, "{}"));
  assert.deepEqual(short, [
    "start 0 text",
    "delta 0 text_delta",
    "stop 0",
    "start 1 tool_use",
    "delta 1 input_json_delta",
    "stop 1",
    "start 2 tool_use",
    "delta 2 input_json_delta",
    "stop 2",
  ]);
  assert.deepEqual(content.slice(1), [
    { type: "tool_use", id: "t0", name: "one", input: { x: 1 } },
    { type: "tool_use", id: "t1", name: "two", input: {} },
  ]);
});

test("a call waits until the one before it has its arguments", () => {
  const { short, content } = told(call(0, '{"x"', "one"), call(1, '{"y"', "two"), call(0, ":1}"), call(1, ":2}"));
  assert.deepEqual(short, [
    "start 0 tool_use",
    "delta 0 input_json_delta",
    "delta 0 input_json_delta",
    "stop 0",
    "start 1 tool_use",
    "delta 1 input_json_delta",
    "delta 1 input_json_delta",
    "stop 1",
  ]);
  assert.deepEqual(content.map(({ input }) => input), [{ x: 1 }, { y: 2 }]);
});

test("what is said in the middle of a call waits until the call has its arguments", () => {
  const { short, content } = told(
    call(0, '{"x"', "one"),
    call(1, '{"y"', "two"),
    text("a"),
    { type: "reasoning_delta", delta: "Hm" },
    call(0, ":1}"),
    call(1, ":2}"),
    text("b"),
  );
  assert.deepEqual(short.filter((line) => line.startsWith("start")), [
    "start 0 tool_use",
    "start 1 tool_use",
    "start 2 text",
    "start 3 thinking",
    "start 4 text",
  ]);
  assert.deepEqual(content.slice(0, 3), [
    { type: "tool_use", id: "t0", name: "one", input: { x: 1 } },
    { type: "tool_use", id: "t1", name: "two", input: { y: 2 } },
    { type: "text", text: "a" },
  ]);
  // Behind a call that is cut off it comes at the end, and nothing of it is lost
  assert.deepEqual(told(call(0, '{"x"', "one"), text("a")).content.at(-1), { type: "text", text: "a" });
});

test("calls that are named first get their arguments, and a call without any waits for none", () => {
  const { content } = told(
    call(0, "", "one"),
    call(1, "", "two"),
    call(2, "", "three"),
    call(0, '{"x":0}'),
    call(2, '{"x":2}'),
    call(1, '{"x":'),
    call(1, "1}"),
    text("so"),
  );
  assert.deepEqual(content.map(({ input, text: said }) => input ?? said), [{ x: 0 }, { x: 1 }, { x: 2 }, "so"]);
  assert.deepEqual(told(call(0, "", "one"), call(1, "{}", "two")).content.map(({ name }) => name), ["one", "two"]);
});

test("arguments that are no JSON object are not lost", () => {
  assert.deepEqual(told(call(0, '{"x":', "one")).content, [
    { type: "tool_use", id: "t0", name: "one", input: { invalid_arguments: '{"x":' } },
  ]);
});

test("blocks of a server of the same format are told as they are", () => {
  const block = (content_block: Record<string, unknown>): AgentEventBody => ({
    type: "reply_fields",
    message: { content_block },
  });
  const delta = (given: Record<string, unknown>): AgentEventBody => ({
    type: "reply_fields",
    message: { delta: given },
  });
  const { short, content } = told(
    block({ type: "thinking", thinking: "", signature: "" }),
    { type: "reasoning_delta", delta: "Hm" },
    delta({ type: "signature_delta", signature: "sig" }),
    block({ type: "redacted_thinking", data: "xyz" }),
    block({ type: "text", text: "", citations: [] }),
    text("a"),
    delta({ type: "citations_delta", citation: { cited_text: "c" } }),
    block({ type: "text", text: "" }),
    text("b"),
    block({ type: "server_tool_use", id: "srv", name: "web_search", input: {} }),
    delta({ type: "input_json_delta", partial_json: '{"q":1}' }),
    block({ type: "tool_use", id: "t0", name: "one", input: {}, caller: { type: "direct" } }),
    call(0, "", "one"),
    call(0, "{}"),
  );
  assert.equal(short.filter((line) => line.startsWith("start")).length, 6);
  assert.deepEqual(content, [
    { type: "thinking", thinking: "Hm", signature: "sig" },
    { type: "redacted_thinking", data: "xyz" },
    { type: "text", text: "a", citations: [{ cited_text: "c" }] },
    { type: "text", text: "b" },
    { type: "server_tool_use", id: "srv", name: "web_search", input: { q: 1 } },
    { type: "tool_use", id: "t0", name: "one", input: {}, caller: { type: "direct" } },
  ]);
});

test("the usage counts tokens of the cache apart, and figures of the vendor alone", () => {
  const usage = {
    prompt_tokens: 17,
    completion_tokens: 7,
    total_tokens: 24,
    prompt_tokens_details: { cached_tokens: 4, cache_write_tokens: 3 },
    vendor: { service_tier: "standard" },
  };
  const counts = {
    input_tokens: 10,
    cache_creation_input_tokens: 3,
    cache_read_input_tokens: 4,
    output_tokens: 7,
  };
  assert.deepEqual(toMessageUsage(usage, false), counts);
  assert.deepEqual(toMessageUsage(usage, true), { service_tier: "standard", ...counts });
});
