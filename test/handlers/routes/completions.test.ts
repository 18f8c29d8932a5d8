import type { ToolInfo } from "../../../lib/base/records/tool_info.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { chatCompletions } from "../../../handlers/handlers.ts";
import { CancelError } from "../../../lib/base/cancel.ts";
import { type HttpError, ProviderError, refuse } from "../../../lib/base/errors.ts";
import type { AgentEventBody } from "../../../lib/base/records/agent_event.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { accepted, jsonOf } from "../../support/json_of.ts";
import { answer, createScriptedRuns, type ScriptStep } from "../../support/scripted_runs.ts";
import { createTestRouter } from "../../support/test_router.ts";

const USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
const DONE: ScriptStep = [{ type: "done", finish_reason: "stop", usage: USAGE }];

interface AskOptions {
  readonly clock?: FakeClock;
  /** false: no agent is configured */
  readonly agent?: boolean;
  /** Names of enabled tools of the agent */
  readonly tools?: readonly string[];
  readonly signal?: AbortSignal;
  readonly script?: readonly ScriptStep[];
  readonly headers?: Record<string, string>;
  readonly hadEffect?: boolean;
  readonly refuse?: () => Error;
}

function ask(body: unknown, options: AskOptions = {}) {
  const clock = options.clock ?? createFakeClock();
  const runs = createScriptedRuns({
    clock,
    script: () => options.script ?? answer("Hello there"),
    ...(options.hadEffect === undefined ? {} : { hadEffect: options.hadEffect }),
    ...(options.refuse === undefined ? {} : { refuse: options.refuse }),
  });
  const request = new Request("http://gateway.test/v1/chat/completions", {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "x-request-id": "req_test",
      authorization: "Bearer token_chat",
      ...options.headers,
    },
    body: JSON.stringify(body),
    signal: options.signal ?? null,
  });
  // Repeats are the router's
  const isKeyed = request.headers.has("idempotency-key");
  const agent = { runs, providers: undefined as never };
  const complete = isKeyed ? createTestRouter({ agent }).router.fetch : chatCompletions({
    agent: options.agent === false ? undefined : agent,
    tools: { get: (name) => options.tools?.includes(name) ? { name, enabled: true } as ToolInfo : undefined },
    identify: () => ({ identity: { tokenId: "tok_1", scopes: ["chat"] } }),
    kit: { clock, log: SILENT },
  });
  return { clock, runs, response: Promise.resolve(complete(request)) };
}

const hello = { messages: [{ role: "user", content: "hi" }] };

test("a completion is one JSON object in the chat-completions shape", async () => {
  const { response } = ask({ ...hello, model: 'test/"one"\\\n' });
  const reply = await response;
  assert.equal(reply.status, 200);
  assert.equal(reply.headers.get("content-type"), "application/json");
  const { id, created, ...body } = await jsonOf(reply);
  assert.equal(id, "chatcmpl-1", "that of its run, run_1");
  assert.equal(created, Date.UTC(2026, 0, 1) / 1000);
  assert.deepEqual(body, {
    object: "chat.completion",
    model: 'test/"one"\\\n',
    choices: [{
      index: 0,
      message: { role: "assistant", content: "Hello there", refusal: null },
      logprobs: null,
      finish_reason: "stop",
    }],
    usage: USAGE,
  });
});

test("calls to the client's tools end the reply with their ids, names and whole arguments", async () => {
  const script: ScriptStep[] = [
    [{ type: "client_tool_call_delta", index: 0, call_id: "c1", name: "add", arguments_delta: '{"a"' }],
    [{ type: "client_tool_call_delta", index: 1, call_id: "c2", name: "sub", arguments_delta: "{}" }],
    [{ type: "client_tool_call_delta", index: 0, call_id: "c1", arguments_delta: ":1}" }],
    [{ type: "done", finish_reason: "tool_calls", usage: USAGE }],
  ];
  const [choice] = (await jsonOf(ask(hello, { script }).response)).choices;
  assert.equal(choice.finish_reason, "tool_calls");
  assert.deepEqual(choice.message, {
    role: "assistant",
    content: null,
    refusal: null,
    tool_calls: [
      { id: "c1", type: "function", function: { name: "add", arguments: '{"a":1}' } },
      { id: "c2", type: "function", function: { name: "sub", arguments: "{}" } },
    ],
  });
});

