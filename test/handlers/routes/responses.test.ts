import type { ToolInfo } from "../../../lib/base/records/tool_info.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import {
  isUsualItem,
  isUsualTool,
  readResponseBody,
  responseSchema,
} from "../../../handlers/wire/responses/response_body.ts";
import { checkBody } from "../../../handlers/wire/check_body.ts";
import { responses } from "../../../handlers/handlers.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import type { AgentEventBody } from "../../../lib/base/records/agent_event.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { accepted } from "../../support/json_of.ts";
import { checkEvents, checkResponse } from "../../support/response_events.ts";
import { answer, createScriptedRuns, type ScriptStep } from "../../support/scripted_runs.ts";

const USAGE = {
  prompt_tokens: 3,
  completion_tokens: 2,
  total_tokens: 5,
  prompt_tokens_details: { cached_tokens: 1 },
  completion_tokens_details: { reasoning_tokens: 1 },
};
const DONE: AgentEventBody = { type: "done", finish_reason: "stop", usage: USAGE };

interface Asked {
  readonly script?: readonly ScriptStep[];
  readonly body?: Record<string, unknown>;
  readonly plain?: boolean;
}

function ask({ script = answer("Hello there"), body = {}, plain = true }: Asked) {
  const clock = createFakeClock();
  const runs = createScriptedRuns({ clock, script: () => script });
  const request = new Request("http://gateway.test/v1/responses", {
    method: "POST",
    headers: { "content-type": "application/json", ...(plain ? { "x-postern-tools": "none" } : {}) },
    body: JSON.stringify({ input: "hi", ...body }),
  });
  const respond = responses({
    agent: { runs },
    store: createMemoryStore(),
    tools: { get: (name) => name === "read_file" ? { name, enabled: true } as ToolInfo : undefined },
    identify: () => ({ identity: { tokenId: "tok_1", scopes: ["chat"] } }),
    kit: { clock, log: SILENT },
  });
  return { runs, response: respond(request) };
}

/** Returns what the run was started with, and the reply's header of fields that were not honoured. */
async function started(asked: Asked) {
  const { runs, response } = ask(asked);
  const reply = await response;
  assert.equal(reply.status, 200, await reply.clone().text());
  const request = runs.started[0]?.request ?? assert.fail("no run");
  return { request, ignored: reply.headers.get("x-postern-ignored") };
}

async function told(asked: Asked) {
  const streamed = checkEvents(await (await ask({ ...asked, body: { ...asked.body, stream: true } }).response).text());
  const whole = checkResponse(await (await ask(asked).response).json());
  return { ...streamed, whole };
}

async function refusal(body: Record<string, unknown>, plain = true) {
  const { runs, response } = ask({ body, plain });
  await assert.rejects(accepted(response), (error: { code: string; param: string; message: string }) => {
    assert.deepEqual(runs.started, []);
    Object.assign(refused, { code: error.code, param: error.param, message: error.message });
    return true;
  });
  return { ...refused };
}
const refused = { code: "", param: "", message: "" };

test("a text streams as one item with one part, and JSON is the response of the last event", async () => {
  const { events, response, whole } = await told({ script: answer("Hello there", USAGE) });
  assert.deepEqual(events.map(({ type }) => type), [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
  ]);
  assert.deepEqual(whole, response);
  assert.equal(response.status, "completed");
  assert.equal(response.store, false);
  assert.deepEqual(response.usage, {
    input_tokens: 3,
    input_tokens_details: { cached_tokens: 1 },
    output_tokens: 2,
    output_tokens_details: { reasoning_tokens: 1 },
    total_tokens: 5,
  });
});

