import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openGatewayChat } from "../support/chat_client.ts";
import { callGateway } from "../support/gateway_call.ts";
import { NO_POSTGRES, withDatabase } from "../support/postgres_server.ts";
import { startSmallProxy } from "./small_proxy.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";

describe("two gateways behind a proxy", { skip: NO_POSTGRES }, () => {
  test("answer as one: requests, streams piece by piece, WebSockets; and as one less when one is gone", () =>
    withDatabase((url) =>
      withWorld(async (world) => {
        const released = Promise.withResolvers<void>();
        const script = (_request: unknown, turn: number) =>
          turn === 0 ? { text: ["first ", "then"], holdUntil: released.promise } : "an answer";
        const config = { storage: { driver: "postgres", url }, cluster: { lease_secs: 1 } };
        const [a, b] = await Promise.all([1, 2].map(() => world.gateway({ config, script })));
        assert.ok(a !== undefined && b !== undefined);
        const proxy = await startSmallProxy([a.url, b.url]);
        world.onEnd(() => proxy.close());
        const call = (path: string, body?: unknown) =>
          callGateway({ url: proxy.url, token: a.token }, path, body === undefined ? {} : { body });

        const streams = await Promise.all(
          [1, 2].map(() => call("/v1/chat/completions", { stream: true, messages: [{ role: "user", content: "Hi" }] })),
        );
        for (const stream of streams) {
          assert.equal(stream.status, 200);
          let text = "";
          const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader();
          while (!text.includes("first ")) text += (await reader?.read())?.value ?? assert.fail(text);
          assert.ok(!text.includes("then"), "the first piece arrives while the model is at work");
          released.resolve();
          for (let part = await reader?.read(); part?.done === false; part = await reader?.read()) text += part.value;
          assert.match(text, /then[^]*\[DONE\]/);
        }
        assert.ok(proxy.counts.every((count) => count > 0), `requests: ${proxy.counts.join(", ")}`);

        const { id } = await jsonOf(await call("/v1/runs", { message: "Work" })) as { readonly id: string };
        for (const _ of [1, 2]) {
          await until(async () =>
            (await jsonOf(await call(`/v1/runs/${id}`)) as { status: string }).status === "completed"
          );
          assert.match(await (await call(`/v1/runs/${id}/events`)).text(), /an answer[^]*"type":"done"/);
        }
        for (const _ of [1, 2]) {
          const chat = await openGatewayChat({ url: proxy.url, token: a.token });
          chat.send({ type: "message", text: "Hi" });
          assert.equal((await chat.readReply()).at(-1)?.type, "done");
          await chat.leave();
        }
        await a.drain(0);
        for (const _ of [1, 2, 3]) assert.equal((await call("/v1/runs")).status, 200);
      })
    ));
});
