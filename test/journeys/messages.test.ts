import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type AnthropicUpstream,
  contentBlock,
  MESSAGE_START,
  messageEnd,
  startAnthropicUpstream,
} from "../../fixtures/upstream/anthropic_upstream.ts";
import { type RunningGateway, withWorld, type World } from "../support/world.ts";
import { readSse } from "../support/sse.ts";

type Json = Readonly<Record<string, unknown>>;

const HI = [{ role: "user", content: "Hi" }];
const PLAIN = { "x-postern-tools": "none" };
const LOOK = { name: "look", description: "Looks", input_schema: { type: "object", properties: {} } };

const send = (gateway: RunningGateway, body: Json, headers: Record<string, string> = {}) =>
  gateway.call("/v1/messages", { body: { max_tokens: 100, messages: HI, ...body }, headers });

async function reply(gateway: RunningGateway, body: Json, headers: Record<string, string> = {}) {
  const response = await send(gateway, body, headers);
  // deno-lint-ignore no-explicit-any -- replies of several forms
  return { headers: response.headers, status: response.status, body: await response.json() as any };
}

/** Events of a streamed message, and the message that they make, as clients put it together. */
async function streamed(gateway: RunningGateway, body: Json, headers: Record<string, string> = {}) {
  const response = await send(gateway, { ...body, stream: true }, headers);
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  const text = await response.text();
  const events = readSse(text).data.map((line) => JSON.parse(line));
  assert.deepEqual(
    [...text.matchAll(/^event: (.*)$/gm)].map(([, name]) => name),
    events.map(({ type }) => type),
    "each event has its name",
  );
  const [{ message }] = events;
  const inputs = new Map<number, string>();
  for (const event of events) {
    const block = message.content[event.index];
    if (event.type === "content_block_start") message.content[event.index] = structuredClone(event.content_block);
    if (event.type === "message_delta") Object.assign(message, event.delta, { usage: event.usage });
    if (event.type === "content_block_stop" && inputs.has(event.index)) {
      block.input = JSON.parse(inputs.get(event.index) ?? "");
    }
    if (event.type !== "content_block_delta") continue;
    const { type, ...delta } = event.delta;
    if (type === "input_json_delta") inputs.set(event.index, (inputs.get(event.index) ?? "") + delta.partial_json);
    else for (const [name, value] of Object.entries(delta)) block[name] = (block[name] ?? "") + value;
  }
  return { events, message, headers: response.headers };
}

const withoutId = ({ id: _, ...message }: Json) => message;

async function withUpstream(use: (gateway: RunningGateway, upstream: AnthropicUpstream) => Promise<void>) {
  await withWorld(async (world: World) => {
    const upstream = await startAnthropicUpstream();
    world.onEnd(() => upstream.close());
    const provider = { kind: "anthropic", base_url: upstream.baseUrl, model: "claude-upstream", max_retries: 0 };
    await use(await world.gateway({ config: { provider, gateway: { rate_limit_max: 0 } } }), upstream);
  });
}

test("a message as JSON and as a stream is the same", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => ({ text: ["Hello", ", wörld"] }) });
    const whole = await reply(gateway, { model: "some-model" });
    assert.equal(whole.status, 200);
    assert.match(whole.body.id, /^msg_/);
    assert.deepEqual(withoutId(whole.body), {
      type: "message",
      role: "assistant",
      model: "some-model",
      content: [{ type: "text", text: "Hello, wörld" }],
      stop_reason: "end_turn",
      stop_sequence: null,
      usage: {
        input_tokens: 10,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 0,
        output_tokens: 5,
      },
    });
    const { events, message } = await streamed(gateway, { model: "some-model" });
    assert.deepEqual(events.map(({ type }) => type), [
      "message_start",
      "ping",
      "content_block_start",
      "content_block_delta",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ]);
    assert.deepEqual(withoutId(message), withoutId(whole.body));
  }));

test("the agent works with its own tools, and shows none of their calls", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      files: { "notes.txt": "The launch code is GREEN-7.\n" },
      script: (request, turn) =>
        turn === 0
          ? { text: "I look.", toolCalls: [{ name: "read_file", arguments: { path: "notes.txt" } }] }
          : { text: `Found: ${request.messages.at(-1)?.content}` },
    });
    const { body } = await reply(gateway, {});
    assert.equal(body.content.length, 1);
    assert.match(body.content[0].text, /^I look\.\n\nFound: The launch code is GREEN-7\./);
    assert.equal(body.stop_reason, "end_turn");
  }));

