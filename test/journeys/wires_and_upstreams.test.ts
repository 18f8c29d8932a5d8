import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { joinFields } from "../../lib/base/join_fields.ts";
import { checkEvents, checkResponse } from "../support/response_events.ts";
import { readSse, type RunningGateway, withWorld } from "../support/world.ts";

/**
 * Table of three wires by two upstreams: what a client of each wire is told by a model behind each of them, in both modes, as JSON and as a
 * stream. A row says once what the client asks, what the model answers, and what a client of each wire is told.
 */

// deno-lint-ignore no-explicit-any -- bodies of five forms, looked at field by field
type Json = any;

interface Tool {
  readonly name: string;
  /** Custom tools take a text in place of fields; only one wire has them */
  readonly isCustom?: boolean;
}

interface Question {
  readonly text: string;
  /** Addresses of pictures, which stand behind the text */
  readonly pictures?: readonly string[];
  readonly tools?: readonly Tool[];
  readonly wantsThought?: boolean;
}

/** Words and calls of a model in one turn; its upstream tells them in its own form. */
interface Turn {
  readonly thought?: string;
  readonly refusal?: string;
  readonly texts?: readonly string[];
  /** Name, and arguments in pieces */
  readonly calls?: readonly (readonly [name: string, ...given: string[]])[];
  /** Words of each upstream for the end of the turn */
  readonly ends: Readonly<Record<UpstreamName, string>>;
  /** The turn breaks off behind its texts, with an error in the upstream's form */
  readonly fails?: true;
}

