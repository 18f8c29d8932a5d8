import assert from "node:assert/strict";
import { test } from "node:test";
import type { ScriptedTurn } from "../../fixtures/scripted_provider.ts";
import type { ProviderRequest } from "../../lib/providers/provider.ts";
import { type CheckedEvent, type CheckedResponse, checkEvents, checkResponse } from "../support/response_events.ts";
import { withWorld } from "../support/world.ts";

/**
 * Case of what a server of the Open Responses specification of 2026-04-24 does for a client: each with the agent and in plain mode, as JSON
 * and as a stream, whose every event is checked by the published schema (test/support/response_events.ts).
 */
interface Case {
  /** Body of the request, beside its model and `stream` */
  readonly body: Readonly<Record<string, unknown>>;
  /** Answer of the model */
  readonly turn: ScriptedTurn;
  /** Types of the items of the output */
  readonly output: readonly string[];
  /** Default `completed` */
  readonly status?: string;
  /** Events that the stream has, beside those of every stream, in this order */
  readonly events: readonly string[];
  /** Checks the response further, and what the model was sent */
  readonly also?: (response: CheckedResponse, sent: ProviderRequest) => void;
}

const item = (role: string, content: unknown) => ({ type: "message", role, content });
const say = (content: unknown) => item("user", content);
const text = (type: string, value: string) => [{ type, text: value }];
const PNG =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const WEATHER = {
  type: "function",
  name: "weather",
  description: "Tells the weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const CALL = { name: "weather", arguments: ['{"city":', '"Bern"}'] };
const TEXT = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"];
const CALLED = [
  "output_item.added",
  "function_call_arguments.delta",
  "function_call_arguments.done",
  "output_item.done",
];
const saidBy = ({ messages }: ProviderRequest, role: string) =>
  messages.filter((message) => message.role === role).map(({ content }) => JSON.stringify(content)).join("\n");

const CASES: Readonly<Record<string, Case>> = {
  "a message of the user is answered by a message": {
    body: { input: [say("Say hello in three words.")] },
    turn: { text: ["Hello, ", "dear world"] },
    output: ["message"],
    events: TEXT,
    also: ({ output, usage, error, incomplete_details: details }) => {
      assert.match(JSON.stringify(output), /Hello, dear world/);
      assert.deepEqual([error, details, usage?.total_tokens], [null, null, 15]);
    },
  },
  "instructions come as items of the system and the developer": {
    body: {
      input: [item("system", "Speak as a pirate."), item("developer", text("input_text", "Be brief.")), say("Hi.")],
    },
    turn: { text: "Arr" },
    output: ["message"],
    events: TEXT,
    also: (_, sent) => {
      const told = saidBy(sent, "system") + saidBy(sent, "developer");
      assert.match(told, /Speak as a pirate\./);
      assert.match(told, /Be brief\./);
    },
  },
  "a conversation comes as items, the assistant's as text or as parts": {
    body: {
      input: [
        say("My name is Ada."),
        item("assistant", "Hello Ada."),
        say("I like tea."),
        { ...item("assistant", text("output_text", "Noted.")), id: "msg_1", status: "completed" },
        say(text("input_text", "What is my name?")),
      ],
    },
    turn: { text: "Ada" },
    output: ["message"],
    events: TEXT,
    also: (_, sent) => assert.match(saidBy(sent, "assistant"), /Hello Ada\.[^]*Noted\./),
  },
  "a function is called, with its arguments as they come": {
    body: { input: [say("How is the weather in Bern?")], tools: [WEATHER] },
    turn: { toolCalls: [CALL] },
    output: ["function_call"],
    events: CALLED,
    also: ({ output }) => {
      const [call] = output;
      assert.ok(call?.type === "function_call");
      assert.deepEqual([call.name, JSON.parse(call.arguments), call.status], [
        "weather",
        { city: "Bern" },
        "completed",
      ]);
    },
  },
  "functions are called beside each other, each with an item and an id of its own": {
    body: { input: [say("Bern and Graz?")], tools: [WEATHER], parallel_tool_calls: true },
    turn: { toolCalls: [CALL, { name: "weather", arguments: { city: "Graz" } }] },
    output: ["function_call", "function_call"],
    events: ["output_item.added", "output_item.added", "output_item.done", "output_item.done"],
    also: ({ output }) => {
      const ids = output.flatMap((one) => one.type === "function_call" ? [one.id, one.call_id] : []);
      assert.equal(new Set(ids).size, 4);
    },
  },
  "the output of a function is handed back, as text or as parts": {
    body: {
      tools: [WEATHER],
      input: [
        say("Bern and Graz?"),
        { type: "function_call", call_id: "call_1", name: "weather", arguments: '{"city":"Bern"}' },
        { type: "function_call", call_id: "call_2", name: "weather", arguments: '{"city":"Graz"}' },
        { type: "function_call_output", call_id: "call_1", output: "sunny" },
        { type: "function_call_output", call_id: "call_2", output: text("input_text", "rainy") },
      ],
    },
    turn: { text: "Sunny and rainy" },
    output: ["message"],
    events: TEXT,
    also: (_, sent) => assert.match(saidBy(sent, "tool"), /sunny[^]*rainy/),
  },
  "a picture is shown to the model": {
    body: { input: [say([...text("input_text", "What do you see?"), { type: "input_image", image_url: PNG }])] },
    turn: { text: "A dot" },
    output: ["message"],
    events: TEXT,
    also: (_, sent) => assert.match(saidBy(sent, "user"), /iVBORw0KGgo/),
  },
  "reasoning is an item before the message": {
    body: { input: "Think.", reasoning: { effort: "low", summary: "auto" } },
    turn: { reasoning: ["Let me ", "think"], text: "Done" },
    output: ["reasoning", "message"],
    events: [
      ...["output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"],
      ...["reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"],
      ...TEXT,
    ],
  },
  "a refusal is a part of its own": {
    body: { input: "Do harm." },
    turn: { refusal: "I will not" },
    output: ["message"],
    events: ["output_item.added", "content_part.added", "refusal.delta", "refusal.done", "content_part.done"],
    also: ({ output }) => assert.match(JSON.stringify(output), /"type":"refusal","refusal":"I will not"/),
  },
  "what ends at the limit of tokens is incomplete": {
    body: { input: "Tell all.", max_output_tokens: 16 },
    turn: { text: "It began", finishReason: "length" },
    output: ["message"],
    status: "incomplete",
    events: TEXT,
    also: ({ incomplete_details: details, output, max_output_tokens: limit }) => {
      assert.deepEqual([details?.reason, limit], ["max_output_tokens", 16]);
      assert.ok(output.every((one) => !("status" in one) || one.status === "incomplete"));
    },
  },
  "the response says what it was asked with, and the default of the rest": {
    body: {
      ...{ input: "Hi.", instructions: "Be brief.", metadata: { a: "b" }, temperature: 0.5, top_p: 0.9, store: false },
      ...{ tools: [WEATHER], tool_choice: { type: "function", name: "weather" }, parallel_tool_calls: false },
      ...{ presence_penalty: 0.1, frequency_penalty: 0.2, text: { format: { type: "json_object" } } },
    },
    turn: { toolCalls: [CALL] },
    output: ["function_call"],
    events: CALLED,
    also(response) {
      const { instructions, metadata, temperature, top_p, store, tool_choice, parallel_tool_calls, text, truncation } =
        response;
      assert.deepEqual(
        { instructions, metadata, temperature, top_p, store, tool_choice, parallel_tool_calls, text, truncation },
        {
          ...{ instructions: "Be brief.", metadata: { a: "b" }, temperature: 0.5, top_p: 0.9, store: false },
          ...{ tool_choice: { type: "function", name: "weather" }, parallel_tool_calls: false },
          ...{ text: { format: { type: "json_object" } }, truncation: "disabled" },
        },
      );
      assert.deepEqual([response.presence_penalty, response.frequency_penalty], [0.1, 0.2]);
      assert.deepEqual(response.tools.map((tool) => "name" in tool && tool.name), ["weather"]);
    },
  },
};

/** Holds that a stream has these events in this order, with any others between them. */
function holdOrder(events: readonly CheckedEvent[], wanted: readonly string[]): void {
  const types = events.map(({ type }) => type);
  let at = 0;
  for (const type of wanted) {
    at = types.indexOf(`response.${type}` as CheckedEvent["type"], at) + 1;
    assert.ok(at > 0, `${type} is missing, or comes too early: ${types.join(" ")}`);
  }
}

test("Open Responses: the cases of the specification, with the agent and in plain mode, as JSON and as a stream", async (t) => {
  await withWorld(async (world) => {
    let turn: ScriptedTurn = {};
    const gateway = await world.gateway({ script: () => turn, sees: true });
    for (const [name, { body, output, status = "completed", events: wanted, also, ...one }] of Object.entries(CASES)) {
      for (const model of ["m", "plain/m"]) {
        await t.test(`${name}: ${model}`, async () => {
          turn = one.turn;
          const whole = await gateway.call("/v1/responses", { body: { model, ...body } });
          assert.equal(whole.status, 200, await whole.clone().text());
          const streamed = await gateway.call("/v1/responses", { body: { model, ...body, stream: true } });
          const { events, response } = checkEvents(await streamed.text());
          holdOrder(events, [...wanted, status]);
          for (const reply of [checkResponse(await whole.json()), response]) {
            assert.equal(reply.status, status);
            assert.deepEqual(reply.output.map(({ type }) => type), output);
            also?.(reply, gateway.provider.requests.at(-1) ?? assert.fail("the model was not asked"));
          }
        });
      }
    }
  });
});

test("Open Responses: a stream whose model fails ends with response.failed, and a request that is none is 400", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => ({ text: "It began", errorAfter: new Error("broken") }) });
    for (const model of ["m", "plain/m"]) {
      const streamed = await gateway.call("/v1/responses", { body: { model, input: "Hi.", stream: true } });
      const { events, response } = checkEvents(await streamed.text());
      assert.equal(events.at(-1)?.type, "response.failed");
      assert.ok(response.error !== null);
      const refused = await gateway.call("/v1/responses", {
        body: { model, input: [{ type: "message", role: "nobody" }] },
      });
      const { error } = JSON.parse(await refused.text());
      assert.deepEqual([refused.status, error.type, typeof error.message], [400, "invalid_request_error", "string"]);
      assert.match(error.param, /^input/);
    }
  }));
