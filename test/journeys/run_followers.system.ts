import assert from "node:assert/strict";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { jsonOf, readSse, type RunningGateway, until, withWorld } from "../support/world.ts";

const OPEN = { gateway: { rate_limit_max: 0 } };

/** Opens a run's events and reads nothing of them. */
async function openUnread(gateway: RunningGateway, id: string): Promise<IncomingMessage> {
  const request = get(`${gateway.url}/v1/runs/${id}/events`, {
    headers: { authorization: `Bearer ${gateway.token}` },
    agent: false,
  });
  const [reply] = await once(request, "response") as [IncomingMessage];
  reply.pause();
  return reply;
}

const textIn = (text: string) =>
  readSse(text).data.map((data) => JSON.parse(data) as AgentEvent)
    .map((event) => (event.type === "text_delta" ? event.delta : "")).join("");

test("a hundred followers of one run, over HTTP and WebSocket, each get its whole text, and leave nothing behind", () =>
  withWorld(async (world) => {
    const text = Array.from({ length: 200 }, (_, index) => `${index} `);
    const gateway = await world.gateway({ config: OPEN, script: [{ text, chunkDelayMs: 1 }] });
    const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Hi" } }));
    const overHttp = Array.from(
      { length: 80 },
      async () => textIn(await (await gateway.call(`/v1/runs/${id}/events`)).text()),
    );
    const overSocket = Array.from({ length: 20 }, async () => {
      const client = await gateway.chat();
      client.send({ type: "resume", run_id: id, after: 0 });
      const frames = await client.readReply();
      await client.leave();
      return frames.map(({ delta }) => delta ?? "").join("");
    });
    const texts = await Promise.all([...overHttp, ...overSocket]);
    assert.deepEqual(new Set(texts), new Set([text.join("")]));
    const { followers } = gateway.connections;
    await until(() => followers.count() === 0);
  }));

test("followers that do not read hold nobody up, cost their place alone, and find all there is when they do", () =>
  withWorld(async (world) => {
    const piece = "x".repeat(8000);
    const text = Array.from({ length: 500 }, () => piece);
    const gateway = await world.gateway({ config: OPEN, script: [{ text }] });
    const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Hi" } }));
    const unread = await Promise.all(Array.from({ length: 20 }, () => openUnread(gateway, id)));
    const limit = systemClock.timeoutSignal(60_000);
    assert.equal((await gateway.services.agent?.runs.ended(id, limit.signal))?.status, "completed");
    limit.clear();
    for (const reply of unread) {
      let all = "";
      reply.setEncoding("utf8").on("data", (part) => (all += part));
      reply.resume();
      await once(reply, "end");
      assert.equal(textIn(all).length, text.length * piece.length);
    }
  }));

test("the end of a token and the start of a shutdown end the followers' streams, and the run goes on", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: OPEN, script: [{ text: ["one "], hang: "after" }] });
    const { token, id: tokenId } = await jsonOf(gateway.call("/v1/tokens", { body: { scopes: ["runs"] } }));
    const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Hi" } }));
    const open = async (bearer: string) => {
      const reply = await fetch(`${gateway.url}/v1/runs/${id}/events`, {
        headers: { authorization: `Bearer ${bearer}` },
      });
      return reply.text();
    };
    const { followers } = gateway.connections;
    const [own, others] = [open(gateway.token), open(token)];
    await until(() => followers.count() === 2 && gateway.provider.active === 1);
    await gateway.call(`/v1/tokens/${tokenId}`, { method: "DELETE" });
    assert.match(await others, /come back with Last-Event-ID/);
    assert.equal(followers.count(), 1);
    assert.equal(gateway.provider.active, 1);
    const drained = gateway.drain(0);
    assert.match(await own, /come back with Last-Event-ID/);
    await drained;
  }));