test("reasoning and a refusal have their own fields", async () => {
  const script: ScriptStep[] = [
    [{ type: "reasoning_delta", delta: "hm" }, { type: "refusal_delta", delta: "no" }],
    [{ type: "done", finish_reason: "content_filter", usage: USAGE }],
  ];
  const [choice] = (await jsonOf(ask(hello, { script }).response)).choices;
  assert.deepEqual(choice.message, { role: "assistant", content: null, reasoning_content: "hm", refusal: "no" });
  assert.equal(choice.finish_reason, "content_filter");
});

test("an interrupted turn that is asked again counts once, whether its begin and its end were seen or not", async () => {
  const one: ScriptStep = [
    { type: "turn_start", turn: 1 },
    { type: "text_delta", delta: "one " },
    { type: "turn_end", turn: 1, usage: USAGE },
  ];
  const two: ScriptStep = [{ type: "turn_start", turn: 2 }, { type: "text_delta", delta: "tw" }];
  const again: ScriptStep = [{ type: "turn_restart", turn: 2, from_seq: 4 }, { type: "text_delta", delta: "two" }];
  const end: ScriptStep = [{ type: "turn_end", turn: 2, usage: USAGE }];
  for (const script of [[one, two, again, DONE], [one, again, DONE], [one, two, end, again, DONE]]) {
    const reply = await jsonOf(ask(hello, { script }).response);
    assert.equal(reply.choices[0].message.content, "one two");
  }
});

test("the run gets the messages, the parameters and the client's tools; null equals absent", async () => {
  const { runs, response } = ask({
    model: null,
    messages: [
      { role: "system", content: "be brief" },
      { role: "developer", content: [{ type: "text", text: "really" }] },
      {
        role: "user",
        name: "ann",
        content: [{ type: "text", text: "look" }, {
          type: "image_url",
          image_url: { url: "data:image/png;base64,AA", detail: null },
        }],
      },
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "c1", type: "function", function: { name: "add", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "c1", content: "3" },
    ],
    temperature: 0.5,
    top_p: null,
    max_tokens: 10,
    stop: ["x"],
    n: 1,
    stream: null,
    tools: [{ type: "function", function: { name: "add", parameters: { type: "object" }, strict: true } }],
    tool_choice: { type: "function", function: { name: "add" } },
    parallel_tool_calls: false,
    metadata: { a: "b" },
    response_format: { type: "json_object" },
  });
  const reply = await response;
  assert.equal(reply.status, 200);
  const { by, reader, ...request } = runs.started[0]?.request ?? assert.fail("no run was started");
  assert.deepEqual(by, {
    caller: { via: "http", tokenId: "tok_1", scopes: ["chat"] },
    requestId: "req_test",
    after: undefined,
  });
  assert.equal(reader?.whole, true);
  assert.deepEqual(request, {
    kind: "chat",
    model: undefined,
    messages: [
      { role: "system", content: "be brief" },
      { role: "developer", content: [{ type: "text", text: "really" }] },
      {
        role: "user",
        content: [{ type: "text", text: "look" }, {
          type: "image_url",
          image_url: { url: "data:image/png;base64,AA" },
        }],
        name: "ann",
      },
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "c1", type: "function", function: { name: "add", arguments: "{}" } }],
      },
      { role: "tool", content: "3", tool_call_id: "c1" },
    ],
    durable: false,
    claim: undefined,
    agent: undefined,
    conversationId: undefined,
    agentTools: "configured",
    wishes: {
      clientTools: [{ name: "add", description: "", parameters: { type: "object" }, strict: true }],
      toolChoice: { name: "add" },
      parallelToolCalls: false,
      parameters: {
        temperature: 0.5,
        max_tokens: 10,
        stop: ["x"],
        metadata: { a: "b" },
        response_format: { type: "json_object" },
      },
    },
  });
  assert.equal(reply.headers.get("x-postern-ignored"), null);
});