test("reasoning, text, a refusal and calls are items in the order in which they came", async () => {
  const call = (index: number, more: object) => ({ type: "client_tool_call_delta" as const, index, ...more });
  const script: ScriptStep[] = [
    [{ type: "turn_start", turn: 1 }, { type: "reasoning_delta", delta: "Let me " }],
    [{ type: "reasoning_delta", delta: "think" }, { type: "text_delta", delta: "I look. " }],
    [{ type: "refusal_delta", delta: "Not that." }],
    [call(0, { call_id: "c1", name: "look", arguments_delta: "" }) as AgentEventBody],
    [call(1, { call_id: "c2", name: "edit", arguments_delta: '{"inp' }) as AgentEventBody],
    [call(0, { call_id: "c1", arguments_delta: '{"a":1}' }) as AgentEventBody],
    [call(1, { call_id: "c2", arguments_delta: 'ut":"*** Begin"}' }) as AgentEventBody],
    [call(2, { call_id: "c3", name: "files.open", arguments_delta: "{}" }) as AgentEventBody],
    [{ type: "turn_end", turn: 1, usage: USAGE }, { type: "done", finish_reason: "tool_calls", usage: USAGE }],
  ];
  const tools = [
    { type: "function", name: "look" },
    { type: "custom", name: "edit" },
    { type: "namespace", name: "files", description: "", tools: [{ type: "function", name: "open" }] },
  ];
  const { events, response, whole } = await told({ script, body: { tools, include: ["reasoning.encrypted_content"] } });
  assert.deepEqual(whole.output, response.output);
  const shown = response.output.map(({ id: _, ...item }) => item);
  const { encrypted_content: sealed, ...thought } = shown[0] as { encrypted_content?: string };
  assert.deepEqual([thought, ...shown.slice(1)], [
    {
      type: "reasoning",
      summary: [{ type: "summary_text", text: "Let me think" }],
      content: [{ type: "reasoning_text", text: "Let me think" }],
    },
    {
      type: "message",
      role: "assistant",
      status: "completed",
      content: [
        { type: "output_text", text: "I look. ", annotations: [], logprobs: [] },
        { type: "refusal", refusal: "Not that." },
      ],
    },
    { type: "function_call", call_id: "c1", name: "look", arguments: '{"a":1}', status: "completed" },
    { type: "custom_tool_call", call_id: "c2", name: "edit", input: "*** Begin", status: "completed" },
    { type: "function_call", call_id: "c3", name: "open", namespace: "files", arguments: "{}", status: "completed" },
  ]);
  const custom = events.filter(({ type }) => type.startsWith("response.custom_tool_call_input"));
  assert.deepEqual(custom.map((event) => "delta" in event ? event.delta : "input" in event && event.input), [
    "*** Begin",
    "*** Begin",
  ]);
  // Handed back untouched, the reasoning stands with the calls that it led to
  const { request } = await started({
    body: {
      input: [
        { role: "user", content: "hi" },
        ...response.output.map((item) => ({ ...item, summary: [], content: "content" in item ? item.content : [] })),
        { type: "function_call_output", call_id: "c1", output: "42" },
        { type: "custom_tool_call_output", call_id: "c2", output: [{ type: "input_text", text: "ok" }] },
        { type: "function_call_output", call_id: "c3", output: "open" },
      ],
      tools,
    },
  });
  assert.match(sealed ?? "", /^postern\./);
  const called = (id: string, name: string, given: string) => ({
    id,
    type: "function",
    function: { name, arguments: given },
  });
  assert.deepEqual(request.messages, [
    { role: "user", content: "hi" },
    {
      role: "assistant",
      content: "I look. ",
      refusal: "Not that.",
      tool_calls: [
        called("c1", "look", '{"a":1}'),
        called("c2", "edit", '{"input":"*** Begin"}'),
        called("c3", "files.open", "{}"),
      ],
      extra: { reasoning_content: "Let me think" },
    },
    { role: "tool", tool_call_id: "c1", content: "42" },
    { role: "tool", tool_call_id: "c2", content: "ok" },
    { role: "tool", tool_call_id: "c3", content: "open" },
  ]);
});

test("what is said in the middle of a call leaves the call whole", async () => {
  const call = (index: number, arguments_delta: string, name?: string): ScriptStep => [{
    ...{ type: "client_tool_call_delta", index, call_id: `c${index}`, arguments_delta },
    ...(name === undefined ? {} : { name }),
  }];
  const script: ScriptStep[] = [
    call(0, "", "one"),
    call(1, "{}", "two"),
    call(0, '{"x"'),
    [{ type: "text_delta", delta: "Hm" }],
    call(0, ":1}"),
    [{ type: "text_delta", delta: "m" }],
    [{ type: "reasoning_delta", delta: "I see" }],
    [{ type: "turn_end", turn: 1, usage: USAGE }, { type: "done", finish_reason: "tool_calls", usage: USAGE }],
  ];
  const { response, whole } = await told({ script });
  assert.deepEqual(whole.output, response.output);
  assert.deepEqual(response.output.map((item) => "arguments" in item ? [item.name, item.arguments] : item.type), [
    ["one", '{"x":1}'],
    ["two", "{}"],
    "message",
    "reasoning",
  ]);
});

test("a stream that fails ends what it began, and says why in response.failed", async () => {
  const failure: AgentEventBody = { type: "error", code: "provider_error", message: "It broke" };
  for (
    const begun of [
      { type: "text_delta" as const, delta: "Hel" },
      { type: "reasoning_delta" as const, delta: "Hm" },
      { type: "client_tool_call_delta" as const, index: 0, call_id: "c", name: "x", arguments_delta: "{" },
    ]
  ) {
    const { response: reply } = ask({ script: [[begun], [failure]], body: { stream: true } });
    const { events, response } = checkEvents(await (await reply).text());
    assert.equal(events.at(-1)?.type, "response.failed");
    assert.equal(response.status, "failed");
    assert.equal(response.completed_at, null);
    assert.deepEqual(response.error, { code: "provider_error", message: "It broke" });
  }
});

