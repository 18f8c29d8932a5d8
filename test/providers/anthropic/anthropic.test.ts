import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import {
  type AnthropicReply,
  type AnthropicUpstream,
  contentBlock,
  MESSAGE_START,
  messageEnd,
  startAnthropicUpstream,
} from "../../../fixtures/upstream/anthropic_upstream.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import type { Provider, ProviderRequest, Providers } from "../../../lib/providers/provider.ts";
import { callsOf, collect, KEY, NEVER, noticesOf, setUp, textOf } from "../support/provider_setup.ts";

async function start(
  context: TestContext,
  ...replies: AnthropicReply[]
): Promise<{ upstream: AnthropicUpstream; provider: Provider; providers: Providers }> {
  const upstream = await startAnthropicUpstream(...replies);
  context.after(() => upstream.close());
  const env = { ANTHROPIC_API_KEY: KEY };
  const { providers } = await setUp(context, { kind: "anthropic", base_url: upstream.baseUrl }, { env });
  return { upstream, provider: providers.resolve("").provider, providers };
}

test("text, usage with cached tokens and the stop reason come through; ping is skipped", async (t) => {
  const { upstream, provider } = await start(t);
  const events = await collect(provider);
  assert.equal(textOf(events), "Hello there");
  assert.deepEqual(events.at(-1), {
    type: "finish",
    finish_reason: "stop",
    usage: {
      prompt_tokens: 17,
      completion_tokens: 7,
      total_tokens: 24,
      prompt_tokens_details: { cached_tokens: 4, cache_write_tokens: 3 },
    },
    model: "claude-upstream",
  });
  const [seen] = upstream.requests;
  assert.equal(seen?.path, "/v1/messages");
  assert.equal(seen?.headers["anthropic-version"], "2023-06-01");
  assert.equal(seen?.headers["x-api-key"], KEY);
});

test("a conversation with tools is sent in the vendor's blocks", async (t) => {
  const { upstream, provider } = await start(t);
  const thinking = { type: "thinking", thinking: "hm", signature: "sig" };
  await collect(provider, {
    messages: [
      { role: "system", content: "Be brief" },
      { role: "developer", content: "And kind" },
      {
        role: "user",
        content: [
          { type: "text", text: "Look" },
          { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } },
          { type: "image_url", image_url: { url: "https://example.com/a.png" } },
        ],
      },
      {
        role: "assistant",
        content: null,
        opaque: { anthropic: [thinking], other: [{ type: "text", text: "no" }] },
        tool_calls: [
          { id: "call_1", type: "function", function: { name: "look", arguments: '{"a":1}' } },
          { id: "call_2", type: "function", function: { name: "look", arguments: "{broken" } },
        ],
      },
      { role: "tool", tool_call_id: "call_1", content: "one" },
      { role: "tool", tool_call_id: "call_2", content: "two", is_error: true },
      { role: "user", content: "Go on" },
    ],
    tools: [{ name: "look", description: "Looks", parameters: undefined }],
    toolChoice: "required",
    parallelToolCalls: false,
    parameters: { temperature: 1.7, stop: "END", user: "u1", max_completion_tokens: 99 },
  });
  assert.deepEqual(upstream.requests[0]?.json, {
    model: "upstream-model",
    max_tokens: 99,
    stream: true,
    system: "Be brief\n\nAnd kind",
    stop_sequences: ["END"],
    metadata: { user_id: "u1" },
    temperature: 1,
    tools: [{ name: "look", description: "Looks", input_schema: { type: "object", properties: {} } }],
    tool_choice: { type: "any", disable_parallel_tool_use: true },
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "Look" },
          { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } },
          { type: "image", source: { type: "url", url: "https://example.com/a.png" } },
        ],
      },
      {
        role: "assistant",
        content: [
          thinking,
          { type: "tool_use", id: "call_1", name: "look", input: { a: 1 } },
          { type: "tool_use", id: "call_2", name: "look", input: {} },
        ],
      },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "call_1", content: "one" },
          { type: "tool_result", tool_use_id: "call_2", content: "two", is_error: true },
          { type: "text", text: "Go on" },
        ],
      },
    ],
  });
});

