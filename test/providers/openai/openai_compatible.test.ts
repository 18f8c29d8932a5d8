import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import {
  type OpenAiUpstream,
  startOpenAiUpstream,
  toChunk,
  toDelta,
  toSse,
  type UpstreamReply,
  USAGE_CHUNK,
} from "../../../fixtures/upstream/openai_upstream.ts";
import { CancelError } from "../../../lib/base/cancel.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import type { ProviderEvent } from "../../../lib/base/records/provider_event.ts";
import type { Provider } from "../../../lib/providers/provider.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { freePort } from "../../support/free_port.ts";
import { callsOf, collect, KEY, NEVER, noticesOf, REQUEST, setUp, textOf } from "../support/provider_setup.ts";
import { until } from "../../support/until.ts";

async function start(
  context: TestContext,
  ...replies: UpstreamReply[]
): Promise<{ upstream: OpenAiUpstream; provider: Provider }> {
  const upstream = await startOpenAiUpstream(...replies);
  context.after(() => upstream.close());
  const { providers } = await setUp(context, { base_url: upstream.baseUrl, api_key_env: "UP_KEY" }, {
    env: { UP_KEY: KEY },
  });
  return { upstream, provider: providers.resolve("").provider };
}

async function failure(context: TestContext, ...replies: UpstreamReply[]): Promise<ProviderError> {
  const { provider } = await start(context, ...replies);
  return await errorOf(provider);
}

async function errorOf(provider: Provider): Promise<ProviderError> {
  const error = await collect(provider).then(() => undefined, (error: unknown) => error);
  assert.ok(error instanceof ProviderError, `expected a ProviderError, got ${error}`);
  assert.equal(error.message.includes(KEY), false);
  return error;
}

test("a regular stream becomes text, usage and one finish at the end", async (t) => {
  const { upstream, provider } = await start(t);
  const events = await collect(provider);
  assert.equal(textOf(events), "Hello from upstream");
  assert.deepEqual(events.at(-1), {
    type: "finish",
    finish_reason: "stop",
    usage: { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15 },
    model: "upstream-model",
  });
  assert.deepEqual(noticesOf(events), []);
  assert.equal(upstream.requests[0]?.headers["authorization"], `Bearer ${KEY}`);
});

test("the request carries messages, tools, choice and parameters, and nothing of another vendor", async (t) => {
  const { upstream, provider } = await start(t);
  await collect(provider, {
    messages: [
      { role: "user", content: "a" },
      { role: "assistant", content: "b", opaque: { anthropic: [1] } },
      { role: "tool", tool_call_id: "call_1", content: "No room", is_error: true, denied_by: "person" },
      { role: "user", content: [{ type: "text", text: "And this" }], files: ["image.png"] },
    ],
    tools: [{ name: "look", description: "Looks", parameters: { type: "object", properties: {} }, strict: true }],
    toolChoice: { name: "look" },
    parallelToolCalls: false,
    parameters: { temperature: 0.5, max_tokens: 7, stop: ["x"] },
  });
  assert.deepEqual(upstream.requests[0]?.json, {
    model: "upstream-model",
    messages: [
      { role: "user", content: "a" },
      { role: "assistant", content: "b" },
      { role: "tool", tool_call_id: "call_1", content: "No room" },
      { role: "user", content: [{ type: "text", text: "And this" }] },
    ],
    stream: true,
    temperature: 0.5,
    stop: ["x"],
    stream_options: { include_usage: true },
    max_tokens: 7,
    tools: [{
      type: "function",
      function: { name: "look", description: "Looks", parameters: { type: "object", properties: {} }, strict: true },
    }],
    parallel_tool_calls: false,
    tool_choice: { type: "function", function: { name: "look" } },
  });
});

test("a server that is not OpenAI's gets one system message and no role developer, OpenAI the messages as they are", async (t) => {
  const messages: readonly Message[] = [
    { role: "system", content: "One" },
    { role: "developer", content: [{ type: "text", text: "Two" }] },
    { role: "user", content: "Hi" },
    { role: "developer", content: "Three" },
  ];
  const sent = [];
  for (const kind of ["openai_compatible", "openai"]) {
    const upstream = await startOpenAiUpstream();
    t.after(() => upstream.close());
    const { providers } = await setUp(t, { kind, base_url: upstream.baseUrl, model: "m" });
    await collect(providers.resolve("").provider, { messages });
    sent.push((upstream.requests[0]?.json as { messages: unknown }).messages);
  }
  assert.deepEqual(sent[0], [
    { role: "system", content: "One\n\nTwo" },
    { role: "user", content: "Hi" },
    { role: "system", content: "Three" },
  ]);
  assert.deepEqual(sent[1], messages);
});