test("a tool of the client, there and back, streamed and not", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      script: ({ messages }) =>
        messages.at(-1)?.role === "tool"
          ? { text: `It says ${messages.at(-1)?.content}.` }
          : { toolCalls: [{ name: "look", arguments: ['{"at":', '"Graz"}'] }, { name: "look", arguments: "{}" }] },
    });
    for (const headers of [{}, PLAIN]) {
      const asked = { tools: [LOOK], tool_choice: { type: "auto" } };
      const { message } = await streamed(gateway, asked, headers);
      const { body } = await reply(gateway, asked, headers);
      for (const { content, stop_reason } of [message, body]) {
        assert.equal(stop_reason, "tool_use");
        assert.deepEqual(content.map(({ type, input }: Json) => [type, input]), [
          ["tool_use", { at: "Graz" }],
          ["tool_use", {}],
        ]);
      }
      const results = body.content.map(({ id }: Json, i: number) => ({
        type: "tool_result",
        tool_use_id: id,
        content: i === 0 ? "rain" : [{ type: "text", text: "sun" }],
      }));
      const messages = [...HI, { role: "assistant", content: body.content }, { role: "user", content: results }];
      const next = await reply(gateway, { messages, tools: [LOOK] }, headers);
      assert.deepEqual(next.body.content, [{ type: "text", text: "It says sun." }]);
    }
  }));

test("in plain mode a provider of the same format gets the request as it came, and the client its blocks", () =>
  withUpstream(async (gateway, upstream) => {
    const thinking = { type: "thinking", thinking: "", signature: "" };
    const answer = [
      MESSAGE_START,
      ...contentBlock(0, thinking, { type: "thinking_delta", thinking: "Hm" }, {
        type: "signature_delta",
        signature: "sig",
      }),
      ...contentBlock(1, { type: "redacted_thinking", data: "xyz" }),
      ...contentBlock(2, { type: "text", text: "" }, { type: "text_delta", text: "Looking" }),
      ...contentBlock(3, { type: "tool_use", id: "toolu_1", name: "look", input: {} }, {
        type: "input_json_delta",
        partial_json: '{"at":1}',
      }),
      ...messageEnd("tool_use"),
    ];
    upstream.script(answer);
    const sent = {
      model: "claude-upstream",
      system: [{ type: "text", text: "S", cache_control: { type: "ephemeral" } }],
      messages: [{
        role: "user",
        content: [
          { type: "text", text: "Hi", cache_control: { type: "ephemeral", ttl: "1h" } },
          { type: "document", source: { type: "url", url: "https://example.com/a.pdf" }, citations: { enabled: true } },
        ],
      }],
      max_tokens: 2000,
      thinking: { type: "enabled", budget_tokens: 1024 },
      tools: [{ ...LOOK, eager_input_streaming: true }, { type: "web_search_20250305", name: "web_search" }],
      context_management: { edits: [{ type: "clear_tool_uses_20250919" }] },
      metadata: { user_id: "u", other: null },
      stop_sequences: null,
      later: [{ a: null }],
    };
    const headers = { ...PLAIN, "anthropic-beta": "one-2025-01-01,two-2025-01-01", "anthropic-version": "2024-01-01" };
    const content = [
      { type: "thinking", thinking: "Hm", signature: "sig" },
      { type: "redacted_thinking", data: "xyz" },
      { type: "text", text: "Looking" },
      { type: "tool_use", id: "toolu_1", name: "look", input: { at: 1 } },
    ];
    const usage = {
      input_tokens: 10,
      cache_creation_input_tokens: 3,
      cache_read_input_tokens: 4,
      output_tokens: 7,
    };
    const whole = await reply(gateway, sent, headers);
    const { message } = await streamed(gateway, sent, headers);
    assert.deepEqual(whole.body.content, content);
    assert.deepEqual(message.content, content);
    assert.deepEqual([whole.body.usage, message.usage], [usage, usage]);
    assert.deepEqual([whole.body.stop_reason, message.stop_reason], ["tool_use", "tool_use"]);
    assert.equal(whole.headers.get("x-postern-ignored"), null);
    assert.deepEqual(upstream.requests.map(({ json }) => json), [{ ...sent, stream: true }, { ...sent, stream: true }]);
    assert.equal(upstream.requests[0]?.headers["anthropic-beta"], headers["anthropic-beta"]);
    assert.equal(upstream.requests[0]?.headers["anthropic-version"], headers["anthropic-version"]);
  }));