test("a stream whose events stop, or break off, fails too", async () => {
  for (const end of [[], [{ throws: new ProviderError("provider_error", "Gone", { provider: "x" }) }]]) {
    const { response } = ask({ script: [[{ type: "text_delta", delta: "Hel" }], ...end], body: { stream: true } });
    const { response: last } = checkEvents(await (await response).text());
    assert.equal(last.status, "failed");
    assert.equal("status" in (last.output[0] ?? {}) && (last.output[0] as { status: string }).status, "incomplete");
  }
});

test("an error before the first byte is the reply of any route", async () => {
  const script = [{ throws: new ProviderError("model_not_found", "No such model", { provider: "x" }) }];
  for (const stream of [true, false]) {
    const reply = await ask({ script, body: { stream } }).response;
    assert.equal(reply.status, 404);
    assert.equal((await reply.json() as { error: { code: string } }).error.code, "model_not_found");
  }
});

test("a limit and a filter end it as incomplete", async () => {
  for (
    const [finish_reason, reason] of [["length", "max_output_tokens"], ["content_filter", "content_filter"]] as const
  ) {
    const script: ScriptStep[] = [[{ type: "text_delta", delta: "Hel" }], [
      { ...DONE, finish_reason } as AgentEventBody,
    ]];
    const { events, response, whole } = await told({ script });
    assert.equal(events.at(-1)?.type, "response.incomplete");
    assert.deepEqual(response.incomplete_details, { reason });
    assert.deepEqual(whole, response);
    assert.deepEqual(response.output.map((item) => "status" in item && item.status), ["incomplete"]);
  }
});

test("the agent's own calls are shown where include asks for them, and never as calls of functions", async () => {
  const script: ScriptStep[] = [
    [{ type: "turn_start", turn: 1 }, { type: "text_delta", delta: "I read it." }],
    [{ type: "turn_end", turn: 1, usage: USAGE }],
    [{ type: "tool_start", call_id: "t1", tool: "read_file", input: { path: "a" } }],
    [{ type: "tool_end", call_id: "t1", tool: "read_file", output: "text", is_error: false, duration_ms: 1 }],
    [{ type: "turn_start", turn: 2 }, { type: "text_delta", delta: "Done" }],
    [{ type: "turn_end", turn: 2, usage: USAGE }, DONE],
  ];
  const quiet = await told({ script, plain: false });
  assert.deepEqual(quiet.response.output.map(({ type }) => type), ["message", "message"]);
  assert.deepEqual(quiet.whole.output, quiet.response.output);
  const shown = await told({ script, plain: false, body: { include: ["postern:tool_calls"] } });
  assert.deepEqual(shown.response.output.map(({ type }) => type), ["message", "postern:tool_call", "message"]);
  const { id: _, ...call } = shown.response.output[1] ?? assert.fail();
  assert.deepEqual(call, {
    type: "postern:tool_call",
    call_id: "t1",
    name: "read_file",
    arguments: '{"path":"a"}',
    output: "text",
    status: "completed",
  });
});

test("a turn that is asked again is told once in JSON, and ends a stream that has shown it", async () => {
  const script: ScriptStep[] = [
    [{ type: "turn_start", turn: 1 }, { type: "text_delta", delta: "Old" }],
    [{ type: "turn_restart", turn: 1, from_seq: 2 }, { type: "text_delta", delta: "New" }],
    [DONE],
  ];
  const whole = checkResponse(await (await ask({ script }).response).json());
  assert.deepEqual(whole.output.map((item) => item.type === "message" && item.content[0]), [
    { type: "output_text", text: "New", annotations: [], logprobs: [] },
  ]);
  const { response } = checkEvents(await (await ask({ script, body: { stream: true } }).response).text());
  assert.equal(response.error?.code, "run_interrupted");
});

test("calls of the turn before one that is asked again stay in the reply", async () => {
  const script: ScriptStep[] = [
    [{ type: "turn_start", turn: 1 }, { type: "turn_end", turn: 1, usage: USAGE }],
    [{ type: "tool_start", call_id: "c1", tool: "read_file", input: {} }],
    [{ type: "tool_end", call_id: "c1", tool: "read_file", output: "x", is_error: false, duration_ms: 1 }],
    [{ type: "turn_start", turn: 2 }, { type: "text_delta", delta: "half an" }],
    [{ type: "turn_restart", turn: 2, from_seq: 6 }, { type: "text_delta", delta: "whole" }, DONE],
  ];
  const body = { include: ["postern:tool_calls"] };
  const { output } = checkResponse(await (await ask({ script, body, plain: false }).response).json());
  assert.deepEqual(output.map(({ type }) => type), ["postern:tool_call", "message"]);
  assert.match(JSON.stringify(output), /"whole"/);
  assert.doesNotMatch(JSON.stringify(output), /half/);
});