interface Refusal {
  readonly status: number;
  readonly says: string;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Seen {
  readonly json: Json;
}

type UpstreamName = "chat" | "claude";
type WireName = "completion" | "response" | "message";
type Answer = Turn | Refusal;

/** Ends of turns, in the words of both upstreams. */
const STOPS = { chat: "stop", claude: "end_turn" };
const CALLS = { chat: "tool_calls", claude: "tool_use" };
const SIGNATURE = "c2lnbmVk";

/** How each upstream tells an answer, as its vendor does. */
const UPSTREAMS: Readonly<Record<UpstreamName, (answer: Turn, asked: Json) => string>> = {
  chat(turn, { stream }) {
    const head = { id: "up", created: 1, model: "upstream-model" };
    const calls = turn.calls?.map(([name, ...given], index) => ({
      index,
      id: `call_${index}`,
      type: "function",
      function: { name, arguments: given.join("") },
    }));
    const usage = {
      prompt_tokens: 17,
      completion_tokens: 7,
      total_tokens: 24,
      prompt_tokens_details: { cached_tokens: 4, cache_write_tokens: 3 },
    };
    if (stream !== true) {
      const message = {
        role: "assistant",
        content: turn.texts?.join("") ?? null,
        ...(turn.refusal === undefined ? {} : { refusal: turn.refusal }),
        ...(turn.thought === undefined ? {} : {
          reasoning_content: turn.thought,
          reasoning_details: [toDetail({ text: turn.thought, signature: SIGNATURE })],
        }),
        ...(calls === undefined ? {} : { tool_calls: calls.map(({ index: _, ...call }) => call) }),
      };
      if (turn.fails) return JSON.stringify({ error: BREAKS });
      const choices = [{ index: 0, message, finish_reason: turn.ends.chat }];
      return JSON.stringify({ ...head, object: "chat.completion", choices, usage });
    }
    const chunk = (fields: Json) =>
      `data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", choices: [], ...fields })}\n\n`;
    const part = (delta: Json, finish_reason: string | null = null) =>
      chunk({ choices: [{ index: 0, delta, finish_reason }] });
    return [
      part({ role: "assistant", content: "" }),
      ...[...turn.thought ?? ""].map((text) =>
        part({ reasoning_content: text, reasoning_details: [toDetail({ text })] })
      ),
      ...(turn.thought === undefined ? [] : [part({ reasoning_details: [toDetail({ signature: SIGNATURE })] })]),
      ...(turn.refusal === undefined ? [] : [part({ refusal: turn.refusal })]),
      ...(turn.texts ?? []).map((content) => part({ content })),
      ...(turn.fails ? [`data: ${JSON.stringify({ error: BREAKS })}\n\n`] : []),
      ...(calls ?? []).map(({ function: { name }, ...call }) =>
        part({ tool_calls: [{ ...call, function: { name, arguments: "" } }] })
      ),
      // Vendors mix the pieces of calls that are made beside each other
      ...(turn.calls ?? []).flatMap(([, ...given], index) => given.map((piece, at) => ({ index, piece, at })))
        .toSorted((one, other) => one.at - other.at)
        .map(({ index, piece }) => part({ tool_calls: [{ index, function: { arguments: piece } }] })),
      part({}, turn.ends.chat),
      chunk({ usage }),
      "data: [DONE]\n\n",
    ].join("");
  },
  claude(turn) {
    const blocks = [
      ...(turn.thought === undefined ? [] : [[
        { type: "thinking", thinking: "", signature: "" },
        ...[...turn.thought].map((thinking) => ({ type: "thinking_delta", thinking })),
        { type: "signature_delta", signature: SIGNATURE },
      ]]),
      ...[turn.refusal === undefined ? turn.texts : [turn.refusal]].flatMap((texts) =>
        texts === undefined
          ? []
          : [[{ type: "text", text: "" }, ...texts.map((text) => ({ type: "text_delta", text }))]]
      ),
      ...(turn.calls ?? []).map(([name, ...given], i) => [
        { type: "tool_use", id: `toolu_${i}`, name, input: {} },
        ...given.map((piece) => ({ type: "input_json_delta", partial_json: piece })),
      ]),
    ];
    const start = { input_tokens: 10, cache_creation_input_tokens: 3, cache_read_input_tokens: 4, output_tokens: 1 };
    const message = { id: "msg_1", type: "message", role: "assistant", model: "claude-upstream", content: [] };
    const events = [
      { type: "message_start", message: { ...message, stop_reason: null, usage: start } },
      ...blocks.flatMap(([block, ...deltas], index) => [
        { type: "content_block_start", index, content_block: block },
        ...deltas.map((delta) => ({ type: "content_block_delta", index, delta })),
        { type: "content_block_stop", index },
      ]),
      ...(turn.fails ? [{ type: "error", error: BREAKS }] : []),
      {
        type: "message_delta",
        delta: { stop_reason: turn.ends.claude, stop_sequence: null },
        usage: { output_tokens: 7 },
      },
      { type: "message_stop" },
    ];
    return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");
  },
};

/** Part of reasoning as a vendor of chat completions wants it back. */
function toDetail(fields: Json) {
  return { type: "reasoning.text", ...fields, format: "v1", index: 0 };
}

const BREAKS = { type: "overloaded_error", message: "It broke off" };

function answer(name: UpstreamName, reply: Answer, { seen, response }: {
  readonly seen: Seen;
  readonly response: ServerResponse;
}): void {
  if ("status" in reply) {
    const error = { type: "some_error", message: reply.says };
    response.writeHead(reply.status, { "content-type": "application/json", ...reply.headers });
    return void response.end(JSON.stringify(name === "chat" ? { error } : { type: "error", error }));
  }
  const isStream = name === "claude" || seen.json.stream === true;
  response.writeHead(200, { "content-type": isStream ? "text/event-stream" : "application/json" });
  response.end(UPSTREAMS[name](reply, seen.json));
}

const SCHEMA = { type: "object", properties: { at: { type: "string" } } };

interface Wire {
  readonly path: string;
  /** Body of a question */
  ask(model: string, question: Question): Json;
  /** Body that goes on with the results of a reply's calls, in their order */
  goOn(body: Json, reply: Json, results: readonly string[]): Json;
  /** The JSON reply of a stream, as a client puts it together */
  assemble(text: string): Json;
  /** Returns the reply as a row has it: without ids, and without what is the same in each reply */
  told(reply: Json): Json;
  usage(reply: Json): Json;
  /** The error in the stream, by its type and its code */
  failure(text: string): Json;
}

const WIRES: Readonly<Record<WireName, Wire>> = {
  completion: {
    path: "/v1/chat/completions",
    ask: (model, { text, pictures, tools, wantsThought }) => ({
      model,
      max_tokens: 4_000,
      messages: [{
        role: "user",
        content: pictures === undefined
          ? text
          : [{ type: "text", text }, ...pictures.map((url) => ({ type: "image_url", image_url: { url } }))],
      }],
      ...(tools === undefined ? {} : {
        tools: tools.map(({ name }) => ({ type: "function", function: { name, description: "", parameters: SCHEMA } })),
      }),
      ...(wantsThought ? { reasoning_effort: "low" } : {}),
    }),
    // A field that is null is left out on the way (docs/http.md "What is changed on the way")
    goOn: (body, { choices: [{ message: { refusal: _, ...message } }] }, results) => ({
      ...body,
      messages: [
        ...body.messages,
        message,
        ...message.tool_calls.map(({ id }: Json, i: number) => ({
          role: "tool",
          tool_call_id: id,
          content: results[i],
        })),
      ],
    }),
    assemble(text) {
      const chunks = readSse(text).data.slice(0, -1).map((line) => JSON.parse(line));
      let message: Json = { role: "assistant", content: null, refusal: null };
      let reason: unknown;
      for (const { choices: [choice] } of chunks) {
        if (choice === undefined) continue;
        const { content, tool_calls: parts = [], ...delta } = choice.delta;
        message = { ...joinFields(message, content ? { content, ...delta } : delta) };
        for (const { index, ...call } of parts) {
          const known = (message.tool_calls ??= [])[index];
          if (known === undefined) message.tool_calls[index] = call;
          else known.function.arguments += call.function.arguments;
        }
        reason = choice.finish_reason ?? reason;
      }
      return { choices: [{ message, finish_reason: reason }], usage: chunks.at(-1).usage };
    },
    // The details of reasoning are compared where they go back to the vendor
    told({ choices: [{ message, finish_reason }] }) {
      const { role: _, content, refusal, tool_calls: calls, reasoning_details: _details, ...rest } = message;
      return {
        ...(content === null ? {} : { content }),
        ...(refusal === null ? {} : { refusal }),
        ...(calls === undefined
          ? {}
          : { calls: calls.map(({ function: { name, arguments: given } }: Json) => [name, given]) }),
        ...rest,
        finish_reason,
      };
    },
    usage: ({ usage }) => usage,
    failure: (text) => typeAndCode(JSON.parse(readSse(text).data.at(-2) ?? "").error),
  },
  response: {
    path: "/v1/responses",
    ask: (model, { text, pictures, tools, wantsThought }) => ({
      model,
      max_output_tokens: 4_000,
      store: false,
      input: [{
        role: "user",
        content: [
          { type: "input_text", text },
          ...(pictures ?? []).map((url) => ({ type: "input_image", image_url: url })),
        ],
      }],
      ...(tools === undefined ? {} : {
        tools: tools.map(({ name, isCustom }) =>
          isCustom ? { type: "custom", name, description: "" } : { type: "function", name, parameters: SCHEMA }
        ),
      }),
      ...(wantsThought ? { reasoning: { effort: "low" }, include: ["reasoning.encrypted_content"] } : {}),
    }),
    goOn: (body, { output }, results) => ({
      ...body,
      input: [
        ...body.input,
        ...output,
        ...output.filter(({ call_id }: Json) => call_id !== undefined).map(({ call_id, type }: Json, i: number) => ({
          type: `${type}_output`,
          call_id,
          output: results[i],
        })),
      ],
    }),
    assemble: (text) => checkEvents(text).response,
    told: ({ output, status, incomplete_details: details }) => ({
      output: checkOutput(output),
      status,
      ...(details === null ? {} : { reason: details.reason }),
    }),
    usage: ({ usage }) => usage,
    failure(text) {
      const { response: { status, error } } = checkEvents(text);
      return [status, error?.code];
    },
  },
  message: {
    path: "/v1/messages",
    ask: (model, { text, pictures, tools, wantsThought }) => ({
      model,
      max_tokens: 4_000,
      messages: [{
        role: "user",
        content: pictures === undefined ? text : [
          { type: "text", text },
          ...pictures.map((url) => ({ type: "image", source: sourceOf(url) })),
        ],
      }],
      ...(tools === undefined ? {} : {
        tools: tools.map(({ name }) => ({ name, description: "", input_schema: SCHEMA })),
      }),
      ...(wantsThought ? { thinking: { type: "enabled", budget_tokens: 2_048 } } : {}),
    }),
    goOn: (body, { content }, results) => ({
      ...body,
      messages: [
        ...body.messages,
        { role: "assistant", content },
        {
          role: "user",
          content: content.filter(({ type }: Json) => type === "tool_use").map(({ id }: Json, i: number) => ({
            type: "tool_result",
            tool_use_id: id,
            content: results[i],
          })),
        },
      ],
    }),
    assemble(text) {
      const events = readSse(text).data.map((line) => JSON.parse(line));
      const [{ message }] = events;
      for (const { type, index, content_block: block, delta, usage } of events) {
        if (type === "content_block_start") message.content[index] = block;
        if (type === "message_delta") Object.assign(message, delta, { usage });
        if (type === "content_block_stop" && message.content[index].json !== undefined) {
          const { json, ...called } = message.content[index];
          message.content[index] = { ...called, input: JSON.parse(json) };
        }
        if (type !== "content_block_delta") continue;
        const open = message.content[index];
        const { type: _, partial_json: json, ...texts } = delta;
        if (json !== undefined) open.json = (open.json ?? "") + json;
        for (const [name, piece] of Object.entries(texts)) open[name] += piece;
      }
      return message;
    },
    // What the gateway has sealed is compared where it goes back to the vendor
    told: ({ content, stop_reason }) => ({
      content: content.map(({ id: _, ...block }: Json) =>
        block.signature?.startsWith("postern.") ? { ...block, signature: "" } : block
      ),
      stop_reason,
    }),
    usage: ({ usage }) => usage,
    failure(text) {
      const { type, error } = JSON.parse(readSse(text).data.at(-1) ?? "");
      assert.equal(type, "error");
      return typeAndCode(error);
    },
  },
};

function typeAndCode({ type, code }: Json) {
  return [type, code];
}

function sourceOf(url: string) {
  const [, media_type, data] = /^data:(.*);base64,(.*)$/.exec(url) ?? [];
  return data === undefined ? { type: "url", url } : { type: "base64", media_type, data };
}

/** Items as texts, calls and reasoning, without their ids. */
function checkOutput(output: readonly Json[]): Json {
  return output.map((item) => {
    switch (item.type) {
      case "message":
        return item.content.map((part: Json) => part.type === "refusal" ? { refusal: part.refusal } : part.text);
      case "reasoning":
        return { thought: item.summary.map(({ text }: Json) => text).join("") };
      default:
        return [item.type, item.name, item.arguments ?? item.input];
    }
  });
}

interface Row {
  /** Default: both */
  readonly upstreams?: readonly UpstreamName[];
  readonly asks: Question;
  /** Answers of the model, one a request */
  readonly answers: readonly Turn[];
  /** Results of the calls, which the client sends back. Default: it sends none */
  readonly results?: readonly string[];
  /** Reply to the client of each wire. A wire that is not here lacks what the row is about */
  readonly tells: Partial<Readonly<Record<WireName, Json>>>;
  /** The same, where Claude's own format comes through to a client of it, in plain mode */
  readonly tellsOwn?: Json;
  /** Last messages that each upstream is sent, whatever the wire */
  readonly sends?: Readonly<Record<UpstreamName, readonly Json[]>>;
}

const PNG = "data:image/png;base64,iVBORw0KGgo=";
const PICTURE = "https://x.test/a.png";
const TOOLS = [{ name: "look" }];

const ROWS: Readonly<Record<string, Row>> = {
  "a text": {
    asks: { text: "Hi" },
    answers: [{ texts: ["Hel", "lo"], ends: STOPS }],
    tells: {
      completion: { content: "Hello", finish_reason: "stop" },
      response: { output: [["Hello"]], status: "completed" },
      message: { content: [{ type: "text", text: "Hello" }], stop_reason: "end_turn" },
    },
    sends: {
      chat: [{ role: "user", content: "Hi" }],
      claude: [{ role: "user", content: [{ type: "text", text: "Hi" }] }],
    },
  },
  "pictures": {
    asks: { text: "What is it?", pictures: [PNG, PICTURE] },
    answers: [{ texts: ["A cat"], ends: STOPS }],
    tells: {
      completion: { content: "A cat", finish_reason: "stop" },
      response: { output: [["A cat"]], status: "completed" },
      message: { content: [{ type: "text", text: "A cat" }], stop_reason: "end_turn" },
    },
    sends: {
      chat: [{
        role: "user",
        content: [
          { type: "text", text: "What is it?" },
          { type: "image_url", image_url: { url: PNG } },
          { type: "image_url", image_url: { url: PICTURE } },
        ],
      }],
      claude: [{
        role: "user",
        content: [
          { type: "text", text: "What is it?" },
          { type: "image", source: { type: "base64", media_type: "image/png", data: "iVBORw0KGgo=" } },
          { type: "image", source: { type: "url", url: PICTURE } },
        ],
      }],
    },
  },
  "a call of a tool and its result": {
    asks: { text: "Look", tools: TOOLS },
    answers: [
      { texts: ["I look."], calls: [["look", '{"at":', '"Graz"}']], ends: CALLS },
      { texts: ["Rain"], ends: STOPS },
    ],
    results: ["rain"],
    tells: {
      completion: { content: "I look.", calls: [["look", '{"at":"Graz"}']], finish_reason: "tool_calls" },
      response: { output: [["I look."], ["function_call", "look", '{"at":"Graz"}']], status: "completed" },
      message: {
        content: [{ type: "text", text: "I look." }, { type: "tool_use", name: "look", input: { at: "Graz" } }],
        stop_reason: "tool_use",
      },
    },
    sends: {
      chat: [
        {
          role: "assistant",
          content: "I look.",
          tool_calls: [{ id: "call_0", type: "function", function: { name: "look", arguments: '{"at":"Graz"}' } }],
        },
        { role: "tool", tool_call_id: "call_0", content: "rain" },
      ],
      claude: [
        {
          role: "assistant",
          content: [
            { type: "text", text: "I look." },
            { type: "tool_use", id: "toolu_0", name: "look", input: { at: "Graz" } },
          ],
        },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_0", content: "rain" }] },
      ],
    },
  },
  "parallel calls": {
    asks: { text: "Look", tools: TOOLS },
    answers: [
      { calls: [["look", '{"at":', '"Graz"', "}"], ["look", "{", "}"]], ends: CALLS },
      { texts: ["Both"], ends: STOPS },
    ],
    results: ["rain", "sun"],
    tells: {
      completion: { calls: [["look", '{"at":"Graz"}'], ["look", "{}"]], finish_reason: "tool_calls" },
      response: {
        output: [["function_call", "look", '{"at":"Graz"}'], ["function_call", "look", "{}"]],
        status: "completed",
      },
      message: {
        content: [
          { type: "tool_use", name: "look", input: { at: "Graz" } },
          { type: "tool_use", name: "look", input: {} },
        ],
        stop_reason: "tool_use",
      },
    },
    sends: {
      chat: [
        {
          role: "assistant",
          content: null,
          tool_calls: [
            { id: "call_0", type: "function", function: { name: "look", arguments: '{"at":"Graz"}' } },
            { id: "call_1", type: "function", function: { name: "look", arguments: "{}" } },
          ],
        },
        { role: "tool", tool_call_id: "call_0", content: "rain" },
        { role: "tool", tool_call_id: "call_1", content: "sun" },
      ],
      claude: [
        {
          role: "assistant",
          content: [
            { type: "tool_use", id: "toolu_0", name: "look", input: { at: "Graz" } },
            { type: "tool_use", id: "toolu_1", name: "look", input: {} },
          ],
        },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "toolu_0", content: "rain" },
            { type: "tool_result", tool_use_id: "toolu_1", content: "sun" },
          ],
        },
      ],
    },
  },
  "a custom tool": {
    asks: { text: "Patch", tools: [{ name: "patch", isCustom: true }] },
    answers: [{ calls: [["patch", '{"input":', '"a\\nb"}']], ends: CALLS }, { texts: ["Done"], ends: STOPS }],
    results: ["ok"],
    tells: { response: { output: [["custom_tool_call", "patch", "a\nb"]], status: "completed" } },
    sends: {
      chat: [
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "call_0", type: "function", function: { name: "patch", arguments: '{"input":"a\\nb"}' } }],
        },
        { role: "tool", tool_call_id: "call_0", content: "ok" },
      ],
      claude: [
        { role: "assistant", content: [{ type: "tool_use", id: "toolu_0", name: "patch", input: { input: "a\nb" } }] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_0", content: "ok" }] },
      ],
    },
  },
  "reasoning, handed back with its call": {
    asks: { text: "Look", tools: TOOLS, wantsThought: true },
    answers: [
      { thought: "Hm", calls: [["look", "{}"]], ends: CALLS },
      { thought: "So", texts: ["Rain"], ends: STOPS },
    ],
    results: ["rain"],
    tells: {
      completion: { reasoning_content: "Hm", calls: [["look", "{}"]], finish_reason: "tool_calls" },
      response: { output: [{ thought: "Hm" }, ["function_call", "look", "{}"]], status: "completed" },
      message: {
        content: [{ type: "thinking", thinking: "Hm", signature: "" }, { type: "tool_use", name: "look", input: {} }],
        stop_reason: "tool_use",
      },
    },
    tellsOwn: {
      content: [
        { type: "thinking", thinking: "Hm", signature: SIGNATURE },
        { type: "tool_use", name: "look", input: {} },
      ],
      stop_reason: "tool_use",
    },
    sends: {
      chat: [
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "call_0", type: "function", function: { name: "look", arguments: "{}" } }],
          reasoning_content: "Hm",
          reasoning_details: [toDetail({ text: "Hm", signature: SIGNATURE })],
        },
        { role: "tool", tool_call_id: "call_0", content: "rain" },
      ],
      claude: [
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "Hm", signature: SIGNATURE },
            { type: "tool_use", id: "toolu_0", name: "look", input: {} },
          ],
        },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_0", content: "rain" }] },
      ],
    },
  },
  "a refusal in words of its own": {
    // Claude says it as a text, with a stop reason: see "a filter"
    upstreams: ["chat"],
    asks: { text: "Harm" },
    answers: [{ refusal: "I cannot", ends: STOPS }],
    tells: {
      completion: { refusal: "I cannot", finish_reason: "stop" },
      response: { output: [[{ refusal: "I cannot" }]], status: "completed" },
      message: { content: [{ type: "text", text: "I cannot" }], stop_reason: "refusal" },
    },
  },
  "a limit of tokens": {
    asks: { text: "Long" },
    answers: [{ texts: ["So"], ends: { chat: "length", claude: "max_tokens" } }],
    tells: {
      completion: { content: "So", finish_reason: "length" },
      response: { output: [["So"]], status: "incomplete", reason: "max_output_tokens" },
      message: { content: [{ type: "text", text: "So" }], stop_reason: "max_tokens" },
    },
  },
  "a full window": {
    asks: { text: "Long" },
    answers: [{
      texts: ["So"],
      ends: { chat: "model_context_window_exceeded", claude: "model_context_window_exceeded" },
    }],
    tells: {
      completion: { content: "So", finish_reason: "length" },
      response: { output: [["So"]], status: "incomplete", reason: "max_output_tokens" },
      message: { content: [{ type: "text", text: "So" }], stop_reason: "max_tokens" },
    },
    tellsOwn: { content: [{ type: "text", text: "So" }], stop_reason: "model_context_window_exceeded" },
  },
  "a stop sequence": {
    asks: { text: "Count" },
    answers: [{ texts: ["So"], ends: { chat: "stop", claude: "stop_sequence" } }],
    tells: {
      completion: { content: "So", finish_reason: "stop" },
      response: { output: [["So"]], status: "completed" },
      message: { content: [{ type: "text", text: "So" }], stop_reason: "end_turn" },
    },
    tellsOwn: { content: [{ type: "text", text: "So" }], stop_reason: "stop_sequence" },
  },
  "a paused turn": {
    asks: { text: "Search" },
    answers: [{ texts: ["So"], ends: { chat: "stop", claude: "pause_turn" } }],
    tells: {
      completion: { content: "So", finish_reason: "stop" },
      response: { output: [["So"]], status: "completed" },
      message: { content: [{ type: "text", text: "So" }], stop_reason: "end_turn" },
    },
    tellsOwn: { content: [{ type: "text", text: "So" }], stop_reason: "pause_turn" },
  },
  "a filter": {
    asks: { text: "Harm" },
    answers: [{ texts: ["So"], ends: { chat: "content_filter", claude: "refusal" } }],
    tells: {
      completion: { content: "So", finish_reason: "content_filter" },
      response: { output: [["So"]], status: "incomplete", reason: "content_filter" },
      message: { content: [{ type: "text", text: "So" }], stop_reason: "refusal" },
    },
  },
};