test("OpenAI's own API is sent max_completion_tokens", async (t) => {
  const upstream = await startOpenAiUpstream();
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { kind: "openai", base_url: upstream.baseUrl });
  await collect(providers.resolve("").provider, { parameters: { max_tokens: 7 } });
  const body = upstream.requests[0]?.json;
  assert.ok(typeof body === "object" && body !== null && !("max_tokens" in body));
  assert.equal("max_completion_tokens" in body && body.max_completion_tokens, 7);
});

test("a server that refuses stream_options is asked without, and never again with it", async (t) => {
  const refusal = { error: { message: "Unrecognized request argument: stream_options" } };
  const { upstream, provider } = await start(t, { kind: "status", status: 400, body: refusal }, {
    kind: "text",
    chunks: ["ok"],
  });
  assert.equal(textOf(await collect(provider)), "ok");
  assert.equal(textOf(await collect(provider)), "ok");
  assert.deepEqual(upstream.requests.map(({ text }) => text.includes("stream_options")), [true, false, false]);
});

/** Forms of bodies in which servers refuse a field. */
const FIELD_REFUSALS = [
  [{
    error: { code: 400, message: 'Invalid JSON payload: Unknown name "stream_options"', status: "INVALID_ARGUMENT" },
  }],
  {
    object: "error",
    message: {
      detail: [{ type: "extra_forbidden", loc: ["body", "stream_options"], msg: "Extra inputs are not permitted" }],
    },
  },
  { detail: [{ loc: ["body", "stream_options", "include_usage"], msg: "extra fields not permitted" }] },
  { errors: [{ message: "include_usage is unknown" }], success: false },
  { error_code: 336_002, error_msg: "unknown field stream_options" },
  {
    error: {
      message: "Provider returned error",
      code: 400,
      metadata: { raw: '{"error":{"message":"Unrecognized","param":"stream_options"}}' },
    },
  },
];

for (const [place, body] of FIELD_REFUSALS.entries()) {
  test(`a field that is refused is left out, in whatever form the refusal is: ${place}`, async (t) => {
    const { upstream, provider } = await start(t, { kind: "status", status: 400, body }, {
      kind: "text",
      chunks: ["ok"],
    });
    assert.equal(textOf(await collect(provider)), "ok");
    assert.deepEqual(upstream.requests.map(({ text }) => text.includes("stream_options")), [true, false]);
  });
}

test("a server that refuses reasoning_content is asked without, and one that misses it is told as it is", async (t) => {
  const messages: Message[] = [
    { role: "user", content: "Hello" },
    { role: "assistant", content: "Hi", extra: { reasoning_content: "They greet me" } },
    { role: "user", content: "Again" },
  ];
  const refusal = (message: string): UpstreamReply => ({ kind: "status", status: 400, body: { error: { message } } });
  const ok = { kind: "text", chunks: ["ok"] } as const;
  const { upstream, provider } = await start(t, refusal("'reasoning_content' is unsupported"), ok);
  for (const _ of [1, 2]) assert.equal(textOf(await collect(provider, { messages })), "ok");
  assert.deepEqual(upstream.requests.map(({ text }) => text.includes("reasoning_content")), [true, false, false]);
  for (const other of ["reasoning_content is missing in messages.1", "Bad temperature"]) {
    const strict = await start(t, refusal(other), ok);
    await assert.rejects(collect(strict.provider, { messages }), { code: "provider_rejected" });
    assert.equal(strict.upstream.requests.length, 1, other);
  }
});

test("a tool call streams with its id and name first", async (t) => {
  const { provider } = await start(t, { kind: "tool_call", name: "read_file", arguments: ['{"pa', 'th":"a"}'] });
  const events = await collect(provider);
  assert.deepEqual(callsOf(events), [{ id: "call_up", name: "read_file", arguments: '{"path":"a"}' }]);
  assert.equal(events.at(-1)?.type, "finish");
  assert.deepEqual(noticesOf(events), []);
});

test("connections are kept for the next request", async (t) => {
  const { upstream, provider } = await start(t);
  for (let i = 0; i < 5; i++) await collect(provider);
  // A turn is over at its [DONE]; its connection is free a moment later, so a second one may be needed
  assert.ok(upstream.connections <= 2, `${upstream.connections} connections for five requests`);
});