test("messages keep their role and parts, and instructions go before them", async () => {
  const { request, ignored } = await started({
    body: {
      instructions: "Be brief",
      input: [
        { type: "message", role: "developer", content: [{ type: "input_text", text: "Rules" }] },
        {
          role: "user",
          content: [
            { type: "input_text", text: "What is it?" },
            { type: "input_image", image_url: "data:image/png;base64,AA==", detail: "low" },
            { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" },
          ],
        },
        { role: "assistant", content: "A cat" },
        { role: "user", content: "And now?" },
      ],
    },
  });
  assert.equal(ignored, null);
  assert.deepEqual(request.messages, [
    { role: "system", content: "Be brief" },
    { role: "developer", content: "Rules" },
    {
      role: "user",
      content: [
        { type: "text", text: "What is it?" },
        { type: "image_url", image_url: { url: "data:image/png;base64,AA==", detail: "low" } },
        { type: "file", file: { filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" } },
      ],
    },
    { role: "assistant", content: "A cat" },
    { role: "user", content: "And now?" },
  ]);
});

test("for the agent, instructions are its own and not a message", async () => {
  const { request } = await started({ plain: false, body: { instructions: "Be brief", max_tool_calls: 2 } });
  assert.deepEqual(request.messages, [{ role: "user", content: "hi" }]);
  assert.deepEqual(request.agent, { instructions: "Be brief", limits: { maxToolCalls: 2 } });
});

test("parameters have the words of chat completions", async () => {
  const schema = { type: "object", properties: {} };
  const body = {
    temperature: 0.5,
    top_p: 0.9,
    presence_penalty: 1,
    frequency_penalty: 1,
    max_output_tokens: 50,
    parallel_tool_calls: false,
    reasoning: { effort: "high", summary: "auto" },
    text: { format: { type: "json_schema", name: "answer", schema, strict: true }, verbosity: "low" },
    metadata: { a: "b" },
    user: "u",
    prompt_cache_key: "key",
    safety_identifier: "s",
    service_tier: "flex",
    tools: [{ type: "function", name: "look", parameters: schema, strict: true, description: "Looks" }],
  };
  const plain = await started({ body });
  assert.equal(plain.ignored, null);
  assert.deepEqual(plain.request.wishes, {
    clientTools: [{ name: "look", description: "Looks", parameters: schema, strict: true }],
    toolChoice: undefined,
    parallelToolCalls: false,
    parameters: {
      temperature: 0.5,
      top_p: 0.9,
      presence_penalty: 1,
      frequency_penalty: 1,
      max_completion_tokens: 50,
      reasoning_effort: "high",
      response_format: { type: "json_schema", json_schema: { name: "answer", schema, strict: true } },
      user: "u",
      metadata: { a: "b" },
      passed: {
        body: { safety_identifier: "s", prompt_cache_key: "key", service_tier: "flex", verbosity: "low" },
        names: ["safety_identifier", "prompt_cache_key", "service_tier", "verbosity"],
      },
    },
  });
  const { ignored } = await started({ body, plain: false });
  assert.equal(ignored, "safety_identifier, prompt_cache_key, service_tier, text.verbosity");
});

test("what is not honoured is named", async () => {
  const { ignored, request } = await started({
    body: {
      input: [
        { role: "user", content: "hi" },
        { type: "web_search_call", id: "ws_1", status: "completed" },
        { type: "reasoning", summary: [], encrypted_content: "of another" },
      ],
      tools: [{ type: "web_search" }, { type: "function", name: "look", defer_loading: true }],
      include: ["web_search_call.action.sources"],
      client_metadata: { a: "b" },
      truncation: "auto",
      max_tool_calls: 3,
    },
  });
  assert.deepEqual(request.wishes?.clientTools.map(({ name }) => name), ["look"]);
  assert.equal(
    ignored,
    "tools[].web_search, tools[].defer_loading, client_metadata, truncation, max_tool_calls, " +
      "include.web_search_call.action.sources, input[].web_search_call, input[].encrypted_content",
  );
});

test("a field named __proto__ is an unknown one, and hides no others from the check", async () => {
  const body = JSON.parse('{"__proto__":{"tools":5,"model":7,"instructions":{},"temperature":99}}');
  const { request, ignored } = await started({ body });
  assert.equal(ignored, "__proto__");
  assert.deepEqual([request.model, request.wishes?.clientTools, request.wishes?.parameters], [undefined, [], {}]);
});

test("of many unknown fields a hundred are copied, and those that are known or refused are all seen", async () => {
  const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`unknown_${i}`, 1]));
  const body = readResponseBody({ ...many, input: "hi", model: "m" });
  assert.equal(Object.keys(body).length, 102);
  assert.equal(body.model, "m");
  const { ignored } = await started({ body: many });
  assert.equal(ignored?.split(", ").length, 20);
  assert.equal((await refusal({ ...many, prompt: { id: "p" } })).param, "prompt");
});

