import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonOf } from "../support/json_of.ts";
import { type LinkedGateway, withCluster } from "../support/linked_gateways.ts";

interface Reply {
  readonly id: string;
  readonly conversation: { readonly id: string };
}

test("responses that go on after one at two gateways at the same moment become branches without a turn of another", () =>
  withCluster(async ({ start, passUntil }) => {
    const script = () => ({ text: "Hello" });
    const [a, b] = [await start("a", { script }), await start("b", { script })];
    const settle = async <T>(work: Promise<T>): Promise<T> => {
      let isOver = false;
      void work.then(() => (isOver = true), () => (isOver = true));
      await passUntil(() => isOver, "the work ends");
      return await work;
    };
    const respond = async (gateway: LinkedGateway, input: string, more: Record<string, unknown> = {}) => {
      const headers = { "content-type": "application/json" };
      const body = JSON.stringify({ input, ...more });
      const reply = await gateway.send("/v1/responses", { method: "POST", headers, body });
      const text = await reply.text();
      assert.equal(reply.status, 200, text);
      return JSON.parse(text) as Reply;
    };
    const messagesOf = async ({ conversation: { id } }: Reply) => {
      const { messages } = await jsonOf(settle(a.send(`/v1/conversations/${id}`)));
      return messages.data.map(({ content }: { readonly content: string }) => content);
    };
    const first = await settle(respond(a, "one"));
    const texts = ["two", "three", "four", "five"];
    const answers = await settle(
      Promise.all(
        texts.map((text, index) => respond(index % 2 === 0 ? a : b, text, { previous_response_id: first.id })),
      ),
    );
    const ids = new Set(answers.map(({ conversation }) => conversation.id));
    assert.equal(ids.size, texts.length);
    assert.ok(ids.has(first.conversation.id));
    for (const [index, text] of texts.entries()) {
      assert.deepEqual(await messagesOf(answers[index] ?? assert.fail()), ["one", "Hello", text, "Hello"]);
    }
  }));