test("a plain JSON reply to a stream request is read as the whole turn", async (t) => {
  const call = { id: "c1", type: "function", function: { name: "look", arguments: "{}" } };
  const { provider } = await start(t, {
    kind: "json",
    body: {
      model: "m",
      choices: [{ message: { role: "assistant", content: "Hi", tool_calls: [call] }, finish_reason: "tool_calls" }],
      usage: { prompt_tokens: 1, completion_tokens: 2 },
    },
  });
  const events = await collect(provider);
  assert.equal(textOf(events), "Hi");
  assert.deepEqual(callsOf(events), [{ id: "c1", name: "look", arguments: "{}" }]);
  assert.deepEqual(events.at(-1), {
    type: "finish",
    finish_reason: "tool_calls",
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
    model: "m",
  });
});

async function collectWhole(provider: Provider) {
  const events: ProviderEvent[] = [];
  for await (const batch of provider.stream(REQUEST, { signal: NEVER, whole: true })) events.push(...batch);
  return events;
}

test("a reply nobody reads along is asked for in one piece, and says the same", async (t) => {
  const { upstream, provider } = await start(t);
  const whole = await collectWhole(provider);
  assert.equal(textOf(whole), "Hello from upstream");
  assert.deepEqual(whole.at(-1), (await collect(provider)).at(-1));
  const [asked, streamed] = upstream.requests.map(({ json }) => json as Record<string, unknown>);
  assert.deepEqual([asked?.["stream"], asked?.["stream_options"]], [false, undefined]);
  assert.deepEqual([streamed?.["stream"], streamed?.["stream_options"]], [true, { include_usage: true }]);
  assert.equal(upstream.requests[0]?.headers["accept"], "application/json");
});

test("a server that streams though it was asked for one piece is read all the same, under any name", async (t) => {
  const chunks = [toDelta({ content: "one " }), toDelta({ content: "two" }), toDelta({}, "stop"), USAGE_CHUNK];
  const body = `${chunks.map(toSse).join("")}data: [DONE]\n\n`;
  const { provider } = await start(t, { kind: "chunks", chunks }, {
    kind: "raw",
    body,
    contentType: "application/json",
  });
  for (let i = 0; i < 2; i++) assert.equal(textOf(await collectWhole(provider)), "one two");
});

test("a reply in one piece that is cut off, empty, no message or too long is an honest error", async (t) => {
  const long = `{"choices":[{"message":{"content":"${"x".repeat(33 * 1024 * 1024)}"}}]}`;
  const cases: readonly (readonly [UpstreamReply, RegExp])[] = [
    [{ kind: "raw", body: '{"choices":[{"mess', contentType: "application/json" }, /no JSON/],
    [{ kind: "raw", body: "", contentType: "application/json" }, /empty/],
    [{ kind: "json", body: { choices: [] } }, /no message/],
    [{ kind: "json", body: { error: { message: "Out of memory" } } }, /Out of memory/],
    [{ kind: "raw", body: long, contentType: "application/json" }, /longer than 33554432 bytes/],
  ];
  for (const [reply, message] of cases) {
    const { provider } = await start(t, reply);
    await assert.rejects(
      collectWhole(provider),
      (error) => error instanceof ProviderError && message.test(error.message),
    );
  }
});

test("a reply in one piece may be silent five times as long, since its head comes last", async (t) => {
  const clock = createFakeClock();
  const upstream = await startOpenAiUpstream({ kind: "hang" });
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { base_url: upstream.baseUrl, timeout_secs: 30, max_retries: 0 }, { clock });
  let ended = false;
  const settled = collectWhole(providers.resolve("").provider).then(() => undefined, (error: unknown) => error)
    .finally(() => (ended = true));
  await until(() => upstream.requests.length > 0);
  await clock.advance(149_000);
  assert.equal(ended, false);
  await clock.advance(2_000);
  const told = await settled;
  assert.ok(told instanceof ProviderError && told.code === "provider_timeout", String(told));
  assert.equal(clock.pending(), 0);
});

const tool = (...calls: unknown[]) => toDelta({ tool_calls: calls });
const END = [toDelta({}, "tool_calls"), USAGE_CHUNK];

interface Quirk {
  readonly name: string;
  readonly chunks: readonly unknown[];
  readonly done?: boolean;
  readonly notices: readonly string[];
  readonly calls?: readonly { name: string; arguments: string }[];
  readonly text?: string;
  readonly reason?: string;
}

