import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { MockLanguageModelV3, MockLanguageModelV4 } from "ai/test";
import assert from "node:assert/strict";
import { test } from "node:test";
import { type AiSdkModel, defineTool, fromAiSdk, type ProgramProvider } from "../../handlers/mod.ts";
import { createTestGateway, type TestGateway } from "../../handlers/testing/mod.ts";

type Options = Readonly<Record<string, unknown>> & { readonly abortSignal: AbortSignal };

/** A model of a specification whose turns are lists of parts, and what it was asked. */
function modelOf(turns: readonly (readonly object[])[], specificationVersion: string = "v3") {
  const asked: Options[] = [];
  const model: AiSdkModel = {
    ...{ specificationVersion, provider: "fake.chat", modelId: "fake-1" },
    doStream: (options: Options) => {
      asked.push(options);
      const parts = turns[asked.length - 1] ?? assert.fail("asked too often");
      return Promise.resolve({ stream: ReadableStream.from(parts) });
    },
  };
  return { model, asked };
}

const tokens = (total: number) => ({ total, noCache: total, cacheRead: 1, cacheWrite: 0, text: total, reasoning: 2 });
const finish = (unified: string) => ({
  ...{ type: "finish", finishReason: { unified, raw: unified } },
  usage: { inputTokens: tokens(7), outputTokens: tokens(3) },
});
const said = (text: string) => [
  { type: "stream-start", warnings: [] },
  { type: "text-start", id: "t" },
  { type: "text-delta", id: "t", delta: text },
  { type: "text-end", id: "t" },
  finish("stop"),
];

async function withModel(
  provider: ProgramProvider,
  use: (gateway: TestGateway) => Promise<void>,
  tools: readonly ReturnType<typeof defineTool>[] = [],
): Promise<void> {
  const gateway = await createTestGateway({ providers: { sdk: provider }, tools });
  try {
    await use(gateway);
  } finally {
    await gateway.close();
  }
}

/** Sends a plain completion. */
async function complete(gateway: TestGateway, body: object) {
  const reply = await gateway.request("/v1/chat/completions", {
    headers: { "x-postern-tools": "none" },
    json: { model: "sdk/fake-1", messages: [{ role: "user", content: "hi" }], ...body },
  });
  return { status: reply.status, headers: reply.headers, body: await reply.json() as Record<string, never> };
}

const beans = defineTool({
  ...{ name: "beans", description: "Counts", access: "read", outside: false },
  inputSchema: { type: "object", properties: { bed: { type: "string" } } },
  execute: ({ bed }) => `3 in ${bed}`,
});

test("a model of OpenAI's format streams text, tool calls and usage through the package of the AI SDK", async () => {
  const bodies: Record<string, never>[] = [];
  const chunk = (delta: object, more: object = {}) =>
    `data: ${JSON.stringify({ id: "c", model: "m", choices: [{ index: 0, delta, ...more }] })}\n\n`;
  const call = { index: 0, id: "call_1", type: "function", function: { name: "beans", arguments: '{"bed":' } };
  const turns = [
    chunk({ tool_calls: [call] }) + chunk({ tool_calls: [{ index: 0, function: { arguments: '"north"}' } }] }) +
    chunk({}, { finish_reason: "tool_calls" }),
    chunk({ content: "There are " }) + chunk({ content: "three" }) + chunk({}, { finish_reason: "stop" }) +
    `data: ${JSON.stringify({ id: "c", choices: [], usage: { prompt_tokens: 9, completion_tokens: 4 } })}\n\n`,
  ];
  const { chatModel } = createOpenAICompatible({
    ...{ name: "local", baseURL: "http://127.0.0.1:9/v1", includeUsage: true },
    fetch: (_url, init) => {
      bodies.push(JSON.parse(String(init?.body)));
      const text = `${turns[bodies.length - 1]}data: [DONE]\n\n`;
      return Promise.resolve(new Response(text, { headers: { "content-type": "text/event-stream" } }));
    },
  });
  const provider = fromAiSdk(chatModel("m"));
  await withModel(provider, async (gateway) => {
    const run = gateway.run("How many?", { model: "sdk/m" });
    assert.deepEqual(await Array.fromAsync(run.textStream), ["There are ", "three"]);
    const { result, usage } = await run;
    assert.equal(result, "There are three");
    assert.ok(usage.total_tokens >= 13);
    const sent = bodies[1]?.["messages"] as unknown as Record<string, unknown>[];
    assert.deepEqual(sent.slice(-2).map(({ role, content, tool_call_id }) => [role, content, tool_call_id]), [
      ["assistant", sent.at(-2)?.["content"], undefined],
      ["tool", "3 in north", "call_1"],
    ]);
  }, [beans]);
});