/** Usage of each turn, as each wire tells it: 17 tokens of the prompt, of which 4 were read from a cache and 3 written to it. */
const USAGE: Readonly<Record<WireName, Json>> = {
  completion: {
    prompt_tokens: 17,
    completion_tokens: 7,
    total_tokens: 24,
    prompt_tokens_details: { cached_tokens: 4, cache_write_tokens: 3 },
  },
  response: {
    input_tokens: 17,
    input_tokens_details: { cached_tokens: 4 },
    output_tokens: 7,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 24,
  },
  message: { input_tokens: 10, cache_creation_input_tokens: 3, cache_read_input_tokens: 4, output_tokens: 7 },
};

interface Cell {
  /** Sends what follows to another gateway, which knows nothing of what went before */
  restart(): Promise<void>;
  readonly wire: Wire;
  readonly wireName: WireName;
  readonly upstream: UpstreamName;
  readonly isPlain: boolean;
  /** As a failure names it */
  readonly name: string;
  /** Sends a body, and gives the reply and what the upstream was sent for it */
  send(body: Json): Promise<{ readonly response: Response; readonly text: string; readonly sent: Json }>;
}

/** Tries each cell of the table: three wires, two upstreams, in both modes. */
async function inEachCell(
  next: (cell: Cell) => Answer,
  use: (cell: Cell) => Promise<void>,
  { wires = NAMES, upstreams = ["chat", "claude"] }: {
    readonly wires?: readonly WireName[];
    readonly upstreams?: readonly UpstreamName[] | undefined;
  } = {},
): Promise<void> {
  await withWorld(async (world) => {
    let current: Cell | undefined;
    const start = (name: UpstreamName) =>
      world.server((seen, response) => {
        if (seen.path.endsWith("/models") || current === undefined) return void response.end('{"data":[]}');
        answer(name, next(current), { seen, response });
      });
    const servers = { chat: await start("chat"), claude: await start("claude") };
    const settings = { max_retries: 0 };
    const config = {
      gateway: { rate_limit_max: 0 },
      providers: {
        chat: { ...settings, kind: "openai_compatible", base_url: `${servers.chat.origin}/v1` },
        claude: { ...settings, kind: "anthropic", base_url: `${servers.claude.origin}/v1`, api_key_env: "KEY" },
      },
    };
    const serve = () => world.gateway({ config, environment: { KEY: "the key of the upstream" } });
    let gateway: RunningGateway = await serve();
    for (const isPlain of [true, false]) {
      for (const wireName of wires) {
        for (const upstream of upstreams) {
          const wire = WIRES[wireName];
          current = {
            ...{ wire, wireName, upstream, isPlain },
            name: `${wireName} to ${upstream}, ${isPlain ? "plain" : "the agent"}`,
            async restart() {
              gateway = await serve();
            },
            async send(body) {
              const headers = isPlain ? { "x-postern-tools": "none" } : {};
              const response = await gateway.call(wire.path, { body, headers });
              const text = await response.text();
              return { response, text, sent: servers[upstream].requests.at(-1)?.json };
            },
          };
          await use(current);
        }
      }
    }
  });
}

