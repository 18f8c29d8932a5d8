import assert from "node:assert/strict";
import { test } from "node:test";
import { messageTokens } from "../../lib/agent/estimate_tokens.ts";
import type { Message } from "../../lib/base/records/message.ts";
import { jsonOf, type RunningGateway, withWorld } from "../support/world.ts";

const WINDOW = 4000;
const isSummary = (messages: readonly Message[]) => String(messages[0]?.content).startsWith("You condense");

test("a chat of many turns stays within the window that the provider's list names, over a restart too", () =>
  withWorld(async (world) => {
    const upstream = await world.server((seen, response) => {
      response.setHeader("content-type", "application/json");
      if (seen.method === "GET") {
        return void response.end(JSON.stringify({ data: [{ id: "small", max_model_len: WINDOW }] }));
      }
      const { messages } = seen.json as { readonly messages: readonly Message[] };
      const content = isSummary(messages) ? "They counted." : `You said: ${String(messages.at(-1)?.content)}`;
      const choices = [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }];
      response.end(JSON.stringify({ id: "c", object: "chat.completion", model: "small", choices }));
    });
    const sent = () =>
      upstream.requests.flatMap(({ json }) =>
        json === undefined ? [] : [(json as { readonly messages: readonly Message[] }).messages]
      );
    const say = async (gateway: RunningGateway, message: string) =>
      await jsonOf(gateway.call("/api/chat", { body: { message, conversation_id: "count" } }));
    const config = {
      provider: { kind: "openai_compatible", base_url: `${upstream.origin}/v1`, model: "small" },
      gateway: { rate_limit_max: 0 },
      agent: { tools: [] },
    };
    await world.during(world.gateway({ config }), async (first) => {
      for (let turn = 1; turn <= 30; turn++) {
        const reply = await say(first, `${turn} `.repeat(150));
        assert.match(reply.message, new RegExp(`^You said: ${turn} `));
        // This provider reports no usage
        assert.deepEqual([reply.usage_source, reply.tokens_used_estimate > 0], ["tokenizer", true]);
      }
      const { dataDir, workspace } = first;
      await first.drain(0);
      await first.services.close();
      const summaries = sent().filter(isSummary).length;
      assert.ok(summaries > 1 && summaries < 15, String(summaries));
      await world.during(world.gateway({ config, dataDir, workspace }), async (second) => {
        await say(second, "Go on");
        assert.equal(sent().filter(isSummary).length, summaries);
        const last = sent().at(-1)?.map(({ content }) => String(content)) ?? [];
        assert.match(last[1] ?? "", /condensed:\n\nThey counted\.$/);
        assert.equal(last.at(-1), "Go on");
        // Messages that were condensed for the model stay for people to read
        const { data } = await jsonOf(second.call("/v1/conversations"));
        assert.deepEqual([data[0].id, data[0].message_count], ["count", 62]);
      });
    });
    for (const messages of sent()) assert.ok(messageTokens(messages) + WINDOW / 4 <= WINDOW);
  }));
