import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { toDelta, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { checkEvents, checkResponse } from "../support/response_events.ts";
import { type UpstreamReply, withWorld, type World } from "../support/world.ts";

async function startClient(world: World, ...script: readonly UpstreamReply[]) {
  const upstream = await world.upstream(...script);
  const gateway = await world.gateway({ config: { providers: { up: { base_url: upstream.baseUrl } } } });
  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token, maxRetries: 0 });
  return { upstream, gateway, client };
}

const CHUNKS = ["Hel", "lo"];

test("OpenAI's client gets a text in plain mode, whole and as a stream", () =>
  withWorld(async (world) => {
    const { client, upstream } = await startClient(world, { kind: "text", chunks: CHUNKS });
    const asked = { model: "plain/up/upstream-model", input: "Say hello", instructions: "Be brief" };
    const whole = await client.responses.create(asked);
    assert.equal(whole.output_text, "Hello");
    assert.equal(whole.status, "completed");
    const stream = client.responses.stream(asked);
    const seen: string[] = [];
    for await (const event of stream) if (event.type === "response.output_text.delta") seen.push(event.delta);
    assert.deepEqual(seen, CHUNKS);
    assert.equal((await stream.finalResponse()).output_text, "Hello");
    const sent = upstream.turns.at(-1)?.json as { messages: unknown; model: string };
    assert.deepEqual(sent.messages, [{ role: "system", content: "Be brief" }, { role: "user", content: "Say hello" }]);
    assert.equal(sent.model, "upstream-model");
  }));

test("OpenAI's client calls its tools over two rounds, and hands reasoning back untouched", () =>
  withWorld(async (world) => {
    const { client, upstream } = await startClient(
      world,
      {
        kind: "chunks",
        chunks: [
          toDelta({ reasoning_content: "I need the weather" }),
          toDelta({
            tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "weather", arguments: "" } }],
          }),
          toDelta({ tool_calls: [{ index: 0, function: { arguments: '{"city":"Bern"}' } }] }),
          toDelta({}, "tool_calls"),
          USAGE_CHUNK,
        ],
      },
      { kind: "text", chunks: ["Sunny"] },
    );
    const tools = [{
      type: "function" as const,
      name: "weather",
      description: "Tells the weather",
      parameters: { type: "object", properties: { city: { type: "string" } } },
      strict: false,
    }];
    const include = ["reasoning.encrypted_content" as const];
    const asked = { model: "plain/up/upstream-model", tools, include, store: false };
    const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "How is it in Bern?" }];
    const first = await client.responses.stream({ ...asked, input }).finalResponse();
    const call = first.output.find((item) => item.type === "function_call") ?? assert.fail("no call");
    assert.deepEqual(JSON.parse(call.arguments), { city: "Bern" });
    // The client's types of both differ in an item that no gateway sends
    input.push(...first.output as OpenAI.Responses.ResponseInputItem[], {
      type: "function_call_output",
      call_id: call.call_id,
      output: "sunny",
    });
    const second = await client.responses.create({ ...asked, input });
    assert.equal(second.output_text, "Sunny");
    const { messages } = upstream.turns.at(-1)?.json as { messages: readonly Record<string, unknown>[] };
    assert.deepEqual(messages[1]?.["reasoning_content"], "I need the weather");
    assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "tool"]);
  }));

const SEARCH = {
  type: "tool_search" as const,
  execution: "client" as const,
  description: "Finds tools",
  parameters: { type: "object", properties: { query: { type: "string" } } },
};

function calls(name: string, given: object): UpstreamReply {
  const called = {
    index: 0,
    id: `call_${name}`,
    type: "function",
    function: { name, arguments: JSON.stringify(given) },
  };
  return { kind: "chunks", chunks: [toDelta({ tool_calls: [called] }), toDelta({}, "tool_calls"), USAGE_CHUNK] };
}

function isSearch(item: OpenAI.Responses.ResponseOutputItem): item is OpenAI.Responses.ResponseToolSearchCall {
  return item.type === "tool_search_call";
}

function isCall(item: OpenAI.Responses.ResponseOutputItem): item is OpenAI.Responses.ResponseFunctionToolCall {
  return item.type === "function_call";
}