test("stop reasons and stop sequences of the same format come through", () =>
  withUpstream(async (gateway, upstream) => {
    for (
      const [reason, sequence] of [["stop_sequence", "END"], ["pause_turn", null], ["refusal", null], [
        "max_tokens",
        null,
      ], ["model_context_window_exceeded", null]]
    ) {
      const [delta, stop] = messageEnd(reason ?? "");
      const end = { ...delta, delta: { stop_reason: reason, stop_sequence: sequence } };
      upstream.script([MESSAGE_START, ...contentBlock(0, { type: "text", text: "so" }), end, stop ?? {}]);
      const { body } = await reply(gateway, {}, PLAIN);
      const { message } = await streamed(gateway, {}, PLAIN);
      for (const told of [body, message]) {
        assert.deepEqual([told.stop_reason, told.stop_sequence], [reason, sequence]);
        assert.deepEqual(told.content, [{ type: "text", text: "so" }]);
      }
    }
  }));

test("with the agent's tools on, the vendor's thinking comes back with its calls although the client has no signature", () =>
  withUpstream(async (gateway, upstream) => {
    const called = [
      MESSAGE_START,
      ...contentBlock(
        0,
        { type: "thinking", thinking: "", signature: "" },
        { type: "thinking_delta", thinking: "Hm" },
        {
          type: "signature_delta",
          signature: "sig",
        },
      ),
      ...contentBlock(1, { type: "tool_use", id: "toolu_1", name: "look", input: {} }),
      ...messageEnd("tool_use"),
    ];
    upstream.script(called, [
      MESSAGE_START,
      ...contentBlock(0, { type: "text", text: "Done" }),
      ...messageEnd("end_turn"),
    ]);
    const asked = { tools: [LOOK], thinking: { type: "enabled", budget_tokens: 2000 }, max_tokens: 4000 };
    const { body, headers } = await reply(gateway, { ...asked, top_k: 3 });
    assert.equal(headers.get("x-postern-ignored"), "top_k");
    // For a gateway that no longer knows the turn; the vendor's own takes no part in it here
    assert.match(body.content[0].signature, /^postern\./);
    body.content[0].signature = "";
    const result = { type: "tool_result", tool_use_id: body.content[1].id, content: "no", is_error: true };
    const messages = [...HI, { role: "assistant", content: body.content }, { role: "user", content: [result] }];
    const next = await reply(gateway, { ...asked, messages });
    assert.deepEqual(next.body.content, [{ type: "text", text: "Done" }]);
    const { messages: told, ...sent } = upstream.requests.at(-1)?.json as Json & {
      messages: readonly { content: readonly Json[] }[];
    };
    // The client's limit holds the thinking, as in its own format
    assert.deepEqual([sent["max_tokens"], sent["thinking"]], [4000, { type: "enabled", budget_tokens: 2048 }]);
    assert.deepEqual(told[1]?.content[0], { type: "thinking", thinking: "Hm", signature: "sig" });
    assert.deepEqual(told[2]?.content[0]?.["is_error"], true);
  }));

test("another vendor is told what it knows, and what it was not told has its name in a header", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream({ kind: "text", chunks: ["fine"] });
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model", max_retries: 0 };
    const gateway = await world.gateway({ config: { provider } });
    const asked = {
      system: "S",
      messages: [{ role: "user", content: [{ type: "text", text: "Hi", cache_control: { type: "ephemeral" } }] }],
      tools: [LOOK],
      tool_choice: { type: "tool", name: "look" },
      stop_sequences: ["END"],
      top_k: 4,
    };
    for (
      const headers of [(await reply(gateway, asked, PLAIN)).headers, (await streamed(gateway, asked, PLAIN)).headers]
    ) {
      assert.equal(headers.get("x-postern-ignored"), "top_k, messages[].content[].cache_control");
      const { stream: _, stream_options: _options, ...told } = upstream.requests.at(-1)?.json as Json;
      assert.deepEqual(told, {
        model: "upstream-model",
        messages: [{ role: "system", content: "S" }, { role: "user", content: "Hi" }],
        max_tokens: 100,
        stop: ["END"],
        tools: [{ type: "function", function: { name: "look", description: "Looks", parameters: LOOK.input_schema } }],
        tool_choice: { type: "function", function: { name: "look" } },
      });
    }
  }));