const QUIRKS: readonly Quirk[] = [
  {
    name: "a tool call without id or index",
    chunks: [tool({ function: { name: "a", arguments: "{" } }), tool({ function: { arguments: "}" } }), ...END],
    notices: ["tool_call_without_index", "tool_call_without_id"],
    calls: [{ name: "a", arguments: "{}" }],
  },
  {
    name: "arguments as an object",
    chunks: [tool({ index: 0, id: "x", function: { name: "a", arguments: { b: 1 } } }), ...END],
    notices: ["tool_call_arguments_not_text"],
    calls: [{ name: "a", arguments: '{"b":1}' }],
  },
  {
    name: "two calls under one index",
    chunks: [
      tool({ index: 0, id: "x", function: { name: "a", arguments: "{}" } }),
      tool({ index: 0, id: "y", function: { name: "b", arguments: "{}" } }),
      ...END,
    ],
    notices: ["tool_call_index_shared"],
    calls: [{ name: "a", arguments: "{}" }, { name: "b", arguments: "{}" }],
  },
  {
    name: "the name in every part",
    chunks: [
      tool({ index: 0, id: "x", function: { name: "a", arguments: '{"b"' } }),
      tool({ index: 0, id: "x", function: { name: "a", arguments: ":1}" } }),
      ...END,
    ],
    notices: ["tool_call_name_repeated"],
    calls: [{ name: "a", arguments: '{"b":1}' }],
  },
  {
    name: "an empty text after the arguments",
    chunks: [
      tool({ index: 0, id: "x", function: { name: "a", arguments: "{}" } }),
      tool({ index: 0, function: { arguments: '""' } }),
      ...END,
    ],
    notices: ["tool_call_arguments_repeated"],
    calls: [{ name: "a", arguments: "{}" }],
  },
  {
    name: "the arguments said twice",
    chunks: [
      tool({ index: 0, id: "x", function: { name: "a", arguments: '{"b":' } }),
      tool({ index: 0, function: { arguments: '"}{"}' } }),
      tool({ index: 0, function: { arguments: '{"b":"}{"}' } }),
      ...END,
    ],
    notices: ["tool_call_arguments_repeated"],
    calls: [{ name: "a", arguments: '{"b":"}{"}' }],
  },
  {
    name: "the call said twice, in parts and then whole",
    chunks: [
      tool({ index: 0, id: "x", function: { name: "a", arguments: '{"b":1}' } }),
      toChunk([{
        index: 0,
        delta: { tool_calls: [{ id: "x", type: "function", function: { name: "a", arguments: '{"b":1}' } }] },
        finish_reason: "tool_calls",
      }]),
      USAGE_CHUNK,
    ],
    notices: ["tool_call_without_index", "tool_call_name_repeated", "tool_call_arguments_repeated"],
    calls: [{ name: "a", arguments: '{"b":1}' }],
  },
  {
    name: "an empty object in the place of the arguments that follow",
    chunks: [
      tool({ index: 0, id: "x", function: { name: "a", arguments: "{}" } }),
      tool({ index: 0, function: { arguments: '{"b"' } }),
      tool({ index: 0, function: { arguments: ":1}\n" } }),
      ...END,
    ],
    notices: [],
    calls: [{ name: "a", arguments: '{"b":1}' }],
  },
  {
    name: "parts of a call without its name",
    chunks: [toDelta({ content: "x" }), tool({ index: 0, function: { arguments: "{}" } }), ...END],
    notices: ["tool_call_lost"],
    calls: [],
    text: "x",
    reason: "stop",
  },
  {
    name: "arguments that are no JSON are passed on",
    chunks: [tool({ index: 0, id: "x", function: { name: "a", arguments: '{"b":' } }), ...END],
    notices: ["tool_call_arguments_broken"],
    calls: [{ name: "a", arguments: '{"b":' }],
  },
  {
    name: 'the finish reason "stop" after a tool call',
    chunks: [tool({ index: 0, id: "x", function: { name: "a", arguments: "{}" } }), toDelta({}, "stop"), USAGE_CHUNK],
    notices: ["finish_reason_mended"],
    calls: [{ name: "a", arguments: "{}" }],
  },
  {
    name: "no finish reason",
    chunks: [toDelta({ content: "x" }), USAGE_CHUNK],
    notices: ["finish_reason_missing"],
    text: "x",
    reason: "stop",
  },
  {
    name: "a finish reason that every object has",
    chunks: [toDelta({ content: "x" }, "constructor"), USAGE_CHUNK],
    notices: ["finish_reason_unknown"],
    text: "x",
    reason: "stop",
  },
  {
    name: "z.ai's finish reason of a full window",
    chunks: [toDelta({ content: "x" }), toDelta({}, "model_context_window_exceeded"), USAGE_CHUNK],
    notices: [],
    text: "x",
    reason: "length",
  },
  {
    name: "z.ai's finish reason of a filter",
    chunks: [toDelta({ content: "x" }), toDelta({}, "sensitive"), USAGE_CHUNK],
    notices: [],
    text: "x",
    reason: "content_filter",
  },
  {
    name: "usage in the choice, as Kimi gives it",
    chunks: [
      toDelta({ content: "x" }),
      toChunk([{
        index: 0,
        delta: {},
        finish_reason: "stop",
        usage: { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15, cached_tokens: 7 },
      }]),
    ],
    notices: [],
    text: "x",
    reason: "stop",
  },
  {
    name: "no usage",
    chunks: [toDelta({ content: "x" }, "stop")],
    notices: ["usage_missing"],
    text: "x",
    reason: "stop",
  },
  {
    name: "an empty reply",
    chunks: [toDelta({ role: "assistant", content: "" }), toDelta({}, "stop"), USAGE_CHUNK],
    notices: ["empty_reply"],
    text: "",
    reason: "stop",
  },
  {
    name: "an end without [DONE] after the finish reason",
    chunks: [toDelta({ content: "x" }), toDelta({}, "length"), USAGE_CHUNK],
    done: false,
    notices: [],
    text: "x",
    reason: "length",
  },
  {
    name: "announced tool calls that never came",
    chunks: [toDelta({ content: "x" }), ...END],
    notices: ["tool_call_lost"],
    text: "x",
    reason: "stop",
  },
  {
    name: "a legacy function call",
    chunks: [toDelta({ function_call: { name: "a", arguments: "{}" } }), toDelta({}, "function_call"), USAGE_CHUNK],
    notices: ["tool_call_without_id"],
    calls: [{ name: "a", arguments: "{}" }],
  },
];