const NAMES = ["completion", "response", "message"] as const;
const MODELS = { chat: "chat/upstream-model", claude: "claude/claude-upstream" };

for (const [what, { asks, answers, results, tells, tellsOwn, sends, upstreams }] of Object.entries(ROWS)) {
  const wires = NAMES.filter((name) => tells[name] !== undefined);
  test(`${what}: the same by each wire from each upstream, as JSON and as a stream`, async () => {
    let turn = 0;
    // The last answer is that of every further request
    const next = () => answers[Math.min(turn++, answers.length - 1)] as Turn;
    await inEachCell(next, async ({ wire, wireName, upstream, isPlain, name, send }) => {
      const body = wire.ask(MODELS[upstream], asks);
      const ask = async (fields: Json) => {
        const asked = { ...body, ...fields };
        turn = 0;
        const { response, text, sent } = await send(asked);
        assert.equal(response.status, 200, `${name}: ${text}`);
        const reply = fields.stream ? wire.assemble(text) : JSON.parse(text);
        if (wireName === "response") checkResponse(reply);
        return { asked, reply, sent };
      };
      const whole = await ask({});
      const stream = {
        stream: true,
        ...(wireName === "completion" ? { stream_options: { include_usage: true } } : {}),
      };
      const streamed = await ask(stream);
      const isOwn = isPlain && wireName === "message" && upstream === "claude";
      for (const { asked, reply, sent } of [whole, streamed]) {
        const where = `${name}, ${asked.stream ? "stream" : "JSON"}`;
        assert.deepEqual(wire.told(reply), isOwn ? tellsOwn ?? tells.message : tells[wireName], where);
        assert.deepEqual(wire.usage(reply), USAGE[wireName], where);
        if (results === undefined) checkSent(sent, asked, { where, sends, isPlain, wireName, upstream });
        else {
          turn = 1;
          const goesOn = wire.goOn(asked, reply, results);
          const after = await send(goesOn);
          assert.equal(after.response.status, 200, `${where}: ${after.text}`);
          checkSent(after.sent, goesOn, { where, sends, isPlain, wireName, upstream });
        }
      }
    }, { wires, upstreams });
  });
}