test("models of the three specifications give text, usage and the name of the model", async () => {
  const stream = () => Promise.resolve({ stream: ReadableStream.from(said("Hello")) as ReadableStream });
  const v2 = [...said("Hello").slice(0, -1), {
    ...{ type: "finish", finishReason: "stop" },
    usage: { inputTokens: 7, outputTokens: 3, totalTokens: 10, cachedInputTokens: 1, reasoningTokens: 2 },
  }];
  const models: readonly AiSdkModel[] = [
    { ...modelOf([v2], "v2").model, modelId: "two" },
    new MockLanguageModelV3({ modelId: "three", doStream: stream }),
    new MockLanguageModelV4({ modelId: "four", doStream: stream }),
  ];
  await withModel(fromAiSdk(models), async (gateway) => {
    for (const { modelId } of models) {
      const { body } = await complete(gateway, { model: `sdk/${modelId}` });
      const [{ message, finish_reason }] = body["choices"] as unknown as [{ message: object; finish_reason: string }];
      assert.deepEqual([message, finish_reason], [{ role: "assistant", content: "Hello", refusal: null }, "stop"]);
      assert.partialDeepStrictEqual(body["usage"], {
        ...{ prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
        ...{ prompt_tokens_details: { cached_tokens: 1 }, completion_tokens_details: { reasoning_tokens: 2 } },
      });
    }
  });
});

test("a request reaches the model in its words", async () => {
  const { model, asked } = modelOf([said("ok")], "v4");
  const picture = "iVBORw0KGgoAAAANSUhEUg==";
  const calls = [
    { id: "a", type: "function", function: { name: "one", arguments: '{"x":1}' } },
    { id: "b", type: "function", function: { name: "two", arguments: "no JSON" } },
  ];
  await withModel(fromAiSdk(model), async (gateway) => {
    const { status } = await complete(gateway, {
      messages: [
        { role: "system", content: "Be brief" },
        {
          role: "user",
          content: [
            { type: "text", text: "Look" },
            { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } },
            { type: "image_url", image_url: { url: "https://a.example/b.png" } },
          ],
        },
        { role: "assistant", content: null, tool_calls: calls },
        { role: "tool", tool_call_id: "a", content: "1" },
        { role: "tool", tool_call_id: "b", content: "2" },
        { role: "user", content: "And now?" },
      ],
      ...{ max_completion_tokens: 50, temperature: 0.5, top_p: 0.9, stop: "END", seed: 4, reasoning_effort: "low" },
      ...{ tool_choice: { type: "function", function: { name: "one" } } },
      tools: [{ type: "function", function: { name: "one", description: "d", parameters: { type: "object" } } }],
      response_format: { type: "json_schema", json_schema: { name: "n", schema: { type: "object" } } },
    });
    assert.equal(status, 200);
    const [{ prompt, abortSignal, ...call }] = asked as unknown as [Record<string, unknown>];
    assert.ok(abortSignal instanceof AbortSignal);
    assert.deepEqual(prompt, [
      { role: "system", content: "Be brief" },
      {
        role: "user",
        content: [
          { type: "text", text: "Look" },
          { type: "file", mediaType: "image/png", data: { type: "data", data: picture } },
          { type: "file", mediaType: "image/*", data: { type: "url", url: new URL("https://a.example/b.png") } },
        ],
      },
      {
        role: "assistant",
        content: [
          { type: "tool-call", toolCallId: "a", toolName: "one", input: { x: 1 } },
          { type: "tool-call", toolCallId: "b", toolName: "two", input: {} },
        ],
      },
      ...["a", "b"].map((id, at) => ({
        role: "tool",
        content: [{
          ...{ type: "tool-result", toolCallId: id, toolName: ["one", "two"][at] },
          output: { type: "text", value: String(at + 1) },
        }],
      })),
      { role: "user", content: [{ type: "text", text: "And now?" }] },
    ]);
    assert.partialDeepStrictEqual(call, {
      ...{ maxOutputTokens: 50, temperature: 0.5, topP: 0.9, stopSequences: ["END"], seed: 4, reasoning: "low" },
      responseFormat: { type: "json", schema: { type: "object" }, name: "n" },
      toolChoice: { type: "tool", toolName: "one" },
    });
    assert.partialDeepStrictEqual(call["tools"], [{ type: "function", name: "one", description: "d" }]);
  });
});

