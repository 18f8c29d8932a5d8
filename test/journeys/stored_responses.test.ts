import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { toDelta, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { checkEvents, checkResponse } from "../support/response_events.ts";
import {
  readRefusal,
  readSse,
  type RunningGateway,
  until,
  type UpstreamReply,
  withWorld,
  type World,
} from "../support/world.ts";

async function startClient(world: World, ...script: readonly UpstreamReply[]) {
  const upstream = await world.upstream(...script);
  const gateway = await world.gateway({ config: { providers: { up: { base_url: upstream.baseUrl } } } });
  return { upstream, gateway, client: toClient(gateway) };
}

function toClient({ url }: RunningGateway, apiKey = TOKEN) {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
}
const TOKEN = "test-token-of-the-environment-0123456789";

async function newClient(gateway: RunningGateway) {
  const made = await (await gateway.call("/v1/tokens", { body: { label: "other", scopes: ["chat"] } })).json();
  return toClient(gateway, (made as { token: string }).token);
}

const model = "up/upstream-model";
const HELLO = { kind: "text", chunks: ["Hel", "lo"] } as const;
const WEATHER = {
  type: "function" as const,
  name: "weather",
  parameters: { type: "object", properties: {} },
  strict: false,
};
const CALL = toCall("weather", "{}");

function toCall(name: string, given: string): UpstreamReply {
  const called = { index: 0, id: "call_1", type: "function", function: { name, arguments: given } };
  return { kind: "chunks", chunks: [toDelta({ tool_calls: [called] }), toDelta({}, "tool_calls"), USAGE_CHUNK] };
}

/** Roles of the messages that the model's server was asked with, without the agent's own prompt. */
function asked(upstream: { readonly turns: readonly { readonly json: unknown }[] }) {
  const { messages } = upstream.turns.at(-1)?.json as { messages: readonly { role: string; content: unknown }[] };
  return messages.filter(({ role }) => role !== "system");
}

const isStatus = (status: number) => (error: { status?: number }) => error.status === status;

test("a stored response is read again as it was given, with its input, until it is deleted", () =>
  withWorld(async (world) => {
    const { client, gateway } = await startClient(world, HELLO);
    const first = await client.responses.create({
      model,
      input: [{ role: "user", content: "Say hello" }, { role: "user", content: "Please" }],
      instructions: "Be brief",
      metadata: { a: "b" },
    });
    assert.equal(first.output_text, "Hello");
    assert.deepEqual([first.metadata, first.instructions], [{ a: "b" }, "Be brief"]);
    const again = await (await gateway.call(`/v1/responses/${first.id}`)).json();
    assert.equal(checkResponse(again).store, true);
    const { output_text: _, ...given } = first as OpenAI.Responses.Response & { readonly _request_id?: string };
    assert.deepEqual(again, JSON.parse(JSON.stringify(given)));
    const runPath = `/v1/runs/${first.id.replace("resp_", "run_")}`;
    const run = await (await gateway.call(runPath)).json() as { readonly conversation_id: string };
    assert.equal(first.conversation?.id, run.conversation_id);

    // A client may ask to see more of it than its request included
    const include = ["reasoning.encrypted_content" as const];
    assert.equal((await client.responses.retrieve(first.id, { include })).output_text, "Hello");
    assert.equal((await client.responses.inputItems.list(first.id, { include })).data.length, 2);
    const seen = await gateway.call(`/v1/responses/${first.id}?stream=true&include=a&include=b`);
    assert.equal(seen.headers.get("x-postern-ignored"), "include");
    checkEvents(await seen.text());

    const items = await client.responses.inputItems.list(first.id, { order: "asc", limit: 1 });
    assert.equal(items.has_more, true);
    const texts: unknown[] = [];
    for await (const item of items) texts.push("content" in item && item.content);
    assert.deepEqual(texts, [[{ type: "input_text", text: "Say hello" }], [{ type: "input_text", text: "Please" }]]);
    const last = await client.responses.inputItems.list(first.id, { limit: 1 });
    assert.match(JSON.stringify(last.data), /Please/);

    const { store } = gateway.services;
    const isKept = async () => await store.get("run_responses", first.id.replace("resp_", "run_")) !== undefined;
    assert.equal(await isKept(), true);
    await client.responses.delete(first.id);
    assert.equal(await isKept(), false);
    await assert.rejects(client.responses.retrieve(first.id), isStatus(404));
    await assert.rejects(client.responses.delete(first.id), isStatus(404));
    assert.equal((await gateway.call(runPath)).status, 404);
    assert.equal((await gateway.call(`/v1/conversations/${run.conversation_id}`)).status, 404);
  }));

test("neither plain mode nor store: false keeps anything", () =>
  withWorld(async (world) => {
    const { client, gateway } = await startClient(world, HELLO);
    for (
      const asking of [{ model: `plain/${model}` }, { model: `plain/${model}`, store: true }, { model, store: false }]
    ) {
      const { id } = await client.responses.create({ ...asking, input: "Hi" });
      assert.equal((await gateway.call(`/v1/responses/${id}`)).status, 404, JSON.stringify(asking));
    }
    assert.deepEqual(await gateway.services.storedRuns.list({ limit: 10 }), { runs: [], hasMore: false });
    for (const state of [{ previous_response_id: "resp_1" }, { conversation: "c1" }, { background: true }]) {
      for (const asking of [{ model: `plain/${model}` }, { model, store: false }]) {
        const reply = await gateway.call("/v1/responses", { body: { ...asking, ...state, input: "Hi" } });
        const { status, code, param } = await readRefusal(reply);
        assert.deepEqual([status, code, param], [400, "unsupported_parameter", Object.keys(state)[0]]);
      }
    }
  }));

test("a response of another token is the same 404 as an unknown one, on every route", () =>
  withWorld(async (world) => {
    const { client, gateway, upstream } = await startClient(world, HELLO);
    const { id, conversation } = await client.responses.create({ model, input: "Hi" });
    const other = await newClient(gateway);
    const tail = id.slice("resp_".length);
    const turns = upstream.turns.length;
    const refusals = async (response: string, item: string, named: string) => {
      const found: unknown[] = [];
      const attempts = [
        () => other.responses.retrieve(response),
        () => other.responses.retrieve(response, { stream: true }),
        () => other.responses.cancel(response),
        () => other.responses.delete(response),
        () => other.responses.inputItems.list(response),
        () => other.responses.create({ model, input: "Hi", previous_response_id: response }),
        () => other.responses.create({ model, input: "Hi", conversation: named }),
        () => other.responses.create({ model, input: [{ type: "item_reference", id: item }] }),
      ];
      for (const attempt of attempts) {
        await assert.rejects(attempt as () => Promise<unknown>, (error: { status: number; message: string }) => {
          found.push([error.status, error.message]);
          return true;
        });
      }
      return found;
    };
    const foreign = await refusals(id, `msg_${tail}_0`, conversation?.id ?? "");
    assert.deepEqual(foreign, await refusals("resp_unknown", "msg_unknown_0", "conv_unknown"));
    assert.ok(foreign.every((one) => Array.isArray(one) && one[0] === 404), JSON.stringify(foreign));
    assert.equal(upstream.turns.length, turns);
    assert.equal((await client.responses.retrieve(id)).output_text, "Hello");
    // A token's own work is its own without the scope runs
    const own = await other.responses.create({ model, input: "Hi" });
    assert.equal((await other.responses.retrieve(own.id)).id, own.id);
  }));

test("previous_response_id goes on in the conversation, also with outputs of calls", () =>
  withWorld(async (world) => {
    const { client, upstream } = await startClient(world, HELLO, CALL, { kind: "text", chunks: ["Sunny"] });
    const first = await client.responses.create({ model, input: "Say hello", instructions: "Be brief" });
    const called = await client.responses.create({
      model,
      previous_response_id: first.id,
      input: "And the weather?",
      tools: [WEATHER],
    });
    assert.equal(called.previous_response_id, first.id);
    assert.deepEqual(called.conversation, first.conversation);
    const call = called.output.find((item) => item.type === "function_call") ?? assert.fail("no call");
    const last = await client.responses.create({
      model,
      previous_response_id: called.id,
      input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
      tools: [WEATHER],
    });
    assert.equal(last.output_text, "Sunny");
    assert.deepEqual(asked(upstream).map(({ role }) => role), ["user", "assistant", "user", "assistant", "tool"]);
    assert.doesNotMatch(JSON.stringify(upstream.turns.at(-1)?.json), /Be brief/);
    const named = await client.responses.create({ model, conversation: first.conversation?.id ?? "", input: "Hi" });
    assert.deepEqual(named.conversation, first.conversation);
    assert.equal(asked(upstream).length, 7);
    // The conversation has more than this response, so it stays
    await client.responses.delete(last.id);
    await client.responses.create({ model, previous_response_id: named.id, input: "Hi" });
    assert.equal(asked(upstream).length, 9);
  }));

test("the agent's own work before a call of the client is told once to the model that goes on", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      files: { "a.txt": "forty-two" },
      script: [
        { toolCalls: [{ name: "read_file", arguments: { path: "a.txt" } }, { name: "weather", arguments: {} }] },
        { text: "Sunny" },
        { text: "Sunny" },
      ],
    });
    const client = toClient(gateway);
    const first = await client.responses.create({ input: "Look, and tell the weather", tools: [WEATHER] });
    const call = first.output.find((item) => item.type === "function_call") ?? assert.fail("no call");
    const output = { type: "function_call_output" as const, call_id: call.call_id, output: "sunny" };
    const roles = () =>
      gateway.provider.requests.at(-1)?.messages.map(({ role }) => role).filter((role) => role !== "system");
    await client.responses.create({ previous_response_id: first.id, input: [output], tools: [WEATHER] });
    assert.deepEqual(roles(), ["user", "assistant", "tool", "tool"]);
    // Without the conversation it is put back in its place
    const input = [{ type: "item_reference" as const, id: call.id ?? "" }, output];
    await client.responses.create({ input: [{ role: "user", content: "Look" }, ...input], tools: [WEATHER] });
    assert.deepEqual(roles(), ["user", "assistant", "tool", "tool"]);
  }));