test("fields that are not honoured are named, in the body and in messages, and never handed on", async () => {
  const { response, runs } = ask({
    messages: [{ role: "user", content: "hi", cache_control: { type: "ephemeral" } }, {
      role: "assistant",
      content: "x",
      opaque: { openai: 1 },
    }],
    logit_bias: {},
    logprobs: null,
    stream_options: { include_usage: true },
  });
  const reply = await response;
  assert.equal(
    reply.headers.get("x-postern-ignored"),
    "logit_bias, stream_options, messages[].cache_control, messages[].opaque",
  );
  assert.deepEqual(runs.started[0]?.request.messages, [{ role: "user", content: "hi" }, {
    role: "assistant",
    content: "x",
  }]);
});

test("x-postern-tools: none turns the agent's tools off, another value is refused", async () => {
  const off = ask(hello, { headers: { "x-postern-tools": "none" } });
  assert.equal((await off.response).status, 200);
  assert.equal(off.runs.started[0]?.request.agentTools, "none");
  await assert.rejects(accepted(ask(hello, { headers: { "x-postern-tools": "all" } }).response), {
    code: "invalid_request",
    status: 400,
  });
});

test("an Idempotency-Key makes the work durable, so that a repeat finds it", async () => {
  const { runs, response } = ask(hello, { headers: { "idempotency-key": "k" } });
  await response;
  assert.equal(runs.started[0]?.request.durable, true);
});

test("fields that are not honoured are named wherever they stand", async () => {
  const { response } = ask({
    messages: [{
      role: "user",
      content: [
        { type: "text", text: "Look", cache_control: {} },
        { type: "image_url", image_url: { url: "https://example.test/a.png", size: 1 }, alt: "a", none: null },
      ],
    }],
    stream: true,
    stream_options: { include_usage: true, include_obfuscation: false },
    tools: [{ type: "function", defer: true, function: { name: "add", examples: [] } }],
  });
  assert.equal(
    (await response).headers.get("x-postern-ignored"),
    [
      "stream_options.include_obfuscation",
      "tools[].defer",
      "tools[].function.examples",
      "messages[].content[].cache_control",
      "messages[].content[].alt",
      "messages[].content[].image_url.size",
    ].join(", "),
  );
});

test("what the provider has nothing for is named too, in JSON and in a stream", async () => {
  const notice = { type: "notice", code: "parameter_ignored", message: "Left out", param: "seed" } as const;
  const [first, ...rest] = answer("Hi");
  const script = [[...(first as readonly AgentEventBody[]), notice], ...rest];
  for (const stream of [false, true]) {
    const { response } = ask({ ...hello, seed: 1, stream }, { script });
    assert.equal((await response).headers.get("x-postern-ignored"), "seed");
  }
});

test("a limit of -1 is none", async () => {
  const limits = { max_tokens: -1, max_completion_tokens: -1 };
  const { response, runs } = ask({ ...hello, ...limits, presence_penalty: -1, seed: -1 });
  assert.equal((await response).status, 200);
  assert.deepEqual(runs.started[0]?.request.wishes?.parameters, { presence_penalty: -1, seed: -1 });
});

test("a tool_choice without any tool is named as ignored", async () => {
  const headers = { "x-postern-tools": "none" };
  const { response } = ask({ ...hello, tool_choice: "required", parallel_tool_calls: false }, { headers });
  assert.equal((await response).headers.get("x-postern-ignored"), "tool_choice, parallel_tool_calls");
});

