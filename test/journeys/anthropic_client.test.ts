import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { type RunningGateway, until, withWorld } from "../support/world.ts";

const clientOf = ({ url, token }: RunningGateway, headers: Record<string, string> = {}) =>
  new Anthropic({ baseURL: url, apiKey: token, maxRetries: 0, defaultHeaders: headers });
const PLAIN = { "x-postern-tools": "none" };
const TOOLS: Anthropic.Tool[] = [{
  name: "add",
  description: "Adds",
  input_schema: { type: "object", properties: {} },
}];

test("Anthropic's client: three rounds with a tool of its own, in both modes, streamed and not", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      script({ messages }) {
        const rounds = messages.filter(({ role }) => role === "tool").length;
        if (rounds === 3) return { text: ["The sum ", `is ${messages.at(-1)?.content}.`] };
        return { reasoning: ["I ", "add"], text: "So:", toolCalls: [{ name: "add", arguments: { a: rounds } }] };
      },
    });
    for (const headers of [{}, PLAIN]) {
      const client = clientOf(gateway, headers);
      for (const stream of [false, true]) {
        const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Add" }];
        const kinds: string[] = [];
        for (let sum = 0;; sum++) {
          const asked = { model: "m", max_tokens: 100, messages, tools: TOOLS };
          const reply = stream
            ? await client.messages.stream(asked).finalMessage()
            : await client.messages.create(asked);
          kinds.push(`${reply.content.map(({ type }) => type).join()} ${reply.stop_reason}`);
          messages.push({ role: "assistant", content: reply.content });
          const call = reply.content.find((block) => block.type === "tool_use");
          if (call === undefined) {
            assert.deepEqual(reply.content, [{ type: "text", text: "The sum is 2." }]);
            break;
          }
          assert.deepEqual(call.input, { a: sum });
          messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: `${sum}` }] });
        }
        const called = "thinking,text,tool_use tool_use";
        assert.deepEqual(kinds, [called, called, called, "text end_turn"]);
      }
    }
  }));

test("Anthropic's client: errors have their classes, a token of its own kind counts, tokens and models are there", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => "ok" });
    const asked = { model: "m", max_tokens: 5, messages: [{ role: "user" as const, content: "Hi" }] };
    const wrong = new Anthropic({ baseURL: gateway.url, apiKey: "nobody", maxRetries: 0 });
    await assert.rejects(wrong.messages.create(asked), (error) => {
      assert.ok(error instanceof Anthropic.AuthenticationError);
      assert.match(error.requestID ?? "", /^req_/);
      return true;
    });
    const client = clientOf(gateway);
    await assert.rejects(client.messages.create({ ...asked, messages: [] }), Anthropic.BadRequestError);
    const bearer = new Anthropic({ baseURL: gateway.url, authToken: gateway.token, apiKey: null, maxRetries: 0 });
    assert.equal((await bearer.messages.create(asked)).stop_reason, "end_turn");
    assert.ok((await client.messages.countTokens({ model: "m", messages: asked.messages })).input_tokens > 0);
    for await (const { type } of client.models.list()) assert.equal(type, "model");
  }));

test("Anthropic's client: a stream that is left ends its run, and the conversation goes on", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      script: (_request, turn) => turn === 0 ? { text: "one", hang: "after" } : "and on",
    });
    const client = clientOf(gateway);
    const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Go" }];
    const stream = client.messages.stream({ model: "m", max_tokens: 5, messages });
    for await (const event of stream) if (event.type === "content_block_delta") break;
    await until(() => gateway.provider.aborted === 1);
    messages.push({ role: "assistant", content: "one" }, { role: "user", content: "[Request interrupted by user]" });
    const reply = await client.messages.create({ model: "m", max_tokens: 5, messages });
    assert.deepEqual(reply.content, [{ type: "text", text: "and on" }]);
  }));