test("references to items of stored responses are these items", () =>
  withWorld(async (world) => {
    const { client, upstream, gateway } = await startClient(world, CALL, HELLO);
    const first = await client.responses.create({ model, input: "The weather?", tools: [WEATHER] });
    const [call] = first.output;
    assert.equal(call?.type, "function_call");
    const { data: [said] } = await client.responses.inputItems.list(first.id);
    const input: OpenAI.Responses.ResponseInput = [
      { type: "item_reference", id: said?.id ?? "" },
      { type: "item_reference", id: call?.id ?? "" },
      { type: "function_call_output", call_id: "call_id" in call ? call.call_id : "", output: "sunny" },
    ];
    const second = await client.responses.create({ model, input, tools: [WEATHER] });
    assert.equal(second.output_text, "Hello");
    assert.deepEqual(asked(upstream).map(({ role }) => role), ["user", "assistant", "tool"]);
    // The input that is kept has the items themselves
    const kept = await client.responses.inputItems.list(second.id, { order: "asc" });
    assert.deepEqual(kept.data.map(({ type }) => type), ["message", "function_call", "function_call_output"]);
    const plain = await gateway.call("/v1/responses", { body: { model: `plain/${model}`, input } });
    assert.equal((await readRefusal(plain)).code, "unsupported_parameter");
  }));