test("reasoning and its signatures come back to the model; calls that come whole, in parts or as text are one", async () => {
  const signed = { anthropic: { signature: "s-1" } };
  const call = (id: string, bed: string) => ({
    ...{ type: "tool-call", toolCallId: id, toolName: "beans", input: JSON.stringify({ bed }) },
    ...(id === "w" ? { providerMetadata: { google: { thoughtSignature: "t-1" } } } : {}),
  });
  const begin = (id: string, more: object = {}) => ({ type: "tool-input-start", id, toolName: "beans", ...more });
  const { model, asked } = modelOf([
    [
      { type: "stream-start", warnings: [{ type: "unsupported", feature: "topK" }] },
      { type: "response-metadata", modelId: "fake-1-2026" },
      { type: "reasoning-start", id: "r" },
      { type: "reasoning-delta", id: "r", delta: "I think" },
      { type: "reasoning-end", id: "r", providerMetadata: signed },
      call("w", "west"),
      begin("n"),
      { type: "tool-input-delta", id: "n", delta: '{"bed":' },
      { type: "tool-input-delta", id: "n", delta: '"north"}' },
      call("n", "north"),
      begin("s", { inputEncoding: "text" }),
      { type: "tool-input-delta", id: "s", delta: "south" },
      call("s", "south"),
      begin("v", { providerExecuted: true, toolName: "search" }),
      { type: "tool-input-delta", id: "v", delta: "{}" },
      { ...call("v", "v"), providerExecuted: true, toolName: "search" },
      { type: "tool-result", toolCallId: "v", toolName: "search", result: {} },
      { type: "source", sourceType: "url", id: "x", url: "https://a.example" },
      finish("tool-calls"),
    ],
    said("Nine"),
  ]);
  await withModel(fromAiSdk(model), async (gateway) => {
    const run = gateway.run("Count", { model: "sdk/fake-1" });
    const events = await Array.fromAsync(run);
    const outputs = events.flatMap((event) => event.type === "tool_end" ? [event.output] : []);
    assert.deepEqual(outputs.toSorted(), ["3 in north", "3 in south", "3 in west"]);
    assert.ok(events.some((event) => event.type === "notice" && event.message.includes("unsupported topK")));
    const prompt = asked[1]?.["prompt"] as { role: string; content: object[] }[];
    const assistant = prompt.find(({ role }) => role === "assistant");
    assert.deepEqual(assistant?.content[0], { type: "reasoning", text: "I think", providerOptions: signed });
    assert.partialDeepStrictEqual(assistant?.content.slice(1), [
      { type: "tool-call", input: { bed: "west" }, providerOptions: { google: { thoughtSignature: "t-1" } } },
      { type: "tool-call", input: { bed: "north" } },
      { type: "tool-call", input: { bed: "south" } },
    ]);
  }, [beans]);
});

