import assert from "node:assert/strict";
import { test } from "node:test";
import { HttpTransport } from "../../../lib/extensions/mcp/http_transport.ts";
import { loadSdk } from "../../../lib/extensions/mcp/load_sdk.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

/** Opens a session with a server that answers its DELETE when it is told to. */
async function setUp() {
  const clock = createFakeClock();
  const asked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<Response>();
  const transport = new HttpTransport({
    name: "one",
    url: new URL("http://server.test/mcp"),
    sdk: await loadSdk("one"),
    clock,
    auth: undefined,
    fetch(_url, init) {
      if (init?.method !== "DELETE") {
        const headers = { "mcp-session-id": "s-1" };
        return Promise.resolve(Response.json({ jsonrpc: "2.0", id: 1, result: {} }, { headers }));
      }
      asked.resolve();
      return answer.promise;
    },
  });
  await transport.start();
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "test", version: "1" } };
  await transport.send({ jsonrpc: "2.0", id: 1, method: "initialize", params });
  return { clock, transport, asked: asked.promise, answer: () => answer.resolve(new Response(null)) };
}

test("each close() waits until the server has ended the session", async () => {
  const { clock, transport, asked, answer } = await setUp();
  const order: string[] = [];
  const closing = ["first", "second"].map((name) => transport.close().then(() => void order.push(name)));
  await asked;
  await clock.advance(0);
  order.push("answered");
  answer();
  await Promise.all(closing);
  assert.deepEqual(order, ["answered", "first", "second"]);
  assert.equal(clock.pending(), 0);
});
