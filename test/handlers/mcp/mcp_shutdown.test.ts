import assert from "node:assert/strict";
import { test } from "node:test";
import { defineTool, type Gateway, type ProgramProvider } from "../../../handlers/mod.ts";
import { nextTick } from "../../../lib/base/tick.ts";
import { createFakeServices } from "../../support/fake_services.ts";
import { MCP_ERAS, type McpEra, withMcpGateway } from "../../support/mcp_gateway.ts";
import { createTestRouter, type SendInit } from "../../support/test_router.ts";

const ACCEPT = { accept: "application/json, text/event-stream" };
const CLIENT = { name: "test", version: "1" };

/** Returns a request of the revision without sessions. */
function alone(method: string, params: object, headers: Readonly<Record<string, string>> = {}) {
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  return {
    headers: { ...ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": method, ...headers },
    body: { jsonrpc: "2.0", id: 1, method, params: { ...params, _meta } },
  };
}

type Post = (init: Pick<SendInit, "headers" | "body">) => Promise<Response>;

/** Opens a session. @returns the headers of its requests */
async function openSession(post: Post): Promise<Readonly<Record<string, string>>> {
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: CLIENT };
  const opened = await post({ headers: ACCEPT, body: { jsonrpc: "2.0", id: 1, method: "initialize", params } });
  await opened.text();
  return { ...ACCEPT, "mcp-session-id": opened.headers.get("mcp-session-id") ?? "" };
}

/** Returns a function that calls tools as a client of an era does. Its promise resolves when the reply begins. */
async function callerOf(era: McpEra, post: Post): Promise<(name: string, input?: object) => Promise<Response>> {
  if (era === "2026-07-28") {
    return (name, input = {}) => post(alone("tools/call", { name, arguments: input }, { "mcp-name": name }));
  }
  const headers = await openSession(post);
  return (name, input = {}) =>
    post({ headers, body: { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: input } } });
}

/** Returns the answer at the end of a stream. */
async function answerOf(reply: Response) {
  const [, last = ""] = /.*^data: (.+)$/ms.exec(await reply.text()) ?? [];
  return JSON.parse(last) as {
    readonly result?: { readonly content: unknown; readonly structuredContent: { readonly run_id: string } };
    readonly error?: { readonly message: string };
  };
}

/** Tells whether a reply ends, which takes no time that passes. */
async function ends(reply: Response): Promise<boolean> {
  const ended = reply.text().then(() => true);
  for (let tick = 0; tick < 20; tick++) await nextTick();
  return await Promise.race([ended, Promise.resolve(false)]);
}

/** Creates a gateway in memory, whose tool `read_file` never ends. */
function setUp() {
  const fake = createFakeServices();
  const services = { ...fake, tools: { ...fake.tools, call: () => new Promise<never>(() => {}) } };
  const { router, send } = createTestRouter({ services });
  const ask = (method: string, init: SendInit) => send(method, "/mcp", { token: "token_tools", ...init });
  return {
    clock: services.clock,
    ask,
    post: ((init) => ask("POST", init)) as Post,
    beginShutdown() {
      services.enter("draining");
      router.connections.closeIdle();
    },
    endShutdown: () => router.connections.closeAll(),
  };
}

for (const era of MCP_ERAS) {
  test(`a stream of notifications of ${era} is refused or ends, in whichever step of it a shutdown begins`, async () => {
    let wasAnswered = false;
    for (let steps = 0; !wasAnswered; steps++) {
      const { ask, post, beginShutdown } = setUp();
      const headers = await openSession(post);
      let isAnswered = false;
      const asking = era === "2025-11-25"
        ? ask("GET", { headers })
        : post(alone("subscriptions/listen", { notifications: { toolsListChanged: true } }));
      const answered = asking.finally(() => void (isAnswered = true));
      for (let step = 0; step < steps; step++) await Promise.resolve();
      wasAnswered = isAnswered;
      beginShutdown();
      const reply = await answered;
      assert.ok([200, 503].includes(reply.status), `${reply.status} after ${steps} steps`);
      assert.ok(await ends(reply), `it ends after ${steps} steps`);
    }
  });
}

/** Creates a tool whose calls end when `release` is called, or with the gateway. */
function createHeldTool() {
  const { promise: held, resolve } = Promise.withResolvers<string>();
  const tool = defineTool({
    name: "held",
    description: "Waits",
    access: "read",
    outside: false,
    inputSchema: { type: "object", properties: {}, additionalProperties: false },
    execute: (_input, { signal }) =>
      Promise.race([held, new Promise<string>((_resolve, reject) => signal.addEventListener("abort", reject))]),
  });
  return { tool, release: () => resolve("Done") };
}

/** Returns the number of sessions that a gateway has, also once it is closed. */
async function sessionsOf(gateway: Gateway): Promise<string | undefined> {
  const metrics = await (await gateway.request("/metrics")).text();
  return /^postern_mcp_sessions (.+)$/m.exec(metrics)?.[1];
}

for (const era of MCP_ERAS) {
  test(`a call of ${era} that ends while the gateway closes is answered, and no session is left`, async () => {
    const { tool, release } = createHeldTool();
    await withMcpGateway({ tools: [tool] }, async ({ gateway, send }) => {
      const reply = await (await callerOf(era, send))("held");
      const closing = gateway.close();
      release();
      await closing;
      assert.deepEqual((await answerOf(reply)).result?.content, [{ type: "text", text: "Done" }]);
      assert.equal(await sessionsOf(gateway), "0");
    });
  });

  test(`a call of ${era} that the end of the grace stops is answered, and no session is left`, async () => {
    const { tool } = createHeldTool();
    const config = { gateway: { shutdown_grace_secs: 0 } };
    await withMcpGateway({ tools: [tool], config }, async ({ gateway, send }) => {
      const reply = await (await callerOf(era, send))("held");
      await gateway.close();
      assert.equal((await answerOf(reply)).error?.message, "The gateway is shutting down");
      assert.equal(await sessionsOf(gateway), "0");
    });
  });

  test(`a client of ${era} that waits for a run hears of it before its session ends`, async () => {
    const hang: ProgramProvider = {
      models: ["hang"],
      async *stream(_request, { signal }) {
        yield { type: "text_delta", delta: "I begin" };
        await new Promise((_resolve, reject) => signal.addEventListener("abort", reject));
      },
    };
    const config = { gateway: { shutdown_grace_secs: 0 } };
    await withMcpGateway({ providers: { own: hang }, config }, async ({ gateway, send }) => {
      const call = await callerOf(era, send);
      const { result } = await answerOf(await call("run_start", { message: "Hi", model: "own/hang" }));
      const run = result?.structuredContent;
      const reply = await call("run_status", { run_id: run?.run_id, wait_secs: 60 });
      await gateway.close();
      assert.equal((await answerOf(reply)).result?.structuredContent.run_id, run?.run_id);
      assert.equal(await sessionsOf(gateway), "0");
    });
  });

  test(`a call of ${era} that never ends is cut at the end of a shutdown, and no timer is left`, async () => {
    const { clock, post, beginShutdown, endShutdown } = setUp();
    const reply = await (await callerOf(era, post))("read_file");
    beginShutdown();
    const over = endShutdown();
    await clock.advance(1_000);
    await over;
    assert.ok(await ends(reply), "its stream ends");
    assert.equal(clock.pending(), 0);
  });
}