interface Sending extends Pick<Cell, "isPlain" | "wireName" | "upstream"> {
  readonly sends: Row["sends"] | undefined;
  readonly where: string;
}

/** In plain mode an upstream of the wire's own form gets the client's body. The last messages are the same from each wire. */
function checkSent(sent: Json, asked: Json, { where, sends, isPlain, wireName, upstream }: Sending): void {
  const isSameForm = (wireName === "completion" && upstream === "chat") ||
    (wireName === "message" && upstream === "claude");
  if (isPlain && isSameForm) {
    const model = MODELS[upstream].split("/")[1];
    // A server of Messages is always asked for a stream
    const stream = upstream === "claude" || asked.stream === true;
    assert.deepEqual(sent, { ...asked, model, stream }, where);
  } else if (sends !== undefined) {
    assert.deepEqual(sent.messages.slice(-sends[upstream].length), sends[upstream], where);
  }
}

test("reasoning goes back with its call through a gateway that never saw it", async () => {
  const { asks, answers, results = [], sends } = ROWS["reasoning, handed back with its call"] as Row;
  await inEachCell(() => answers[0] as Turn, async ({ wire, wireName, upstream, isPlain, name, send, restart }) => {
    // With the agent's tools a vendor of chat completions wants nothing back, and completions have no place for it
    if (!isPlain && (wireName === "completion" || upstream === "chat")) return;
    for (const stream of [false, true]) {
      const asked = { ...wire.ask(MODELS[upstream], asks), stream };
      const { text } = await send(asked);
      await restart();
      const { sent, response } = await send(wire.goOn(asked, stream ? wire.assemble(text) : JSON.parse(text), results));
      const [called, result] = sends?.[upstream] as readonly Json[];
      // Thinking of Messages has no place for the details of another vendor
      const { reasoning_details: _, ...known } = called;
      const expected = wireName === "message" && upstream === "chat" ? known : called;
      assert.deepEqual(
        withoutIds(sent.messages.slice(-2)),
        withoutIds([expected, result]),
        `${name}, stream: ${stream}`,
      );
      if (!isPlain) assert.deepEqual(sent.thinking?.type, "enabled", name);
      assert.doesNotMatch(response.headers.get("x-postern-ignored") ?? "", /messages|thinking|reasoning/, name);
    }
  });
});