test("a custom tool is a function with one text, whose grammar the model is told", async () => {
  const { request } = await started({
    body: {
      tools: [{
        type: "custom",
        name: "apply_patch",
        description: "Patches",
        format: { type: "grammar", syntax: "lark", definition: "start: LINE" },
      }],
      tool_choice: { type: "custom", name: "apply_patch" },
    },
  });
  assert.deepEqual(request.wishes?.toolChoice, { name: "apply_patch" });
  assert.deepEqual(request.wishes?.clientTools, [{
    name: "apply_patch",
    description: "Patches\n\nThe text must fit this lark grammar:\nstart: LINE",
    parameters: {
      type: "object",
      properties: { input: { type: "string", description: "The whole input, as plain text" } },
      required: ["input"],
      additionalProperties: false,
    },
  }]);
});

const SEARCH = {
  type: "tool_search",
  execution: "client",
  description: "Finds tools",
  parameters: { type: "object", properties: { query: { type: "string" } } },
};
const lookUp = (name: string, more: object = {}) => ({ type: "function", name, description: `Does ${name}`, ...more });
const found = (...tools: object[]) => ({ type: "tool_search_output", call_id: "s1", execution: "client", tools });
const brought = (...tools: object[]) => ({ type: "additional_tools", role: "developer", tools });

/** Returns the names of the tools that the model is told of, and the header of what was not honoured. */
async function toolsOf(body: Record<string, unknown>, plain = true) {
  const { request, ignored } = await started({ body, plain });
  return [(request.wishes ?? assert.fail()).clientTools.map(({ name }) => name), ignored];
}

test("a search of tools that the client executes is a function, and its call an item of its own", async () => {
  for (const plain of [true, false]) {
    const { request, ignored } = await started({ body: { tools: [SEARCH] }, plain });
    const { parameters, description } = SEARCH;
    assert.deepEqual(request.wishes?.clientTools, [{ name: "tool_search", description, parameters }]);
    assert.equal(ignored, null);
    const whole = { type: "client_tool_call_delta", index: 0, call_id: "s1", name: "tool_search" } as const;
    for (
      const [given, shown] of [
        ['{"query":"files"}', { query: "files" }],
        ["", {}],
        ['{"query":', '{"query":'],
        ["[".repeat(50_000), "[".repeat(50_000)],
        ["[".repeat(50_000) + "]".repeat(50_000), "[".repeat(50_000) + "]".repeat(50_000)],
      ] as const
    ) {
      const script: ScriptStep[] = [
        [{ type: "turn_start", turn: 1 }, { ...whole, arguments_delta: given.slice(0, 5) }],
        [{ type: "client_tool_call_delta", index: 0, call_id: "s1", arguments_delta: given.slice(5) }],
        [{ type: "turn_end", turn: 1, usage: USAGE }, { type: "done", finish_reason: "tool_calls", usage: USAGE }],
      ];
      const { events, response, whole: json } = await told({ script, plain, body: { tools: [SEARCH] } });
      const [{ id, ...item } = { id: "" }] = response.output;
      const base = { type: "tool_search_call", call_id: "s1", execution: "client" };
      assert.deepEqual(item, { ...base, arguments: shown, status: "completed" });
      assert.match(id, /^tsc_/);
      assert.deepEqual(json.output, response.output);
      assert.deepEqual(
        events.flatMap((event) => "item" in event ? [event] : []).map(({ type, item }) => [type, item]),
        [
          ["response.output_item.added", { ...base, id, arguments: {}, status: "in_progress" }],
          ["response.output_item.done", response.output[0]],
        ],
      );
    }
  }
});

test("tools that a search found or an item brings are the model's, and deferred ones wait for a search", async () => {
  const deferred = { defer_loading: true };
  const files = { type: "namespace", name: "files", tools: [lookUp("open", deferred), lookUp("close", deferred)] };
  const tools = [SEARCH, lookUp("near"), lookUp("far", deferred), files];
  const call = {
    type: "tool_search_call",
    call_id: "s1",
    execution: "client",
    arguments: { query: "x" },
    status: "completed",
  };
  const hi = { role: "user", content: "hi" };
  const open = { ...files, tools: [lookUp("open", deferred)] };
  for (const plain of [true, false]) {
    assert.deepEqual(await toolsOf({ tools }, plain), [["tool_search", "near"], null]);
    const input = [hi, call, found(open, lookUp("new", deferred), { type: "web_search" }), brought(lookUp("last"))];
    assert.deepEqual(
      await toolsOf({ tools, input }, plain),
      [["tool_search", "near", "files.open", "new", "last"], "tools[].web_search"],
    );
    const { request } = await started({
      body: { tools, input: [...input, { ...call, call_id: "s2" }, { ...found(), call_id: "s2" }] },
      plain,
    });
    const called = (id: string) => ({
      role: "assistant",
      content: null,
      tool_calls: [{ id, type: "function", function: { name: "tool_search", arguments: '{"query":"x"}' } }],
    });
    assert.deepEqual(request.messages, [
      hi,
      called("s1"),
      { role: "tool", tool_call_id: "s1", content: "These tools can be called from now on: files.open, new" },
      called("s2"),
      { role: "tool", tool_call_id: "s2", content: "No tool was found" },
    ]);
  }
  // All of Codex's tools may come in an item, its search among them
  const prefix = brought({
    type: "namespace",
    name: "functions",
    tools: [lookUp("shell"), { type: "custom", name: "edit" }],
  }, SEARCH);
  assert.deepEqual(await toolsOf({ input: [prefix, hi] }), [
    ["functions.shell", "functions.edit", "tool_search"],
    null,
  ]);
  assert.deepEqual(await toolsOf({ input: [prefix, brought(lookUp("far", deferred)), hi] }), [
    ["functions.shell", "functions.edit", "tool_search"],
    null,
  ]);
  // A tool that must be called waits for no search, and one that is allowed does
  const choice = { type: "function", name: "far" };
  assert.deepEqual(await toolsOf({ tools, tool_choice: choice }), [["tool_search", "near", "far"], null]);
  const allowed = { type: "allowed_tools", mode: "auto", tools: [choice, { type: "tool_search" }] };
  assert.deepEqual(await toolsOf({ tools, tool_choice: allowed }), [["tool_search"], null]);
  const { request } = await started({ body: { tools, tool_choice: { type: "tool_search" } } });
  assert.deepEqual(request.wishes?.toolChoice, { name: "tool_search" });
});

