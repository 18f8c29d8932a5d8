import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { ProviderError } from "../../lib/base/errors.ts";
import { type RunningGateway, until, withWorld } from "../support/world.ts";

const clientOf = (gateway: RunningGateway, headers: Record<string, string> = {}) =>
  new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token, maxRetries: 0, defaultHeaders: headers });

test("the official client: a JSON reply", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [{ text: ["Hello", ", wörld"] }] });
    const reply = await clientOf(gateway).chat.completions.create({
      model: "some-model",
      messages: [{ role: "user", content: "Hi" }],
    });
    assert.equal(reply.object, "chat.completion");
    assert.equal(reply.model, "some-model");
    assert.equal(reply.choices[0]?.message.content, "Hello, wörld");
    assert.equal(reply.choices[0]?.finish_reason, "stop");
    assert.deepEqual(reply.usage, { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 });
    assert.match(reply.id, /^chatcmpl-/);
  }));

test("the official client: a stream with usage, equal to the JSON reply", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [{ text: ["one ", "two ", "three"] }] });
    const stream = await clientOf(gateway).chat.completions.create({
      model: "m",
      messages: [{ role: "user", content: "Hi" }],
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
    assert.deepEqual(chunks[0]?.choices[0]?.delta, { role: "assistant", content: "" });
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), "one two three");
    assert.equal(chunks.at(-2)?.choices[0]?.finish_reason, "stop");
    assert.deepEqual(chunks.at(-1)?.choices, []);
    assert.equal(chunks.at(-1)?.usage?.total_tokens, 15);
  }));

test("the official client: the agent uses its own tool on a real file and never shows a tool call", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      files: { "notes.txt": "The launch code is GREEN-7.\n" },
      script: (request, turn) =>
        turn === 0
          ? { toolCalls: [{ name: "read_file", arguments: { path: "notes.txt" } }] }
          : { text: `Found: ${request.messages.at(-1)?.content}` },
    });
    const reply = await clientOf(gateway).chat.completions.create({
      model: "m",
      messages: [{ role: "user", content: "What is the code?" }],
    });
    assert.match(reply.choices[0]?.message.content ?? "", /Found: The launch code is GREEN-7\./);
    assert.equal(reply.choices[0]?.message.tool_calls, undefined);
    assert.equal(reply.choices[0]?.finish_reason, "stop");
  }));

test("the official client: a tool of its own, there and back", () =>
  withWorld(async (world) => {
    const tools: OpenAI.ChatCompletionTool[] = [{
      type: "function",
      function: {
        name: "get_weather",
        description: "The weather",
        parameters: { type: "object", properties: { city: { type: "string" } } },
      },
    }];
    const gateway = await world.gateway({
      script: (_request, turn) =>
        turn === 0
          ? { toolCalls: [{ name: "get_weather", arguments: ['{"city":', '"Graz"}'] }] }
          : { text: "It rains in Graz." },
    });
    const client = clientOf(gateway);
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Weather in Graz?" }];
    const first = await client.chat.completions.create({ model: "m", messages, tools });
    assert.equal(first.choices[0]?.finish_reason, "tool_calls");
    const call = first.choices[0]?.message.tool_calls?.[0];
    assert.ok(call?.type === "function");
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Graz" });
    messages.push(first.choices[0]?.message as OpenAI.ChatCompletionMessageParam, {
      role: "tool",
      tool_call_id: call.id,
      content: "rain",
    });
    const second = await client.chat.completions.create({ model: "m", messages, tools });
    assert.equal(second.choices[0]?.message.content, "It rains in Graz.");
    assert.equal(gateway.provider.requests[1]?.messages.at(-1)?.role, "tool");
  }));

test("the official client: runTools() drives a streamed client tool to its answer", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      script: (_request, turn) =>
        turn === 0 ? { toolCalls: [{ name: "add", arguments: { a: 2, b: 3 } }] } : { text: ["The sum ", "is 5."] },
    });
    const runner = clientOf(gateway).chat.completions.runTools({
      model: "m",
      stream: true,
      messages: [{ role: "user", content: "2 + 3?" }],
      tools: [{
        type: "function",
        function: {
          name: "add",
          description: "Adds",
          parameters: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
          parse: JSON.parse,
          function: ({ a, b }: { a: number; b: number }) => String(a + b),
        },
      }],
    });
    assert.equal(await runner.finalContent(), "The sum is 5.");
  }));

test("the official client: errors keep status, code, type and param", () =>
  withWorld(async (world) => {
    const missing = new ProviderError(
      "model_not_found",
      'Cannot use the model "nope": the provider has no such model',
      {
        provider: "scripted",
        status: 404,
      },
    );
    const gateway = await world.gateway({ script: [{ errorBefore: missing }] });
    const client = clientOf(gateway);
    const ask = (body: Partial<OpenAI.ChatCompletionCreateParamsNonStreaming>) =>
      client.chat.completions.create({ model: "nope", messages: [{ role: "user", content: "Hi" }], ...body });
    await assert.rejects(ask({}), (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
    await assert.rejects(
      ask({ n: 2 }),
      (error) =>
        error instanceof OpenAI.BadRequestError && error.code === "unsupported_parameter" && error.param === "n",
    );
    await assert.rejects(
      ask({ messages: [] }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === "messages",
    );
    const stranger = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: "pst_wrong", maxRetries: 0 });
    await assert.rejects(
      stranger.models.list(),
      (error) => error instanceof OpenAI.AuthenticationError && error.code === "auth_invalid",
    );
  }));

test("the official client: a failure in the middle of a stream is an error, not a clean end", () =>
  withWorld(async (world) => {
    const broken = new ProviderError("provider_error", "Cannot read the reply: the connection broke", {
      provider: "scripted",
    });
    const gateway = await world.gateway({ script: [{ text: "half a ", errorAfter: broken }] });
    const stream = await clientOf(gateway).chat.completions.create({
      model: "m",
      messages: [{ role: "user", content: "Hi" }],
      stream: true,
    });
    let text = "";
    await assert.rejects(async () => {
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
    }, OpenAI.APIError);
    assert.equal(text, "half a ");
  }));

test("the official client: abort() stops the model at once", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [{ text: "first", hang: "after" }, "still here"] });
    const client = clientOf(gateway);
    const stream = await client.chat.completions.create({
      model: "m",
      messages: [{ role: "user", content: "Hi" }],
      stream: true,
    });
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content === "first") break;
    await until(() => gateway.provider.active === 0);
    assert.equal(gateway.provider.aborted, 1);
    const next = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "Hi" }] });
    assert.equal(next.choices[0]?.message.content, "still here");
  }));

test("the official client: models", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [] });
    const client = clientOf(gateway);
    const list = await client.models.list();
    assert.deepEqual(list.data.map((model) => model.object), ["model"]);
    const id = list.data[0]?.id ?? "";
    assert.equal((await client.models.retrieve(id)).id, id);
    await assert.rejects(client.models.retrieve("missing"), OpenAI.NotFoundError);
  }));

test("the official client: a stream starts once the model has begun, before its first word", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [{ begins: true, hang: "before" }] });
    const stream = await clientOf(gateway).chat.completions.create({
      model: "m",
      messages: [{ role: "user", content: "Hi" }],
      stream: true,
    });
    for await (const chunk of stream) {
      assert.deepEqual(chunk.choices[0]?.delta, { role: "assistant", content: "" });
      break;
    }
    await until(() => gateway.provider.active === 0);
  }));