test("arguments in a history that nest too deep to be written again are none, as broken ones", async (t) => {
  const { upstream, provider } = await start(t);
  const deep = `{"a":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
  const call = { id: "call_1", type: "function", function: { name: "look", arguments: deep } } as const;
  await collect(provider, {
    messages: [
      { role: "user", content: "Look" },
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: "call_1", content: "one" },
    ],
  });
  const { messages } = upstream.requests[0]?.json as { messages: { content: unknown }[] };
  assert.deepEqual(messages[1]?.content, [{ type: "tool_use", id: "call_1", name: "look", input: {} }]);
});

test("a request without tools declares those its history names, not to be called", async (t) => {
  const { upstream, provider } = await start(t);
  const call = (id: string, name: string) => ({ id, type: "function", function: { name, arguments: "{}" } }) as const;
  await collect(provider, {
    messages: [
      { role: "user", content: "Look" },
      { role: "assistant", content: null, tool_calls: [call("a", "read_file"), call("b", "read_file")] },
      { role: "tool", content: "1", tool_call_id: "a" },
      { role: "tool", content: "2", tool_call_id: "b" },
    ],
    tools: [],
  });
  await collect(provider, { messages: [{ role: "user", content: "Hi" }], tools: [] });
  const [closed, plain] = upstream.requests.map((request) => request.json as Record<string, unknown>);
  assert.deepEqual(closed?.["tools"], [
    { name: "read_file", description: "", input_schema: { type: "object", properties: {} } },
  ]);
  assert.deepEqual(closed?.["tool_choice"], { type: "none" });
  assert.equal(plain && ("tools" in plain || "tool_choice" in plain), false);
});

test("without a limit the required max_tokens is sent", async (t) => {
  const { upstream, provider } = await start(t);
  await collect(provider);
  assert.match(upstream.requests[0]?.text ?? "", /"max_tokens":8192/);
});

test("a reasoning effort that is none, also one that every object has, turns nothing on", async (t) => {
  const { upstream, provider } = await start(t);
  await collect(provider, { parameters: { reasoning_effort: "constructor" } });
  assert.equal(upstream.requests[0]?.text.includes("thinking"), false);
});

test("reasoning effort turns thinking on, with room for it and no sampling parameters", async (t) => {
  const { upstream, provider } = await start(t);
  await collect(provider, { parameters: { reasoning_effort: "low", temperature: 0, max_tokens: 100 } });
  const { text = "" } = upstream.requests[0] ?? {};
  assert.match(text, /"thinking":\{"type":"enabled","budget_tokens":2048\}/);
  assert.match(text, /"max_tokens":2148/);
  assert.equal(text.includes("temperature"), false);
});

test("thinking is off while a tool call is under way that came without its thinking block", async (t) => {
  const { upstream, provider } = await start(t);
  const user: Message = { role: "user", content: "Look" };
  const thinking = { anthropic: [{ type: "thinking", thinking: "hm", signature: "sig" }] };
  const said = (calls: number, opaque?: Readonly<Record<string, unknown>>): Message[] => {
    const ids = Array.from({ length: calls }, (_, at) => `call_${at}`);
    const tool_calls = ids.map((id) => ({
      id,
      type: "function" as const,
      function: { name: "look", arguments: "{}" },
    }));
    return [
      {
        role: "assistant",
        content: "Well",
        ...(calls === 0 ? {} : { tool_calls }),
        ...(opaque === undefined ? {} : { opaque }),
      },
      ...ids.map((tool_call_id): Message => ({ role: "tool", tool_call_id, content: "one" })),
    ];
  };
  for (
    const [messages, isOn] of [
      [[user, ...said(1)], false],
      [[user, ...said(2)], false],
      [[user, ...said(1), ...said(1, thinking)], false],
      [[user, ...said(1, { other: thinking.anthropic })], false],
      [[user, ...said(1, thinking)], true],
      [[user, ...said(0)], true],
      [[user, ...said(1), user], true],
    ] as const
  ) {
    await collect(provider, { messages, parameters: { reasoning_effort: "low" } });
    assert.equal(
      upstream.requests.at(-1)?.text.includes('"thinking":{"type":"enabled"'),
      isOn,
      JSON.stringify(messages),
    );
  }
});

test("two tool calls stream apart, one without input as an empty object", async (t) => {
  const { provider } = await start(t, [
    MESSAGE_START,
    ...contentBlock(0, { type: "text", text: "" }, { type: "text_delta", text: "Looking" }),
    ...contentBlock(
      1,
      { type: "tool_use", id: "toolu_1", name: "look", input: {} },
      { type: "input_json_delta", partial_json: "" },
      { type: "input_json_delta", partial_json: '{"a":' },
      { type: "input_json_delta", partial_json: "1}" },
    ),
    ...contentBlock(2, { type: "tool_use", id: "toolu_2", name: "list", input: {} }),
    ...messageEnd("tool_use"),
  ]);
  const events = await collect(provider);
  assert.deepEqual(callsOf(events), [
    { id: "toolu_1", name: "look", arguments: '{"a":1}' },
    { id: "toolu_2", name: "list", arguments: "{}" },
  ]);
  const last = events.at(-1);
  assert.equal(last?.type === "finish" ? last.finish_reason : undefined, "tool_calls");
});

test("thinking is shown and kept with its signature", async (t) => {
  const { provider } = await start(t, [
    MESSAGE_START,
    ...contentBlock(
      0,
      { type: "thinking", thinking: "", signature: "" },
      { type: "thinking_delta", thinking: "Let me " },
      { type: "thinking_delta", thinking: "see" },
      { type: "signature_delta", signature: "c2ln" },
    ),
    ...contentBlock(1, { type: "redacted_thinking", data: "xx" }),
    ...contentBlock(2, { type: "text", text: "" }, { type: "text_delta", text: "Yes" }),
    ...messageEnd("end_turn"),
  ]);
  const events = await collect(provider);
  assert.deepEqual(events.slice(0, 2), [
    { type: "reasoning_delta", delta: "Let me " },
    { type: "reasoning_delta", delta: "see" },
  ]);
  const last = events.at(-1);
  assert.deepEqual(last?.type === "finish" ? last.opaque : undefined, [
    { type: "thinking", thinking: "Let me see", signature: "c2ln" },
    { type: "redacted_thinking", data: "xx" },
  ]);
});

for (
  const [stopReason, reason] of [
    ["max_tokens", "length"],
    ["stop_sequence", "stop"],
    ["refusal", "content_filter"],
    ["model_context_window_exceeded", "length"],
  ] as const
) {
  test(`stop reason ${stopReason} becomes ${reason}`, async (t) => {
    const text = contentBlock(0, { type: "text", text: "x" });
    const { provider } = await start(t, [MESSAGE_START, ...text, ...messageEnd(stopReason)]);
    const last = (await collect(provider)).at(-1);
    assert.equal(last?.type === "finish" ? last.finish_reason : undefined, reason);
  });
}

const told = (type: string, message: string) => ({ type: "error", error: { type, message } });
for (
  const [name, reply, code, status] of [
    ["an error in the stream", [MESSAGE_START, told("overloaded_error", "Overloaded")], "provider_error", 529],
    [
      "an end in the middle",
      [MESSAGE_START, ...contentBlock(0, { type: "text", text: "x" })],
      "provider_error",
      undefined,
    ],
    ["529", { status: 529, body: told("overloaded_error", "Overloaded") }, "provider_error", 529],
    ["401", { status: 401, body: told("authentication_error", `invalid x-api-key ${KEY}`) }, "provider_error", 401],
    ["404 of a model", { status: 404, body: told("not_found_error", "model: claude-nope") }, "model_not_found", 404],
    ["400", { status: 400, body: told("invalid_request_error", "max_tokens: too large") }, "provider_rejected", 400],
    [
      "429",
      { status: 429, body: told("rate_limit_error", "Slow"), headers: { "retry-after": "5" } },
      "provider_rate_limited",
      429,
    ],
  ] as const
) {
  test(`an honest error: ${name}`, async (t) => {
    const { provider } = await start(t, reply);
    const error = await collect(provider).then(() => undefined, (error: unknown) => error);
    assert.ok(error instanceof ProviderError, String(error));
    assert.deepEqual([error.code, error.status], [code, status], error.message);
    assert.equal(error.message.includes(KEY), false);
  });
}

test("content that the vendor has no block for is refused before anything is sent", async (t) => {
  const { upstream, provider } = await start(t);
  const audio = { type: "input_audio" as const, input_audio: { data: "", format: "wav" } };
  await assert.rejects(
    collect(provider, { messages: [{ role: "user", content: [audio] }] }),
    (error) => error instanceof ProviderError && error.code === "provider_rejected" && error.status === 400,
  );
  assert.equal(upstream.requests.length, 0);
});

test("parameters the vendor does not know are named in notices", async (t) => {
  const { provider } = await start(t);
  const events = await collect(provider, { parameters: { seed: 1, response_format: { type: "json_object" } } });
  assert.deepEqual(noticesOf(events), ["parameter_ignored", "parameter_ignored"]);
  const params = events.flatMap((event) => (event.type === "notice" ? [event.param] : []));
  assert.deepEqual(params, ["seed", "response_format"]);
});

test("models are listed with their time", async (t) => {
  const { providers } = await start(t);
  assert.deepEqual(await providers.listModels(NEVER), [
    { id: "claude-upstream", object: "model", created: 1759104000, owned_by: "anthropic" },
  ]);
});

test("the stable beginning of a run's requests is marked for the vendor's cache, and found tools follow it", async (t) => {
  const { upstream, provider } = await start(t);
  const tool = (name: string) => ({ name, description: "A tool", parameters: undefined });
  const marked = { cache_control: { type: "ephemeral" } };
  const block = (name: string) => ({ name, description: "A tool", input_schema: { type: "object", properties: {} } });
  const messages: readonly Message[] = [{ role: "system", content: "Be brief" }, { role: "user", content: "Hi" }];
  const send = async (changes: Partial<ProviderRequest>) => {
    await collect(provider, { messages, tools: [tool("a"), tool("b")], ...changes });
    // The fake upstream has parsed it
    return upstream.requests.at(-1)?.json as { readonly system?: unknown; readonly tools?: unknown };
  };
  const first = await send({ stableTools: 2 });
  assert.deepEqual(first.system, [{ type: "text", text: "Be brief", ...marked }]);
  assert.deepEqual(first.tools, [block("a"), { ...block("b"), ...marked }]);
  const later = await send({ stableTools: 2, tools: [tool("a"), tool("b"), tool("found")] });
  assert.deepEqual(later.tools, [block("a"), { ...block("b"), ...marked }, block("found")]);
  assert.equal("system" in await send({ stableTools: 2, messages: messages.slice(1) }), false);
  const empty = await send({ stableTools: 2, messages: [{ role: "system", content: "" }, ...messages.slice(1)] });
  assert.equal("system" in empty, false);
  const plain = await send({});
  assert.deepEqual([plain.system, plain.tools], ["Be brief", [block("a"), block("b")]]);
});

test("pictures of a result stand in its block; a result that failed is not marked beside a picture", async (t) => {
  const { upstream, provider } = await start(t);
  const result = (id: string, isError: boolean): Message => ({
    role: "tool",
    tool_call_id: id,
    content: "Taken",
    pictures: [PICTURE],
    frame: { open: "<untrusted>", close: "</untrusted>" },
    ...isError ? { is_error: true } : {},
  });
  const request = { model: "claude-sonnet-4-5", messages: [result("a", false), result("b", true)] };
  await collect(provider, { ...request, pictures: new Map([[PICTURE.sha256, "AAAA"]]) });
  await collect(provider, { ...request, pictures: new Map() });
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } };
  const block = (id: string, content: unknown) => ({ type: "tool_result", tool_use_id: id, content });
  const shown = [{ type: "text", text: "Taken" }, image];
  assert.deepEqual(sentTo(upstream, 0), [{ role: "user", content: [block("a", shown), block("b", shown)] }]);
  const told =
    `Taken\n[Postern] A picture (PNG, 8 x 6 pixels, saved as "a.png") is not shown: it is too old, and not kept any more.`;
  assert.deepEqual(sentTo(upstream, 1), [
    { role: "user", content: [block("a", told), { ...block("b", told), is_error: true }] },
  ]);
});

const PICTURE = { sha256: "ab", media_type: "image/png", bytes: 3, width: 8, height: 6, saved_as: "a.png" } as const;

function sentTo({ requests }: AnthropicUpstream, place: number): unknown {
  return (requests[place]?.json as { readonly messages?: unknown }).messages;
}