test("without a search that the client executes, deferred tools are told at once", async () => {
  const tools = [{ type: "tool_search" }, lookUp("far", { defer_loading: true })];
  const ignored = "tools[].tool_search, tools[].defer_loading";
  assert.deepEqual(await toolsOf({ tools }), [["far"], ignored]);
  assert.deepEqual(await toolsOf({ tools }, false), [["far"], ignored]);
  const ended = { call_id: null, execution: "server", status: "completed" };
  const input = [
    { role: "user", content: "hi" },
    { type: "tool_search_call", ...ended, arguments: { paths: ["crm"] } },
    { type: "tool_search_output", ...ended, tools: [lookUp("crm")] },
  ];
  const { request, ignored: named } = await started({ body: { input } });
  assert.deepEqual(request.wishes?.clientTools.map(({ name }) => name), ["crm"]);
  assert.deepEqual(request.messages, input.slice(0, 1));
  assert.equal(named, "input[].tool_search_call, input[].tool_search_output");
  assert.equal((await refusal({ tools, tool_choice: { type: "tool_search" } })).param, "tool_choice");
});

test("tools that items bring hide none of the request's, and are checked like them", async () => {
  const hi = { role: "user", content: "hi" };
  const own = lookUp("near", { description: "The request's" });
  const changed = [found(lookUp("new", { description: "Old" })), found(lookUp("near"), lookUp("new"), lookUp("new"))];
  const { request } = await started({ body: { tools: [own], input: [hi, ...changed] } });
  assert.deepEqual(request.wishes?.clientTools.map(({ name, description }) => [name, description]), [
    ["near", "The request's"],
    ["new", "Does new"],
  ]);
  const bad = { type: "function", name: "a b" };
  for (
    const [body, param] of [
      [{ tools: [SEARCH, lookUp("tool_search")] }, "tools[1].name"],
      [{ tools: [SEARCH, SEARCH] }, "tools[1]"],
      [{ input: [hi, found(bad)] }, "input[1].tools[0].name"],
      [{ input: [hi, brought({ type: "namespace", name: "n", tools: [bad] })] }, "input[1].tools[0].tools[0].name"],
      [{ input: [hi, { type: "tool_search_output", call_id: "s1" }] }, "input[1].tools"],
      [{ input: [hi, { ...found(), call_id: 5 }] }, "input[1].call_id"],
      [{ input: [brought(lookUp("near"))] }, "input"],
    ] as const
  ) assert.equal((await refusal(body)).param, param);
  const many = Array.from({ length: 10_000 }, (_, at) => lookUp(`tool_${at}`));
  const [names] = await toolsOf({ input: [hi, found(...many), found(...many)] });
  assert.equal(names?.length, 10_000);
});

test("allowed tools are those that the model is told of", async () => {
  const tools = [{ type: "function", name: "a" }, { type: "function", name: "b" }];
  const choice = { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "b" }] };
  const { request } = await started({ body: { tools, tool_choice: choice } });
  assert.deepEqual(request.wishes?.clientTools.map(({ name }) => name), ["b"]);
  assert.equal(request.wishes?.toolChoice, "required");
});