/** Leaves out ids of calls, which the agent makes by itself. */
function withoutIds(messages: readonly Json[]): unknown {
  return JSON.parse(
    JSON.stringify(messages, (name, value) => /^(?:id|tool_use_id|tool_call_id)$/.test(name) ? "" : value),
  );
}

interface Failure {
  readonly answer: Answer;
  /** Status and code of each wire, and the type on the wire of Messages */
  readonly tells: readonly [status: number, code: string, type: string];
  /** Status of Messages, where it has one of its own */
  readonly ofMessages?: number;
}

const FAILURES: Readonly<Record<string, Failure>> = {
  "a refusal of the request": {
    answer: { status: 400, says: "Bad" },
    tells: [400, "some_error", "invalid_request_error"],
  },
  "a body that is too large": {
    answer: { status: 413, says: "Too large" },
    tells: [413, "some_error", "request_too_large"],
  },
  "a prompt that is too long": {
    answer: { status: 400, says: "prompt is too long: 210000 tokens > 200000 maximum" },
    tells: [400, "context_length_exceeded", "invalid_request_error"],
  },
  "a model that nobody has": {
    answer: { status: 404, says: "The model `x` does not exist" },
    tells: [404, "model_not_found", "not_found_error"],
  },
  "a limit of requests": {
    answer: { status: 429, says: "Slow down", headers: { "retry-after": "7" } },
    tells: [429, "rate_limited", "rate_limit_error"],
  },
  "a key that is refused": { answer: { status: 401, says: "No" }, tells: [502, "provider_error", "api_error"] },
  "a server that fails": { answer: { status: 500, says: "Broken" }, tells: [502, "provider_error", "api_error"] },
  "a server that has too much to do": {
    answer: { status: 529, says: "Overloaded" },
    tells: [502, "provider_error", "overloaded_error"],
    ofMessages: 529,
  },
  "a failure behind the first text": {
    answer: { texts: ["Hel"], fails: true, ends: STOPS },
    tells: [502, "provider_error", "overloaded_error"],
    ofMessages: 529,
  },
};

