import assert from "node:assert/strict";
import { test } from "node:test";
import { nextTick } from "../../../lib/base/tick.ts";
import { createTestRouter, type SendInit } from "../../support/test_router.ts";

const ACCEPT = { accept: "application/json, text/event-stream" };
const CLIENT = { name: "test", version: "1" };
const INITIALIZE: SendInit = {
  headers: ACCEPT,
  body: {
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: CLIENT },
  },
};
const LISTEN: SendInit = {
  headers: { ...ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen" },
  body: {
    jsonrpc: "2.0",
    id: 1,
    method: "subscriptions/listen",
    params: {
      notifications: { toolsListChanged: true },
      _meta: {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": CLIENT,
        "io.modelcontextprotocol/clientCapabilities": {},
      },
    },
  },
};

/** Opens a session at a gateway in memory. */
async function setUp() {
  const { router, services, send } = createTestRouter();
  const ask = (method: string, init: SendInit) => send(method, "/mcp", { token: "token_tools", ...init });
  const opened = await ask("POST", INITIALIZE);
  await opened.text();
  const headers = { ...ACCEPT, "mcp-session-id": opened.headers.get("mcp-session-id") ?? "" };
  return {
    requests: {
      "a session's stream of notifications": () => ask("GET", { headers }),
      "a stream of notifications without a session": () => ask("POST", LISTEN),
    },
    beginShutdown() {
      services.enter("draining");
      router.connections.closeIdle();
    },
  };
}

/** Tells whether a reply ends, which takes no time that passes. */
async function ends(reply: Response): Promise<boolean> {
  const ended = reply.text().then(() => true);
  for (let tick = 0; tick < 20; tick++) await nextTick();
  return await Promise.race([ended, Promise.resolve(false)]);
}

for (const name of ["a session's stream of notifications", "a stream of notifications without a session"] as const) {
  test(`${name} is refused or ends, in whichever step of it a shutdown begins`, async () => {
    let wasAnswered = false;
    for (let steps = 0; !wasAnswered; steps++) {
      const { requests, beginShutdown } = await setUp();
      let isAnswered = false;
      const asking = requests[name]().finally(() => void (isAnswered = true));
      for (let step = 0; step < steps; step++) await Promise.resolve();
      wasAnswered = isAnswered;
      beginShutdown();
      const reply = await asking;
      assert.ok([200, 503].includes(reply.status), `${reply.status} after ${steps} steps`);
      assert.ok(await ends(reply), `it ends after ${steps} steps`);
    }
  });
}