test("what cannot be honoured without harm is refused, with the field and the way out", async () => {
  const cases: readonly (readonly [body: Record<string, unknown>, code: string, param: string])[] = [
    [{ previous_response_id: "resp_1" }, "unsupported_parameter", "previous_response_id"],
    [{ conversation: "conv_1" }, "unsupported_parameter", "conversation"],
    [{ background: true }, "unsupported_parameter", "background"],
    [{ prompt: { id: "pmpt_1" } }, "unsupported_parameter", "prompt"],
    [{ tool_choice: { type: "web_search" } }, "unsupported_parameter", "tool_choice"],
    [{ tool_choice: { type: "function", name: "none" } }, "invalid_request", "tool_choice.name"],
    [{ tool_choice: { type: "function" } }, "invalid_request", "tool_choice.name"],
    [{ input: null }, "invalid_request", "input"],
    [{ input: [] }, "invalid_request", "input"],
    [{ input: [{ type: "item_reference", id: "msg_1" }] }, "unsupported_parameter", "input[0]"],
    [{ input: [{ role: "user", content: 5 }] }, "invalid_request", "input[0].content"],
    [{ input: [{ role: "robot", content: "x" }] }, "invalid_request", "input[0].role"],
    [
      { input: [{ role: "user", content: "x" }, { type: "function_call" }, { role: "user", content: "x" }] },
      "invalid_request",
      "input[1].call_id",
    ],
    [{ input: [{ type: "nonsense" }] }, "invalid_request", "input[0].type"],
    [{ input: [{ type: "function_call", name: "a", arguments: "{}" }] }, "invalid_request", "input[0].call_id"],
    [
      { input: [{ role: "user", content: [{ type: "input_image", file_id: "file_1" }] }] },
      "invalid_request",
      "input[0].content[0].file_id",
    ],
    [
      { input: [{ role: "user", content: [{ type: "input_image", image_url: "file:///etc/passwd" }] }] },
      "invalid_request",
      "input[0].content[0].image_url",
    ],
    [
      { tools: [{ type: "function", name: "a" }, { type: "function", name: "a" }] },
      "invalid_request",
      "tools[1].name",
    ],
    [{ tools: [{ type: "function", name: "a b" }] }, "invalid_request", "tools[0].name"],
    [{ max_output_tokens: 0 }, "invalid_request", "max_output_tokens"],
  ];
  for (const [body, code, param] of cases) {
    const refused = await refusal(body);
    assert.deepEqual({ code: refused.code, param: refused.param }, { code, param }, JSON.stringify(body));
    assert.match(refused.message, /^Cannot /);
  }
});

test("items and tools that are checked by hand are those that the schema takes", () => {
  const some = [undefined, null, "", "text", 5, true, {}, [], "user", "a b"];
  const spoiled = (whole: Record<string, unknown>) =>
    Object.keys(whole).flatMap((key) => some.map((value) => ({ ...whole, [key]: value })));
  const items = [
    { type: "message", role: "user", content: "Hi" },
    { type: "message", role: "assistant", content: [{ type: "output_text", text: "Hi", annotations: [] }] },
    { type: "message", role: "user", content: [{ type: "input_text", text: 5 }] },
    { type: "message", role: "user", content: [{ type: "input_image", image_url: "file:///x" }] },
    { type: "function_call", call_id: "c", name: "n", arguments: "{}", namespace: "ns" },
    { type: "function_call_output", call_id: "c", output: "x" },
    { type: "custom_tool_call", call_id: "c", name: "n", input: "x", namespace: null },
    { type: "custom_tool_call_output", call_id: "c", output: [{ type: "input_text", text: "x" }] },
    {
      type: "function_call_output",
      call_id: "c",
      output: [{ type: "input_image", image_url: "data:image/png;base64,AA" }],
    },
    { type: "message", role: "user", content: [{ type: "input_image", image_url: "https://x.test/a.png", detail: 5 }] },
    {
      type: "reasoning",
      summary: [{ type: "summary_text", text: "x" }],
      content: [{ type: "reasoning_text", text: "x" }],
      encrypted_content: "x",
    },
    { type: "tool_search_output", call_id: "c", execution: "client", tools: [{ type: "function", name: "look" }] },
    {
      type: "additional_tools",
      role: "developer",
      tools: [{ type: "namespace", name: "n", tools: [{ type: "function", name: "look", defer_loading: true }] }],
    },
    { type: "additional_tools", tools: [{ type: "namespace", name: "n", tools: [{ type: "function", name: "a b" }] }] },
  ].flatMap((item) => [item, ...spoiled(item)]);
  const usual = items.filter(isUsualItem);
  assert.ok(usual.length > 30 && usual.length < items.length);
  for (const item of usual) assert.ok(v.is(responseSchema, { input: [item] }), JSON.stringify(item));
  const look = { type: "function", name: "look", description: "d", parameters: {}, strict: true, defer_loading: true };
  const tools = [...spoiled(look), ...spoiled({ type: "namespace", name: "files", description: "d", tools: [look] })];
  const usualTools = tools.filter(isUsualTool);
  assert.ok(usualTools.length > 10 && usualTools.length < tools.length);
  for (const tool of usualTools) assert.ok(v.is(responseSchema, { tools: [tool] }), JSON.stringify(tool));
});