for (const [what, { answer: reply, tells: [status, code, type], ofMessages }] of Object.entries(FAILURES)) {
  test(`${what}: told by each wire from each upstream, before the first byte and behind it`, async () => {
    await inEachCell(() => reply, async ({ wire, wireName, upstream, name, send }) => {
      for (const stream of [false, true]) {
        const where = `${name}, ${stream ? "stream" : "JSON"}`;
        const { response, text } = await send({ ...wire.ask(MODELS[upstream], { text: "Hi" }), stream });
        const isMessage = wireName === "message";
        if ("fails" in reply && stream) {
          assert.equal(response.status, 200, where);
          assert.match(text, /Hel/, where);
          const kind = wireName === "response" ? "failed" : isMessage ? type : "api_error";
          assert.deepEqual(wire.failure(text), [kind, code], where);
          continue;
        }
        const told = JSON.parse(text);
        assert.equal(response.status, isMessage ? ofMessages ?? status : status, where);
        assert.equal(told.error.code, code, where);
        if (isMessage) assert.deepEqual([told.type, told.error.type], ["error", type], where);
        const { "retry-after": seconds = null } = "status" in reply ? reply.headers ?? {} : {};
        assert.equal(response.headers.get("retry-after"), seconds, where);
      }
    });
  });
}