test("an error of the model is that of any upstream, wherever it comes", async () => {
  const failed = (more: object) => Object.assign(new Error("secret words of a library"), more);
  const cases: readonly (readonly [error: Error, status: number, told: RegExp])[] = [
    [failed({ statusCode: 429, responseHeaders: { "retry-after": "7" }, responseBody: "" }), 429, /limits the rate/],
    [
      failed({ statusCode: 400, responseBody: '{"error":{"message":"bad temperature"}}' }),
      400,
      /refused the request \(400\): bad temperature/,
    ],
    [failed({ statusCode: 401, responseBody: "" }), 502, /check the key that the program made its model with/],
    [failed({ isRetryable: true }), 502, /could not be reached/],
    [failed({}), 502, /the log of the gateway has its error/],
  ];
  for (const [error, status, words] of cases) {
    const { model } = modelOf([[{ type: "error", error }], [{ type: "error", error }]]);
    const thrown: AiSdkModel = { ...model, modelId: "throws", doStream: () => Promise.reject(error) };
    await withModel(fromAiSdk([model, thrown], { maxRetries: 0 }), async (gateway) => {
      for (const name of ["fake-1", "throws"]) {
        const { status: got, body, headers } = await complete(gateway, { model: `sdk/${name}` });
        const { error: told } = body as unknown as { error: { message: string } };
        assert.equal(got, status, name);
        assert.match(told.message, words);
        assert.doesNotMatch(told.message, /secret words/);
        if (status === 429) assert.equal(headers.get("retry-after"), "7");
      }
    });
  }
});

test("a call that is begun twice stays one, and the next one has its own tool", async () => {
  const begin = { type: "tool-input-start", id: "a", toolName: "one" };
  const call = (toolCallId: string, toolName: string) => ({ type: "tool-call", toolCallId, toolName, input: "{}" });
  const { model } = modelOf([[begin, begin, call("a", "one"), call("b", "two"), finish("tool-calls")]]);
  await withModel(fromAiSdk(model), async (gateway) => {
    const tools = ["one", "two"].map((name) => ({ type: "function", function: { name } }));
    const { body } = await complete(gateway, { tools });
    const [{ message }] = body["choices"] as unknown as [{ message: { tool_calls: object[] } }];
    assert.deepEqual(message.tool_calls, [
      { id: "a", type: "function", function: { name: "one", arguments: "{}" } },
      { id: "b", type: "function", function: { name: "two", arguments: "{}" } },
    ]);
  });
});

test("a turn whose server names no model, or one too long, is whole", async () => {
  const turns = ["", "x".repeat(300)].map((modelId) => [{ type: "response-metadata", modelId }, ...said("Hello")]);
  await withModel(fromAiSdk(modelOf(turns).model), async (gateway) => {
    for (const _ of turns) {
      const { status, body } = await complete(gateway, {});
      assert.deepEqual([status, body["model"]], [200, "sdk/fake-1"]);
    }
  });
});

test("a cancelled run aborts the model, and a whole turn does not", async () => {
  const { model, asked } = modelOf([said("Hello")]);
  const { promise: begun, resolve: begin } = Promise.withResolvers<AbortSignal>();
  const hanging: AiSdkModel = {
    ...{ specificationVersion: "v3", provider: "fake", modelId: "hangs" },
    doStream: ({ abortSignal }: Options) => {
      begin(abortSignal);
      const stream = new ReadableStream({
        start(controller) {
          abortSignal.addEventListener("abort", () => controller.error(abortSignal.reason));
        },
      });
      return Promise.resolve({ stream });
    },
  };
  await withModel(fromAiSdk([model, hanging]), async (gateway) => {
    await gateway.run("Hello", { model: "sdk/fake-1" });
    assert.equal(asked[0]?.abortSignal.aborted, false);
    const leaving = new AbortController();
    const run = gateway.run("Hello", { model: "sdk/hangs", signal: leaving.signal });
    const over = assert.rejects(async () => await run);
    const signal = await begun;
    leaving.abort();
    await over;
    assert.equal(signal.aborted, true);
  });
});

test("fromAiSdk() refuses what is no language model that it knows", () => {
  for (const wrong of ["openai/gpt-5", {}, null, { ...modelOf([], "v1").model }]) {
    assert.throws(() => fromAiSdk(wrong as AiSdkModel), /of specification v2, v3, v4/);
  }
});