test("fields of the body that are checked by hand are those that the schema takes", () => {
  const some = [null, "", "text", "auto", 0, -1, 0.5, 1, 2, 3, 1e300, true, {}, [], [{}], ["x"], [5]];
  const given = [...some, { effort: 5 }, { effort: "low", summary: null }, { effort: "low", summary: 5 }];
  const outcome = (read: () => unknown) => {
    try {
      return read();
    } catch {
      return "refused";
    }
  };
  let refusals = 0;
  for (const name of Object.keys(responseSchema.entries)) {
    for (const value of given) {
      const body = () => structuredClone({ [name]: value });
      const expected = outcome(() => checkBody(responseSchema, body(), []));
      assert.deepEqual(outcome(() => readResponseBody(body())), expected, `${name}: ${JSON.stringify(value)}`);
      if (expected === "refused") refusals++;
    }
  }
  assert.ok(refusals > 100);
});

test("a choice of allowed tools without its fields is refused with the field", async () => {
  for (
    const choice of [{ type: "allowed_tools" }, { type: "allowed_tools", mode: "auto", tools: [null] }, {
      ...{ type: "allowed_tools", mode: "auto", tools: [{ type: "allowed_tools" }] },
    }]
  ) {
    const { code, param } = await refusal({ tool_choice: choice });
    assert.equal(code, "invalid_request");
    assert.match(param, /^tool_choice/);
  }
});

test("a vendor's own parts of reasoning go back to the provider that gave them, and to no other", async () => {
  const details = [{ type: "reasoning.encrypted", data: "ZW5j" }];
  const script = [
    [{ type: "turn_start", turn: 1 }],
    [
      { type: "reasoning_delta", delta: "I think" },
      { type: "reply_fields", message: { reasoning_details: details }, provider: "router" },
      { type: "client_tool_call_delta", index: 0, call_id: "c", name: "look", arguments_delta: "{}" },
    ],
    [{ type: "turn_end", turn: 1, usage: USAGE }, { type: "done", finish_reason: "tool_calls", usage: USAGE }],
  ] satisfies Parameters<typeof told>[0]["script"];
  const tools = [{ type: "function", name: "look" }];
  const { response } = await told({ script, body: { tools, include: ["reasoning.encrypted_content"] } });
  const history = (items: readonly object[]) => ({
    input: [{ role: "user", content: "hi" }, ...items, { type: "function_call_output", call_id: "c", output: "42" }],
  });
  const { request } = await started({ body: history(response.output) });
  const message = request.messages[1];
  assert.ok(message?.role === "assistant");
  assert.deepEqual(message.extra, { reasoning_content: "I think" });
  assert.deepEqual(message.opaque, { router: { message: { reasoning_details: details } } });
});

test("a turn that is asked again brings its own parts of reasoning alone", async () => {
  const given = (data: string) => ({
    type: "reply_fields" as const,
    message: { reasoning_details: [{ type: "reasoning.encrypted", data, index: 0 }] },
    provider: "router",
  });
  const script: ScriptStep[] = [
    [{ type: "turn_start", turn: 1 }, given("old")],
    [{ type: "turn_restart", turn: 1, from_seq: 2 }, given("new"), { type: "reasoning_delta", delta: "I think" }],
    [{ type: "text_delta", delta: "Hi" }, DONE],
  ];
  const { response } = await told({ script, body: { include: ["reasoning.encrypted_content"] } });
  const [item] = response.output;
  assert.ok(item?.type === "reasoning");
  const sealed = Buffer.from(item.encrypted_content?.slice("postern.".length) ?? "", "base64url").toString();
  assert.deepEqual(JSON.parse(sealed).reasoning_details, [{ type: "reasoning.encrypted", data: "new", index: 0 }]);
});

test("reasoning that somebody has altered is never more than texts and a shallow list", async () => {
  const seal = (json: string) => `postern.${Buffer.from(json).toString("base64url")}`;
  const input = (encrypted_content: string) => [
    { role: "user", content: "hi" },
    { type: "reasoning", summary: [{ type: "summary_text", text: "shown" }], encrypted_content },
    { type: "function_call", call_id: "c", name: "look", arguments: "{}" },
    { type: "function_call_output", call_id: "c", output: "42" },
  ];
  const extraOf = async (json: string) => {
    const { request, ignored } = await started({ body: { input: input(seal(json)) } });
    const message = request.messages[1];
    return { extra: message?.role === "assistant" ? message.extra : undefined, ignored };
  };
  assert.deepEqual((await extraOf('{"reasoning_content":"kept","content":"x","role":"system"}')).extra, {
    reasoning_content: "kept",
  });
  // Parts of a vendor that nobody names reach none
  assert.equal((await extraOf('{"reasoning_details":[{"data":"x"}]}')).extra, undefined);
  const deep = "[".repeat(100_000) + "]".repeat(100_000);
  for (
    const altered of [`{"reasoning_details":${deep}}`, '{"reasoning_content":{"a":1}}', '{"reasoning":5}', "[]", "{"]
  ) {
    const { extra, ignored } = await extraOf(altered);
    assert.deepEqual(extra, { reasoning_content: "shown" }, altered.slice(0, 40));
    assert.equal(ignored, "input[].encrypted_content");
  }
});