test("calls of tools that a search found are read again as they were given, and items refer to them", () =>
  withWorld(async (world) => {
    const search = { type: "tool_search" as const, execution: "client" as const, parameters: { type: "object" } };
    const sky = {
      type: "namespace" as const,
      name: "sky",
      description: "",
      tools: [{ ...WEATHER, defer_loading: true }],
    };
    const { client, upstream, gateway } = await startClient(
      world,
      toCall("tool_search", '{"query":"sky"}'),
      toCall("sky.weather", "{}"),
      HELLO,
      toCall("sky.weather", "{}"),
    );
    const asking = { model, tools: [search] };
    const first = await client.responses.create({ ...asking, input: "The weather?" });
    const called = first.output.find((item): item is OpenAI.Responses.ResponseToolSearchCall =>
      item.type === "tool_search_call"
    ) ?? assert.fail("no search");
    assert.deepEqual((await client.responses.retrieve(first.id)).output, first.output);
    const { id: searched, call_id } = called;
    const found = { type: "tool_search_output" as const, call_id, execution: "client" as const, tools: [sky] };
    const input: OpenAI.Responses.ResponseInput = [
      { role: "user", content: "The weather?" },
      { type: "item_reference", id: searched },
      found,
    ];
    const stream = checkEvents(
      await (await gateway.call("/v1/responses", { body: { ...asking, input, stream: true } })).text(),
    );
    const [call] = stream.response.output;
    assert.deepEqual(call?.type === "function_call" && [call.name, call["namespace"]], ["weather", "sky"]);
    const { id } = stream.response;
    assert.deepEqual((await client.responses.retrieve(id)).output, stream.response.output);
    const again = await (await gateway.call(`/v1/responses/${id}?stream=true`)).text();
    assert.deepEqual(checkEvents(again).response.output, stream.response.output);
    const kept = await client.responses.inputItems.list(id, { order: "asc" });
    assert.deepEqual(kept.data.map(({ type }) => type), ["message", "tool_search_call", "tool_search_output"]);
    // A request that goes on has the tools that were found before, however many responses lie between
    const told = () => {
      const { tools } = upstream.turns.at(-1)?.json as { tools: readonly { function: { name: string } }[] };
      return tools.map(({ function: { name } }) => name).filter((name) => name.startsWith("sky"));
    };
    const names = told();
    assert.equal(names.length, 1);
    const output: OpenAI.Responses.ResponseInput = [
      { type: "function_call_output", call_id: String(call?.["call_id"]), output: "sunny" },
    ];
    upstream.script(HELLO, HELLO, HELLO, toCall("sky.weather", "{}"));
    const next = await client.responses.create({ ...asking, previous_response_id: id, input: output });
    assert.deepEqual(told(), names);
    const last = await client.responses.create({ ...asking, previous_response_id: next.id, input: "And?" });
    assert.deepEqual(told(), names);
    const conversation = last.conversation?.id ?? "";
    // What is said by another way brings nothing, and takes nothing away
    const chat = await gateway.call("/api/chat", { body: { message: "Hm", conversation_id: conversation, model } });
    assert.equal(chat.status, 200);
    const named = await client.responses.create({ ...asking, conversation, input: "Or?" });
    assert.deepEqual([told(), named.output[0]?.type === "function_call" && named.output[0].namespace], [names, "sky"]);
    assert.deepEqual((await client.responses.retrieve(named.id)).output, named.output);
    upstream.script(HELLO, toCall("sky.weather", "{}"));
    // References bring the tools of the items that they stand for
    const refers = kept.data.map((item) => ({ type: "item_reference" as const, id: item.id ?? "" }));
    assert.equal((await client.responses.create({ ...asking, input: refers })).output_text, "Hello");
    assert.deepEqual(asked(upstream).map(({ role }) => role), ["user", "assistant", "tool"]);
    assert.match(JSON.stringify(upstream.turns.at(-1)?.json), /"name":"sky_weather_/);
    // An input that is too large to be kept leaves the names of its tools
    const image_url = `data:image/png;base64,${"A".repeat(4 * 1024 * 1024)}`;
    const content = [{ type: "input_image" as const, image_url, detail: "auto" as const }];
    const large = await client.responses.create({ ...asking, input: [...refers, { role: "user", content }] });
    assert.equal(large.output[0]?.type === "function_call" && large.output[0].namespace, "sky");
    assert.deepEqual((await client.responses.retrieve(large.id)).output, large.output);
    await assert.rejects(client.responses.inputItems.list(large.id), isStatus(404));
  }));

test("of tools that items bring again and again the last ones are kept, and more than can be kept is refused with the way out", () =>
  withWorld(async (world) => {
    const { client, upstream } = await startClient(world, HELLO);
    const bringing = (description: string): OpenAI.Responses.ResponseInput => [
      { type: "additional_tools", role: "developer", tools: [{ ...WEATHER, description }] },
      { role: "user", content: "Hi" },
    ];
    const large = (mark: string) => mark.repeat(1.5 * 1024 * 1024);
    let previous_response_id: string | undefined;
    for (const mark of ["a", "b", "c"]) {
      const asking = { model, input: bringing(large(mark)), ...previous_response_id && { previous_response_id } };
      previous_response_id = (await client.responses.create(asking)).id;
    }
    const { tools } = upstream.turns.at(-1)?.json as {
      tools: readonly { function: { name: string; description: string } }[];
    };
    assert.equal(tools.find(({ function: { name } }) => name === "weather")?.function.description, large("c"));
    const asking = { model, input: bringing(large("d").repeat(3)) };
    await assert.rejects(client.responses.create(asking), (error: { status?: number; message: string }) => {
      assert.match(error.message, /"store": false and the whole history as "input"/);
      return error.status === 413;
    });
    // Nothing is stored of what is only counted
    assert.ok((await client.responses.inputTokens.count(asking)).input_tokens > 1024 * 1024);
  }));

test("tokens of an input are counted with the history that it goes on with", () =>
  withWorld(async (world) => {
    const { client } = await startClient(world, { kind: "text", chunks: ["word ".repeat(200)] });
    const first = await client.responses.create({ model, input: "Say much" });
    const long = await client.responses.create({ model, input: "More", previous_response_id: first.id });
    const count = async (more: Omit<OpenAI.Responses.InputTokenCountParams, "model" | "input"> = {}) =>
      (await client.responses.inputTokens.count({ model, input: "And?", ...more })).input_tokens;
    const alone = await count();
    const [some, all] = [
      await count({ previous_response_id: first.id }),
      await count({ previous_response_id: long.id }),
    ];
    assert.ok(some > alone + 150 && all > some + 150, `${alone} ${some} ${all}`);
    assert.equal(await count({ conversation: first.conversation?.id ?? "" }), all);
    assert.ok(await count({ instructions: "Be brief in all that you say" }) > alone);
    await assert.rejects(count({ previous_response_id: "resp_unknown" }), isStatus(404));
  }));

test("a stored stream is told again with the same events, from any of them on", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      files: { "a.txt": "forty-two" },
      script: [
        { text: ["I ", "look. "], toolCalls: [{ name: "read_file", arguments: { path: "a.txt" } }] },
        { text: ["It says ", "forty-two"] },
      ],
    });
    const body = { input: "What is in a.txt?", stream: true, include: ["postern:tool_calls"] };
    const told = await (await gateway.call("/v1/responses", { body })).text();
    const { events, response } = checkEvents(told);
    assert.deepEqual(response.output.map(({ type }) => type), ["message", "postern:tool_call", "message"]);
    const path = `/v1/responses/${response.id}`;
    assert.equal(await (await gateway.call(`${path}?stream=true`)).text(), told);
    assert.deepEqual(await (await gateway.call(path)).json(), response);
    const numbers = events.map(({ sequence_number: number }) => number);
    assert.deepEqual(told.match(/^id: \d+$/gm), numbers.map((number) => `id: ${number}`));
    for (const [at, number] of numbers.entries()) {
      const rest = readSse(told).data.slice(at + 1);
      const after = await gateway.call(`${path}?stream=true&starting_after=${number}`);
      assert.deepEqual(readSse(await after.text()).data, rest);
      const headers = { "last-event-id": String(number) };
      const same = await gateway.call(`${path}?stream=true&starting_after=0`, { headers });
      assert.deepEqual(readSse(await same.text()).data, rest);
    }
    const beyond = await gateway.call(`${path}?stream=true&starting_after=${(numbers.at(-1) ?? 0) + 5000}`);
    assert.deepEqual(await readRefusal(beyond).then(({ status, param }) => [status, param]), [400, "starting_after"]);
    const client = toClient(gateway);
    const seen: number[] = [];
    for await (
      const event of await client.responses.retrieve(response.id, { stream: true, starting_after: numbers[2] ?? 0 })
    ) {
      seen.push(event.sequence_number);
    }
    assert.deepEqual(seen, numbers.slice(3));
  }));