test("tokens are counted by an estimate, and a model that nobody has is none", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model", max_retries: 0 };
    const gateway = await world.gateway({ config: { provider } });
    const count = async (body: Json) => {
      const response = await gateway.call("/v1/messages/count_tokens", { body });
      return {
        status: response.status,
        ...await response.json() as { input_tokens?: number; error?: { type: string } },
      };
    };
    const few = await count({ model: "upstream-model", messages: HI });
    const more = await count({ messages: [{ role: "user", content: "many words ".repeat(100) }] });
    const tools = await count({ messages: HI, tools: [LOOK] });
    assert.equal(few.status, 200);
    assert.ok((few.input_tokens ?? 0) > 0);
    assert.ok((more.input_tokens ?? 0) > (few.input_tokens ?? 0) + 100);
    assert.ok((tools.input_tokens ?? 0) > (few.input_tokens ?? 0));
    assert.equal((await count({ messages: [] })).error?.type, "invalid_request_error");
  }));

test("models are listed in the form of clients that send anthropic-version, page by page", () =>
  withUpstream(async (gateway) => {
    const headers = { "anthropic-version": "2023-06-01" };
    const list = async (query: string) => await (await gateway.call(`/v1/models${query}`, { headers })).json() as Json;
    const model = {
      id: "claude-upstream",
      type: "model",
      display_name: "claude-upstream",
      created_at: "2025-09-29T00:00:00.000Z",
      max_input_tokens: null,
    };
    const { data, ...page } = await list("?limit=1") as { readonly data: readonly Json[] };
    assert.deepEqual(page, { object: "list", has_more: false, first_id: model.id, last_id: model.id });
    assert.deepEqual({ ...data[0], ...model }, data[0]);
    assert.deepEqual((await list("?after_id=claude-upstream"))["data"], []);
    assert.deepEqual((await list("?before_id=claude-upstream"))["data"], []);
    const one = await (await gateway.call("/v1/models/claude-upstream", { headers })).json() as Json;
    assert.deepEqual({ ...one, ...model }, one);
    assert.equal(
      (await (await gateway.call("/v1/models")).json() as { data: readonly Json[] }).data[0]?.["type"],
      undefined,
    );
  }));

test("HEAD / is answered, and so is the address with ?beta=true", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => "ok" });
    assert.equal((await fetch(gateway.url, { method: "HEAD" })).status, 200);
    const { status } = await gateway.call("/v1/messages?beta=true", { body: { max_tokens: 5, messages: HI } });
    assert.equal(status, 200);
  }));

test("other names stand for models, and a name that nobody serves stays an error", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream({ kind: "text", chunks: ["fine"] });
    const settings = { kind: "openai_compatible", base_url: upstream.baseUrl, max_retries: 0 };
    const provider = {
      ...settings,
      model: "upstream-model",
      aliases: { "claude-*": "default", "claude-opus-*": "big-model", "claude-haiku-4-5": "other/small-model" },
    };
    const gateway = await world.gateway({ config: { provider, providers: { other: { ...settings } } } });
    const rows = [
      ["claude-sonnet-4-5", "upstream-model", "upstream-model"],
      ["claude-opus-4-1", "big-model", "big-model"],
      ["claude-haiku-4-5", "other/small-model", "small-model"],
      ["plain/claude-opus-4-1", "big-model", "big-model"],
    ];
    for (const [model, told, sent] of rows) {
      const { body } = await reply(gateway, { model });
      assert.equal(body.model, told);
      assert.equal((upstream.requests.at(-1)?.json as { model: string }).model, sent);
    }
    const { data } = await (await gateway.call("/v1/models")).json() as { data: readonly { id: string }[] };
    assert.ok(data.some(({ id }) => id === "claude-haiku-4-5"));
    assert.ok(!data.some(({ id }) => id.includes("*")));
    const body = { error: { message: "The model `o` does not exist", code: "model_not_found" } };
    upstream.script({ kind: "status", status: 404, body });
    const missing = await reply(gateway, { model: "gpt-nobody" });
    assert.deepEqual([missing.status, missing.body.error.type], [404, "not_found_error"]);
  }));