const REFUSED: readonly [name: string, body: unknown, param: string | null, code?: string][] = [
  ["no messages", {}, "messages"],
  ["empty messages", { messages: [] }, "messages"],
  ["messages that are text", { messages: "hi" }, "messages"],
  ["a body that is a list", [], null],
  ["a message that is null", { messages: [null] }, "messages[0]"],
  ["an unknown role", { messages: [{ role: "robot", content: "x" }] }, "messages[0].role"],
  ["the old function role", { messages: [{ role: "function", name: "f", content: "x" }] }, "messages[0].role"],
  ["a message without content", { messages: [{ role: "user" }] }, "messages[0].content"],
  ["content that is a number", { messages: [{ role: "user", content: 5 }] }, "messages[0].content"],
  ["a tool message without its call", { messages: [{ role: "tool", content: "x" }] }, "messages[0].tool_call_id"],
  ["an unknown part", { messages: [{ role: "user", content: [{ type: "hologram" }] }] }, "messages[0].content[0].type"],
  [
    "an image without a URL, deep in the third message",
    {
      messages: [...hello.messages, ...hello.messages, {
        role: "user",
        content: [{ type: "image_url", image_url: { url: 5 } }],
      }],
    },
    "messages[2].content[0].image_url.url",
  ],
  ["an image of the server's disk", {
    messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "file:///etc/passwd" } }] }],
  }, "messages[0].content[0].image_url.url"],
  ["a tool call with parsed arguments", {
    messages: [{
      role: "assistant",
      tool_calls: [{ id: "a", type: "function", function: { name: "x", arguments: {} } }],
    }],
  }, "messages[0].tool_calls[0].function.arguments"],
  ["a temperature out of range", { ...hello, temperature: 3 }, "temperature"],
  ["a temperature that is text", { ...hello, temperature: "hot" }, "temperature"],
  ["half a token", { ...hello, max_tokens: 0.5 }, "max_tokens"],
  ["no token at all", { ...hello, max_completion_tokens: 0 }, "max_completion_tokens"],
  ["a limit below none", { ...hello, max_tokens: -2 }, "max_tokens"],
  ["stream that is text", { ...hello, stream: "yes" }, "stream"],
  ["stop with a number", { ...hello, stop: ["a", 1] }, "stop[1]"],
  [
    "a tool with a bad name",
    { ...hello, tools: [{ type: "function", function: { name: "a b" } }] },
    "tools[0].function.name",
  ],
  ["a tool of another type", { ...hello, tools: [{ type: "custom", custom: { name: "x" } }] }, "tools[0].type"],
  ["two tools of one name", { ...hello, tools: [tool("a"), tool("b"), tool("a")] }, "tools[2].function.name"],
  [
    "a choice of a tool that is not there",
    { ...hello, tool_choice: { type: "function", function: { name: "zip" } } },
    "tool_choice.function.name",
  ],
  [
    "a choice without a name",
    { ...hello, tool_choice: { type: "function", function: {} } },
    "tool_choice.function.name",
  ],
  ["metadata that is a list", { ...hello, metadata: ["a"] }, "metadata"],
  ["metadata with a number", { ...hello, metadata: { a: 1 } }, "metadata.a"],
  ["more than one choice", { ...hello, n: 2 }, "n", "unsupported_parameter"],
  ["legacy functions", { ...hello, functions: [{ name: "x" }] }, "functions", "unsupported_parameter"],
  ["a legacy function_call", { ...hello, function_call: "auto" }, "function_call", "unsupported_parameter"],
];

function tool(name: string) {
  return { type: "function", function: { name } };
}

for (const [name, body, param, code = "invalid_request"] of REFUSED) {
  test(`${name} is a 400 that names ${param}`, async () => {
    const { response, runs } = ask(body);
    await assert.rejects(accepted(response), (error: HttpError) => {
      assert.equal(error.status, 400);
      assert.equal(error.param, param);
      assert.equal(error.code, code);
      return true;
    });
    assert.equal(runs.started.length, 0);
  });
}

test("a refusal never repeats the value, which may be a secret", async () => {
  await assert.rejects(
    accepted(ask({ messages: [{ role: "user", content: "x" }], temperature: "sk-secret-value" }).response),
    (error: HttpError) => {
      assert.doesNotMatch(error.message, /secret/);
      return true;
    },
  );
});