for (const quirk of QUIRKS) {
  test(`quirk mended and reported: ${quirk.name}`, async (t) => {
    const { provider } = await start(t, { kind: "chunks", chunks: quirk.chunks, done: quirk.done ?? true });
    const events = await collect(provider);
    assert.deepEqual(noticesOf(events), quirk.notices);
    assert.deepEqual(
      callsOf(events).map(({ name, arguments: text }) => ({ name, arguments: text })),
      quirk.calls ?? [],
    );
    assert.ok(callsOf(events).every(({ id }) => (id ?? "") !== ""));
    assert.equal(textOf(events), quirk.text ?? "");
    const last = events.at(-1);
    assert.equal(last?.type === "finish" ? last.finish_reason : undefined, quirk.reason ?? "tool_calls");
    assert.equal(events.filter(({ type }) => type === "finish").length, 1);
  });
}

test("reasoning under either name becomes reasoning deltas", async (t) => {
  const chunks = [
    toDelta({ reasoning_content: "a" }),
    toDelta({ reasoning: "b" }),
    toDelta({ content: "c" }, "stop"),
    USAGE_CHUNK,
  ];
  const { provider } = await start(t, { kind: "chunks", chunks });
  const events = await collect(provider);
  assert.deepEqual(events.slice(0, 3), [
    { type: "reasoning_delta", delta: "a" },
    { type: "reasoning_delta", delta: "b" },
    { type: "text_delta", delta: "c" },
  ]);
});

test("a server that leaves out the empty line between events is read all the same", async (t) => {
  const lines = [toDelta({ content: "x" }), toDelta({}, "stop"), USAGE_CHUNK].map((chunk) =>
    `data: ${JSON.stringify(chunk)}\n`
  );
  const { provider } = await start(t, { kind: "raw", body: `${lines.join("")}data: [DONE]\n\n` });
  assert.equal(textOf(await collect(provider)), "x");
});

interface Failing {
  readonly name: string;
  readonly reply: UpstreamReply;
  readonly code: string;
  readonly status?: number;
  readonly says?: RegExp;
}

