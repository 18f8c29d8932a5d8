import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { type RunningGateway, withWorld } from "../support/world.ts";

const modelOf = (gateway: RunningGateway) =>
  createOpenAICompatible({ name: "postern", baseURL: `${gateway.url}/v1`, apiKey: gateway.token, includeUsage: true })(
    "some-model",
  );

test("the ai SDK: generateText() with usage", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [{ text: "Hello there" }] });
    const reply = await generateText({ model: modelOf(gateway), prompt: "Hi", maxRetries: 0 });
    assert.equal(reply.text, "Hello there");
    assert.equal(reply.finishReason, "stop");
    assert.equal(reply.usage.totalTokens, 15);
  }));

test("the ai SDK: streamText() with reasoning", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [{ reasoning: "Let me think", text: ["a", "b", "c"] }] });
    const reply = streamText({ model: modelOf(gateway), prompt: "Hi", maxRetries: 0 });
    let text = "";
    for await (const delta of reply.textStream) text += delta;
    assert.equal(text, "abc");
    assert.equal(await reply.reasoningText, "Let me think");
    assert.equal((await reply.usage).totalTokens, 15);
  }));

test("the ai SDK: streamText() calls a tool of the client and goes on", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      script: (_request, turn) =>
        turn === 0 ? { toolCalls: [{ name: "add", arguments: ['{"a":2,', '"b":3}'] }] } : { text: "It is 5" },
    });
    const reply = streamText({
      model: modelOf(gateway),
      prompt: "2 + 3?",
      maxRetries: 0,
      stopWhen: stepCountIs(3),
      tools: {
        add: tool({
          description: "Adds",
          inputSchema: jsonSchema<{ a: number; b: number }>({
            type: "object",
            properties: { a: { type: "number" }, b: { type: "number" } },
            required: ["a", "b"],
          }),
          execute: ({ a, b }) => Promise.resolve({ sum: a + b }),
        }),
      },
    });
    assert.equal(await reply.text, "It is 5");
    assert.equal((await reply.steps).length, 2);
  }));