test("a tool of the agent may be chosen by name", async () => {
  const choice = { ...hello, tool_choice: { type: "function", function: { name: "read_file" } } };
  assert.equal((await ask(choice, { tools: ["read_file"] }).response).status, 200);
  await assert.rejects(
    accepted(ask(choice, { tools: ["read_file"], headers: { "x-postern-tools": "none" } }).response),
    {
      code: "invalid_request",
    },
  );
});

test("without an agent it is 503 agent_unavailable", async () => {
  await assert.rejects(accepted(ask(hello, { agent: false }).response), { code: "agent_unavailable", status: 503 });
});

test("what the supervisor refuses is told as it is", async () => {
  const overloaded = refuse("overloaded", "Too many runs");
  await assert.rejects(accepted(ask(hello, { refuse: () => overloaded }).response), {
    code: "overloaded",
    status: 503,
  });
});

const provider = "test";
const FAILURES: readonly [name: string, script: readonly ScriptStep[], status: number, code: string][] = [
  [
    "a broken upstream",
    [{ throws: new ProviderError("provider_error", "Broke", { provider, status: 500 }) }],
    502,
    "provider_error",
  ],
  [
    "a silent upstream",
    [{ throws: new ProviderError("provider_timeout", "Slow", { provider }) }],
    504,
    "provider_timeout",
  ],
  [
    "an upstream's own limit",
    [{ throws: new ProviderError("provider_rate_limited", "Slow down", { provider, retryAfterSeconds: 7 }) }],
    429,
    "rate_limited",
  ],
  [
    "an unknown model",
    [{ throws: new ProviderError("model_not_found", "No such model", { provider }) }],
    404,
    "model_not_found",
  ],
  [
    "an error event after text",
    [[{ type: "text_delta", delta: "x" }], [{ type: "error", code: "provider_error", message: "Broke" }]],
    502,
    "provider_error",
  ],
  ["a shutdown", [[{ type: "error", code: "shutdown", message: "Shutting down" }]], 503, "shutting_down"],
  [
    "a loop that was stopped",
    [[{ type: "error", code: "loop_detected", message: "The same call again" }]],
    500,
    "loop_detected",
  ],
  ["events that stop without an end", [[{ type: "text_delta", delta: "x" }]], 500, "internal_error"],
];

for (const [name, script, status, code] of FAILURES) {
  test(`${name} is ${status} ${code} in a JSON reply`, async () => {
    const reply = await ask(hello, { script }).response;
    assert.equal(reply.status, status);
    assert.equal((await jsonOf(reply)).error.code, code);
  });
}

test("an error after a tool with an effect, or of a loop, tells the client not to retry", async () => {
  const script: ScriptStep[] = [[{ type: "error", code: "tool_failed", message: "Broke" }]];
  assert.equal((await ask(hello, { script, hadEffect: true }).response).headers.get("x-should-retry"), "false");
  assert.equal((await ask(hello, { script }).response).headers.get("x-should-retry"), null);
  const loop: ScriptStep[] = [[{ type: "error", code: "loop_detected", message: "The same call again" }]];
  assert.equal((await ask(hello, { script: loop }).response).headers.get("x-should-retry"), "false");
});

test("a client that goes away before the JSON reply cancels the run", async () => {
  const gone = new AbortController();
  const { runs, response, clock } = ask(hello, {
    script: [[{ type: "text_delta", delta: "x" }], "hang"],
    signal: gone.signal,
  });
  await clock.advance(1);
  gone.abort(new CancelError("client_gone"));
  await response;
  assert.deepEqual(runs.started[0]?.cancelled, ["client_gone"]);
  assert.equal(runs.active(), 0);
});

test("a durable run is not cancelled by its client's going", async () => {
  const gone = new AbortController();
  gone.abort(new CancelError("client_gone"));
  const { runs, response } = ask(hello, { signal: gone.signal, headers: { "idempotency-key": "k" } });
  assert.equal((await response).status, 200);
  assert.deepEqual(runs.started[0]?.cancelled, []);
});