const error = (message: string, code?: string, param?: string) => ({ error: { message, code, param } });
const FAILURES: readonly Failing[] = [
  {
    name: "400",
    reply: { kind: "status", status: 400, body: error("Bad temperature", "bad", "temperature") },
    code: "provider_rejected",
    status: 400,
    says: /Bad temperature/,
  },
  { name: "413", reply: { kind: "status", status: 413 }, code: "provider_rejected", status: 413 },
  {
    name: "422 of FastAPI",
    reply: { kind: "status", status: 422, body: { detail: [{ loc: ["body"] }] } },
    code: "provider_rejected",
    status: 422,
    says: /loc/,
  },
  {
    name: "404 of a path",
    reply: { kind: "status", status: 404, body: "nothing here" },
    code: "provider_rejected",
    status: 404,
  },
  {
    name: "404 of a model",
    reply: { kind: "status", status: 404, body: error('model "x" not found, try pulling it first') },
    code: "model_not_found",
    status: 404,
  },
  {
    name: "400 with model_not_found",
    reply: { kind: "status", status: 400, body: error("No", "model_not_found") },
    code: "model_not_found",
    status: 404,
  },
  {
    name: "401 that repeats the key",
    reply: { kind: "status", status: 401, body: error(`Bad key ${KEY}`) },
    code: "provider_error",
    status: 401,
    says: /UP_KEY/,
  },
  { name: "403", reply: { kind: "status", status: 403 }, code: "provider_error", status: 403 },
  {
    name: "500 that repeats the key",
    reply: { kind: "status", status: 500, body: error(`Failed with ${KEY}`) },
    code: "provider_error",
    status: 500,
    says: /\[redacted\]/,
  },
  { name: "504", reply: { kind: "status", status: 504 }, code: "provider_timeout", status: 504 },
  {
    name: "a redirect",
    reply: { kind: "status", status: 302, headers: { location: "http://evil.test/" } },
    code: "provider_error",
    status: 302,
    says: /redirects \(302\) to "http:\/\/evil\.test\/"/,
  },
  {
    name: "a compressed reply",
    reply: { kind: "status", status: 200, headers: { "content-encoding": "gzip" } },
    code: "provider_error",
    says: /compressed/,
  },
  {
    name: "a web page",
    reply: { kind: "raw", body: "<html>", contentType: "text/html" },
    code: "provider_error",
    says: /web page/,
  },
  {
    name: "an error inside a 200 stream",
    reply: { kind: "chunks", chunks: [error("Out of memory")] },
    code: "provider_error",
    says: /Out of memory/,
  },
  {
    name: "a rate limit inside a 200 stream",
    reply: { kind: "chunks", chunks: [{ error: { message: "Slow down", code: 429 } }] },
    code: "provider_rate_limited",
    status: 429,
  },
  {
    name: "a refusal inside a 200 stream",
    reply: { kind: "chunks", chunks: [{ error: { message: "Bad temperature", code: 400 } }] },
    code: "provider_rejected",
    status: 400,
  },
  {
    name: "an error inside a 200 as plain JSON",
    reply: { kind: "json", body: { error: "model crashed" } },
    code: "provider_error",
    says: /model crashed/,
  },
  {
    name: "a finish reason that is a failure of z.ai's network",
    reply: { kind: "chunks", chunks: [toDelta({ content: "x" }), toDelta({}, "network_error"), USAGE_CHUNK] },
    code: "provider_error",
    says: /network_error/,
  },
  {
    name: "a finish reason that is a failure of DeepSeek's machines",
    reply: {
      kind: "json",
      body: { choices: [{ message: { content: null }, finish_reason: "insufficient_system_resource" }] },
    },
    code: "provider_error",
    says: /insufficient_system_resource/,
  },
  { name: "plain JSON that is no message", reply: { kind: "json", body: { hello: 1 } }, code: "provider_error" },
  { name: "nothing at all", reply: { kind: "raw", body: "" }, code: "provider_error", says: /empty/ },
  { name: "only [DONE]", reply: { kind: "raw", body: "data: [DONE]\n\n" }, code: "provider_error", says: /empty/ },
  { name: "garbage", reply: { kind: "raw", body: "\u0000\u0001 garbage \n\n more" }, code: "provider_error" },
  {
    name: "garbage in an event",
    reply: { kind: "raw", body: "data: {nope\n\n" },
    code: "provider_error",
    says: /no JSON/,
  },
  { name: "a number in an event", reply: { kind: "raw", body: "data: 7\n\n" }, code: "provider_error" },
  {
    name: "half an event",
    reply: { kind: "raw", body: `${toSse(toDelta({ content: "x" }))}data: {"choi` },
    code: "provider_error",
  },
  {
    name: "a clean end in the middle",
    reply: { kind: "chunks", chunks: [toDelta({ content: "x" })], done: false },
    code: "provider_error",
    says: /before the reply was complete/,
  },
  {
    name: "a death in the middle",
    reply: { kind: "die", chunks: ["x"] },
    code: "provider_error",
    says: /middle of its reply/,
  },
  { name: "a reset before the reply", reply: { kind: "reset" }, code: "provider_error", says: /before its reply/ },
  { name: "bytes that are not HTTP", reply: { kind: "not_http" }, code: "provider_error" },
  {
    name: "a giant line",
    reply: { kind: "giant_line", bytes: 33 * 1024 * 1024 },
    code: "provider_error",
    says: /longer than 33554432 bytes/,
  },
];