test("work in the background is polled, streamed and cancelled", () =>
  withWorld(async (world) => {
    const { client, upstream } = await startClient(world, { kind: "stall", chunks: ["Hel", "lo"] });
    const begun = await client.responses.create({ model, input: "Hi", background: true });
    assert.deepEqual([begun.status, begun.background, begun.output], ["queued", true, []]);
    await until(() => upstream.turns.length === 1);
    const stream = await client.responses.retrieve(begun.id, { stream: true });
    const types: string[] = [];
    for await (const event of stream) {
      types.push(event.type);
      if (event.type !== "response.output_text.delta" || event.delta !== "lo") continue;
      assert.equal((await client.responses.retrieve(begun.id)).status, "in_progress");
      await assert.rejects(client.responses.delete(begun.id), isStatus(409));
      await assert.rejects(
        client.responses.create({ model, previous_response_id: begun.id, input: "Hi" }),
        isStatus(409),
      );
      assert.equal((await client.responses.cancel(begun.id)).status, "cancelled");
    }
    assert.equal(types.at(-1), "response.failed");
    const ended = await client.responses.retrieve(begun.id);
    assert.equal(ended.status, "cancelled");
    await assert.rejects(client.responses.cancel(begun.id), isStatus(409));
    upstream.script(HELLO);
    const next = await client.responses.create({ model, input: "Hi", background: true });
    await until(async () => (await client.responses.retrieve(next.id)).status === "completed");
    assert.equal((await client.responses.retrieve(next.id)).output_text, "Hello");
    // A reader that leaves changes nothing
    const left = await client.responses.create({ model, input: "Hi", background: true, stream: true });
    let id = "";
    for await (const event of left) {
      if (event.type === "response.created") id = event.response.id;
      break;
    }
    await until(async () => (await client.responses.retrieve(id)).status === "completed");
  }));