test("OpenAI's client searches for tools, and the model calls what was found", () =>
  withWorld(async (world) => {
    const look = { type: "function" as const, name: "look", parameters: { type: "object" }, strict: false };
    const far = { ...look, name: "far", defer_loading: true };
    const found = {
      type: "namespace" as const,
      name: "sky",
      description: "The sky",
      tools: [{ ...far, name: "stars" }],
    };
    const { client, upstream } = await startClient(
      world,
      calls("tool_search", { query: "sky" }),
      calls("sky.stars", {}),
      { kind: "text", chunks: ["Many"] },
      calls("tool_search", { query: "sky" }),
      calls("sky.stars", {}),
      { kind: "text", chunks: ["Many"] },
    );
    for (const isStream of [true, false]) {
      const asked = { model: "plain/up/upstream-model", tools: [SEARCH, look, far] };
      const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "How many stars?" }];
      const answer = (): Promise<OpenAI.Responses.Response> =>
        isStream
          ? client.responses.stream({ ...asked, input }).finalResponse()
          : client.responses.create({ ...asked, input });
      const first = await answer();
      const search = first.output.find(isSearch) ?? assert.fail("no search");
      assert.deepEqual([search.arguments, search.execution], [{ query: "sky" }, "client"]);
      const before = await client.responses.inputTokens.count({ ...asked, input });
      const { call_id } = search;
      input.push(search, {
        type: "tool_search_output",
        call_id,
        execution: "client",
        status: "completed",
        tools: [found],
      });
      const after = await client.responses.inputTokens.count({ ...asked, input });
      assert.ok(after.input_tokens > before.input_tokens);
      const second = await answer();
      const call = second.output.find(isCall) ?? assert.fail("no call");
      assert.deepEqual([call.namespace, call.name], ["sky", "stars"]);
      input.push(call, { type: "function_call_output", call_id: call.call_id, output: "many" });
      assert.equal((await answer()).output_text, "Many");
      const told = upstream.turns.slice(-3).map(({ json }) =>
        (json as { tools: readonly { function: { name: string } }[] }).tools.map((tool) => tool.function.name)
      );
      assert.deepEqual(told[0], ["tool_search", "look"]);
      assert.deepEqual(told[2], told[1]);
      // A dot becomes what the model's server takes
      assert.match(told[1]?.join() ?? "", /^tool_search,look,sky_stars_[0-9a-f]+$/);
      const { messages } = upstream.turns.at(-1)?.json as { messages: readonly { role: string }[] };
      assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "tool", "assistant", "tool"]);
    }
  }));

test("the agent answers with its own tools, which are items only where they are asked for", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      files: { "a.txt": "forty-two" },
      script: [
        { text: "I look. ", toolCalls: [{ name: "read_file", arguments: { path: "a.txt" } }] },
        { text: "It says forty-two" },
        { text: "I look. ", toolCalls: [{ name: "read_file", arguments: { path: "a.txt" } }] },
        { text: "It says forty-two" },
      ],
    });
    const quiet = await gateway.call("/v1/responses", { body: { input: "What is in a.txt?" } });
    const whole = checkResponse(await quiet.json());
    assert.deepEqual(whole.output.map(({ type }) => type), ["message", "message"]);
    const body = { input: "What is in a.txt?", stream: true, include: ["postern:tool_calls"] };
    const { response } = checkEvents(await (await gateway.call("/v1/responses", { body })).text());
    assert.deepEqual(response.output.map(({ type }) => type), ["message", "postern:tool_call", "message"]);
    assert.match(JSON.stringify(response.output[1]), /forty-two/);
  }));

test("a refusal of the model's provider has the shape and the status of any error", () =>
  withWorld(async (world) => {
    const { client } = await startClient(world, {
      kind: "status",
      status: 422,
      body: { error: { message: "No", code: "bad", param: null } },
    });
    await assert.rejects(
      client.responses.create({ model: "plain/up/upstream-model", input: "x" }),
      (error: { status: number; code: string }) => error.status === 422 && error.code === "bad",
    );
  }));

test("a repeat under an Idempotency-Key is the same reply", () =>
  withWorld(async (world) => {
    const { gateway, upstream } = await startClient(world, { kind: "text", chunks: CHUNKS });
    const body = { model: "plain/up/upstream-model", input: "Say hello", stream: true };
    const headers = { "idempotency-key": "once" };
    const first = await (await gateway.call("/v1/responses", { body, headers })).text();
    const again = await (await gateway.call("/v1/responses", { body, headers })).text();
    assert.equal(again, first);
    checkEvents(first);
    assert.equal(upstream.turns.length, 1);
  }));

test("the tokens of an input are estimated, with its tools", () =>
  withWorld(async (world) => {
    const { client } = await startClient(world);
    const asked = { model: "plain/up/upstream-model", input: "Say hello" };
    const few = await client.responses.inputTokens.count(asked);
    const tools = [{ type: "function" as const, name: "look", parameters: { type: "object" }, strict: false }];
    const more = await client.responses.inputTokens.count({ ...asked, tools });
    assert.equal(few.object, "response.input_tokens");
    assert.ok(few.input_tokens > 0 && more.input_tokens > few.input_tokens);
  }));