for (const failing of FAILURES) {
  test(`an honest error: ${failing.name}`, async (t) => {
    const told = await failure(t, failing.reply);
    assert.equal(told.code, failing.code, told.message);
    if (failing.status !== undefined) assert.equal(told.status, failing.status);
    if (failing.says !== undefined) assert.match(told.message, failing.says);
  });
}

test("an error inside a stream has the status that its code or its type says, else none", async (t) => {
  for (
    const [told, status] of [
      [{ code: 399 }, undefined],
      [{ code: 599 }, 599],
      [{ code: 600 }, undefined],
      [{ code: "503" }, 503],
      [{ code: "busy" }, undefined],
      [{ code: "busy", type: "overloaded_error" }, 529],
    ] as const
  ) {
    const error = { message: "It failed", ...told };
    const failed = await failure(t, { kind: "chunks", chunks: [{ error }] });
    assert.deepEqual([failed.status, failed.code, failed.retryable], [status, "provider_error", true], `${told.code}`);
  }
});

test("a refusal keeps the upstream's code and param", async (t) => {
  const told = await failure(t, { kind: "status", status: 400, body: error("Bad", "bad_value", "temperature") });
  assert.deepEqual([told.upstreamCode, told.param, told.retryable], ["bad_value", "temperature", false]);
});

test("429 keeps its Retry-After", async (t) => {
  const told = await failure(t, { kind: "status", status: 429, headers: { "retry-after": "17" } });
  assert.deepEqual([told.code, told.retryAfterSeconds, told.retryable], ["provider_rate_limited", 17, true]);
});

test("an error body above 64 KiB is cut", async (t) => {
  const told = await failure(t, { kind: "status", status: 400, body: "x".repeat(200_000) });
  assert.equal(told.code, "provider_rejected");
  assert.ok(told.message.length < 700);
});

test("text before an error is given first", async (t) => {
  const { provider } = await start(t, { kind: "die", chunks: ["one", "two"] });
  const events: unknown[] = [];
  await assert.rejects(async () => {
    for await (const batch of provider.stream(REQUEST, { signal: NEVER })) events.push(...batch);
  }, ProviderError);
  assert.deepEqual(events, [{ type: "text_delta", delta: "one" }, { type: "text_delta", delta: "two" }]);
});

test("a refused connection is a provider error that may pass", async (t) => {
  const { providers } = await setUp(t, { base_url: `http://127.0.0.1:${await freePort()}/v1` });
  const told = await errorOf(providers.resolve("").provider);
  assert.deepEqual([told.code, told.retryable], ["provider_error", true]);
  assert.match(told.message, /refused/);
});

for (const reply of [{ kind: "hang" }, { kind: "stall", chunks: ["x"] }] as const) {
  test(`silence is a timeout by the clock: ${reply.kind}`, async (t) => {
    const clock = createFakeClock();
    const upstream = await startOpenAiUpstream(reply);
    t.after(() => upstream.close());
    const { providers } = await setUp(t, { base_url: upstream.baseUrl, timeout_secs: 30 }, { clock });
    const iterator = providers.resolve("").provider.stream(REQUEST, { signal: NEVER })[Symbol.asyncIterator]();
    if (reply.kind === "stall") assert.equal((await iterator.next()).done, false);
    const next = iterator.next();
    const settled = next.then(() => undefined, (error: unknown) => error);
    await until(() => upstream.requests.length > 0);
    await clock.advance(31_000);
    await clock.advance(31_000);
    const told = await settled;
    assert.ok(told instanceof ProviderError);
    assert.equal(told.code, "provider_timeout");
    assert.equal((await upstream.requests[0]?.closed)?.complete, false);
    assert.equal(clock.pending(), 0);
  });
}

for (const reply of [{ kind: "hang" }, { kind: "stall", chunks: ["x"] }] as const) {
  test(`an abort ends the upstream request at once: ${reply.kind}`, async (t) => {
    const { upstream, provider } = await start(t, reply);
    const controller = new AbortController();
    const iterator = provider.stream(REQUEST, { signal: controller.signal })[Symbol.asyncIterator]();
    if (reply.kind === "stall") await iterator.next();
    const next = iterator.next();
    await until(() => upstream.requests.length > 0);
    controller.abort(new CancelError("client_gone"));
    await assert.rejects(next, (error) => error instanceof CancelError && error.reason === "client_gone");
    assert.equal((await upstream.requests[0]?.closed)?.complete, false);
  });
}