test("a repeat under an Idempotency-Key is the same stored response", () =>
  withWorld(async (world) => {
    const { client, upstream, gateway } = await startClient(world, HELLO);
    for (const more of [{ background: true }, {}, { stream: true }]) {
      const turns = upstream.turns.length;
      const init = { body: { model, input: "Hi", ...more }, headers: { "idempotency-key": JSON.stringify(more) } };
      const [first, again] = [await gateway.call("/v1/responses", init), await gateway.call("/v1/responses", init)];
      const text = await first.text();
      assert.equal(await again.text(), text);
      const [, id = ""] = /"id":"(resp_\w+)"/.exec(text) ?? [];
      await until(async () => (await client.responses.retrieve(id)).status === "completed");
      assert.equal(upstream.turns.length, turns + 1);
    }
  }));

test("a stored response in the foreground goes on without its reader, who reads on under its id", () =>
  withWorld(async (world) => {
    const { client, upstream } = await startClient(world, { kind: "stall", chunks: ["Hel"] });
    const stream = await client.responses.create({ model, input: "Hi", stream: true });
    let id = "";
    for await (const event of stream) {
      if (event.type === "response.created") id = event.response.id;
      if (event.type === "response.output_text.delta") break;
    }
    assert.equal((await client.responses.retrieve(id)).status, "in_progress");
    for await (const event of await client.responses.retrieve(id, { stream: true })) {
      if (event.type !== "response.output_text.delta") continue;
      assert.equal(event.delta, "Hel");
      break;
    }
    await client.responses.cancel(id);
    assert.equal((await client.responses.retrieve(id)).status, "cancelled");
    assert.equal(upstream.turns.length, 1);
  }));

test("an input over 4 MiB is answered and not kept", () =>
  withWorld(async (world) => {
    const { client } = await startClient(world, HELLO);
    const image_url = `data:image/png;base64,${"A".repeat(4 * 1024 * 1024)}`;
    const content = [{ type: "input_image" as const, image_url, detail: "auto" as const }];
    const { id } = await client.responses.create({ model, input: [{ role: "user", content }] });
    assert.equal((await client.responses.retrieve(id)).output_text, "Hello");
    await assert.rejects(client.responses.inputItems.list(id), isStatus(404));
    // The bound is of bytes: each of these characters has three
    const wide = await client.responses.create({ model, input: "\u6f22".repeat(1.5 * 1024 * 1024) });
    await assert.rejects(client.responses.inputItems.list(wide.id), isStatus(404));
  }));