test("leaving the iteration early ends the upstream request at once", async (t) => {
  const { upstream, provider } = await start(t, { kind: "stall", chunks: ["x"] });
  for await (const _ of provider.stream(REQUEST, { signal: NEVER })) break;
  assert.equal((await upstream.requests[0]?.closed)?.complete, false);
});

test("a signal that was aborted before sends nothing", async (t) => {
  const { upstream, provider } = await start(t);
  await assert.rejects(collect(provider, {}, AbortSignal.abort(new CancelError("shutdown"))), CancelError);
  assert.equal(upstream.requests.length, 0);
});

test("chunks beyond the first choice are not mixed in", async (t) => {
  const two = toChunk([{ index: 0, delta: { content: "a" } }, { index: 1, delta: { content: "b" } }]);
  const { provider } = await start(t, { kind: "chunks", chunks: [two, toDelta({}, "stop"), USAGE_CHUNK] });
  assert.equal(textOf(await collect(provider)), "a");
});

test("a reply that has begun and says nothing yet is told once, by an empty array", async (t) => {
  const { provider } = await start(t, { kind: "stall", chunks: [""] });
  const iterator = provider.stream(REQUEST, { signal: NEVER })[Symbol.asyncIterator]();
  assert.deepEqual(await iterator.next(), { done: false, value: [] });
  const settled = Promise.race([iterator.next(), new Promise((resolve) => setImmediate(() => resolve("waiting")))]);
  assert.equal(await settled, "waiting");
  await iterator.return?.();
});

const PICTURE = { sha256: "ab", media_type: "image/png", bytes: 3, width: 8, height: 6, saved_as: "a.png" } as const;
const WITH_PICTURES: readonly Message[] = [
  {
    role: "tool",
    tool_call_id: "a",
    content: "One",
    pictures: [PICTURE],
    frame: { open: "<untrusted x>", close: "</untrusted x>" },
  },
  { role: "tool", tool_call_id: "b", content: "Two", pictures: [PICTURE, { ...PICTURE, sha256: "old" }] },
  { role: "tool", tool_call_id: "c", content: "Three" },
  { role: "assistant", content: "Seen" },
  { role: "user", content: "Go on" },
];

async function sentPictures(context: TestContext, vision: "auto" | "on", model: string): Promise<unknown> {
  const upstream = await startOpenAiUpstream();
  context.after(() => upstream.close());
  const { providers } = await setUp(context, { base_url: upstream.baseUrl, vision });
  const pictures = new Map([[PICTURE.sha256, "AAAA"]]);
  await collect(providers.resolve("").provider, { model, messages: WITH_PICTURES, pictures });
  return (upstream.requests[0]?.json as { readonly messages?: unknown }).messages;
}

test("pictures of results follow all results of their turn, in their envelope", async (t) => {
  const image = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };
  assert.deepEqual(await sentPictures(t, "on", "upstream-model"), [
    { role: "tool", tool_call_id: "a", content: "One" },
    {
      role: "tool",
      tool_call_id: "b",
      content:
        'Two\n[Postern] A picture (PNG, 8 x 6 pixels, saved as "a.png") is not shown: it is too old, and not kept any more.',
    },
    { role: "tool", tool_call_id: "c", content: "Three" },
    {
      role: "user",
      content: [
        { type: "text", text: '[Postern] Pictures of the result of the tool call "a":\n<untrusted x>' },
        image,
        { type: "text", text: "</untrusted x>" },
        { type: "text", text: '[Postern] Pictures of the result of the tool call "b":' },
        image,
      ],
    },
    { role: "assistant", content: "Seen" },
    { role: "user", content: "Go on" },
  ]);
});

test("a model that does not see is told of pictures in words", async (t) => {
  const line =
    '[Postern] A picture (PNG, 8 x 6 pixels, saved as "a.png") is not shown: this model is not given pictures.';
  assert.deepEqual(await sentPictures(t, "auto", "upstream-model"), [
    { role: "tool", tool_call_id: "a", content: `One\n${line}` },
    { role: "tool", tool_call_id: "b", content: `Two\n${line}\n${line}` },
    { role: "tool", tool_call_id: "c", content: "Three" },
    { role: "assistant", content: "Seen" },
    { role: "user", content: "Go on" },
  ]);
});
