import assert from "node:assert/strict";
import { test } from "node:test";
import { defineTool } from "../../../handlers/mod.ts";
import { type McpGateway, type SentMessage, withMcpGateway } from "../../support/mcp_gateway.ts";
import { errorOf } from "../../support/test_router.ts";
import { until } from "../../support/until.ts";

const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "test", version: "1" } },
};
const PING = { jsonrpc: "2.0", id: 2, method: "ping" };

/** Opens a session as the client of a token, and returns its header. */
async function openSession({ send }: McpGateway, token: string): Promise<Readonly<Record<string, string>>> {
  const reply = await send({ token, body: INITIALIZE });
  await reply.text();
  return { "mcp-session-id": reply.headers.get("mcp-session-id") ?? "" };
}

/** Returns the one message of a reply, as JSON. */
async function messageOf(reply: Response) {
  const text = await reply.text();
  const json = reply.headers.get("content-type")?.startsWith("text/event-stream")
    ? /^data: (.+)$/m.exec(text)?.[1]
    : text;
  return JSON.parse(json ?? "null") as {
    readonly result?: Record<string, unknown>;
    readonly error?: { readonly code: number; readonly data?: Record<string, unknown> };
  };
}

/** A request of the new era. */
function alone(
  name: string,
  args: unknown,
  more: Record<string, unknown> = {},
  capabilities: unknown = {},
): SentMessage {
  return {
    headers: { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name },
    body: {
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: {
        name,
        arguments: args,
        ...more,
        _meta: {
          "io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
          "io.modelcontextprotocol/clientCapabilities": capabilities,
        },
      },
    },
  };
}

test("a session is nobody's but its token's, and looks to others as one that never was", async () => {
  await withMcpGateway({}, async (started) => {
    const { send, token } = started;
    const [owner, other] = [await token("tools"), await token("tools", "runs", "approve")];
    const headers = await openSession(started, owner);
    const never = { "mcp-session-id": "mcp_never" };
    for (const method of ["POST", "GET", "DELETE"]) {
      const body = method === "POST" ? PING : undefined;
      const stolen = await send({ token: other, method, headers, body });
      const unknown = await send({ token: other, method, headers: never, body });
      assert.deepEqual([stolen.status, await errorOf(stolen)], [404, await errorOf(unknown)], method);
    }
    const pong = await send({ token: owner, headers, body: PING });
    assert.deepEqual((await messageOf(pong)).result, {});
  });
});

test("a token has 32 sessions: one more ends its own oldest one, and nobody else's", async () => {
  await withMcpGateway({}, async (started) => {
    const { send, token } = started;
    const [owner, stranger] = [await token("tools"), await token("tools")];
    const kept = await openSession(started, owner);
    const first = await openSession(started, stranger);
    for (let opened = 1; opened < 40; opened++) await openSession(started, stranger);
    assert.equal((await send({ token: owner, headers: kept, body: PING })).status, 200);
    assert.equal((await send({ token: stranger, headers: first, body: PING })).status, 404);
    assert.match(await (await started.gateway.request("/metrics")).text(), /postern_mcp_sessions 33/);
  });
});

test("streams that are left open are bounded for each token, and end with the token and with their session", async () => {
  await withMcpGateway({}, async (started) => {
    const { send, token, ask } = started;
    const owner = await token("tools");
    const headers = await openSession(started, owner);
    const stream = await send({ token: owner, method: "GET", headers });
    assert.equal(stream.status, 200);
    assert.equal((await send({ token: owner, method: "GET", headers })).status, 409, "a session has one such stream");
    const reader = stream.body?.getReader();
    assert.equal((await send({ token: owner, method: "DELETE", headers })).status, 200);
    assert.deepEqual(await reader?.read(), { done: true, value: undefined });
    assert.equal((await send({ token: owner, headers, body: PING })).status, 404);

    const again = await openSession(started, owner);
    const open = await send({ token: owner, method: "GET", headers: again });
    const { data } = await ask("GET", "/v1/tokens") as { data: { id: string }[] };
    for (const { id } of data) await ask("DELETE", `/v1/tokens/${id}`);
    assert.deepEqual(await open.body?.getReader().read(), { done: true, value: undefined });
    assert.equal((await send({ token: owner, headers: again, body: PING })).status, 401);
  });
});

test("a token opens 128 streams at most, and another token still opens its own", async () => {
  const hang = defineTool({
    name: "hang",
    description: "Never ends by itself",
    access: "read",
    inputSchema: { type: "object", properties: {}, additionalProperties: false },
    execute: (_input, { signal }) => new Promise((_resolve, reject) => signal.addEventListener("abort", reject)),
  });
  await withMcpGateway({ tools: [hang], config: { gateway: { rate_limit_max: 0 } } }, async ({ send, token }) => {
    const [owner, stranger] = [await token("tools"), await token("tools")];
    const open: Response[] = [];
    for (let opened = 0; opened < 128; opened++) open.push(await send({ ...alone("hang", {}), token: stranger }));
    const refused = await send({ ...alone("hang", {}), token: stranger });
    assert.deepEqual([refused.status, (await errorOf(refused)).code], [503, "overloaded"]);
    const own = await send({ ...alone("hang", {}), token: owner });
    assert.equal(own.status, 200);
    await Promise.all([...open, own].map((reply) => reply.body?.cancel()));
  });
});

test("pages of other hosts and origins are refused before anything is read", async () => {
  await withMcpGateway({}, async ({ gateway, token }) => {
    const authorization = `Bearer ${await token("tools")}`;
    const attacks = [
      { url: "http://evil.example/mcp", headers: { host: "evil.example" } },
      { url: "http://127.0.0.1/mcp", headers: { origin: "https://evil.example" } },
      { url: "http://127.0.0.1/mcp", headers: { origin: "null" } },
      { url: "http://127.0.0.1/mcp", headers: { "sec-fetch-site": "cross-site" } },
    ];
    for (const { url, headers } of attacks) {
      for (const method of ["POST", "DELETE"]) {
        const init = { method, headers: { authorization, ...headers }, ...(method === "POST" ? { body: "{}" } : {}) };
        const reply = await gateway.fetch(new Request(url, init), { remoteAddress: "127.0.0.1" });
        assert.equal(reply.status, 403, `${method} ${url} ${JSON.stringify(headers)}`);
      }
      const get = new Request(url, { headers: { authorization, accept: "text/event-stream", ...headers } });
      const reply = await gateway.fetch(get, { remoteAddress: "127.0.0.1" });
      assert.ok(reply.status >= 400, `GET ${url} ${JSON.stringify(headers)}: ${reply.status}`);
    }
  });
});

test("bodies that are too large, too deep, of a wrong type or no message are refused", async () => {
  await withMcpGateway({}, async (started) => {
    const { send, token } = started;
    const owner = await token("tools");
    const cases: readonly (readonly [body: string, headers: Record<string, string>, status: number])[] = [
      [`"${"x".repeat(10_485_760)}"`, {}, 413],
      [`${"[".repeat(65)}${"]".repeat(65)}`, {}, 400],
      ["{", {}, 400],
      ["", {}, 400],
      [JSON.stringify([PING]), {}, 400],
      ["null", {}, 400],
      ['"text"', {}, 400],
      ["{}", {}, 400],
      [JSON.stringify(PING), { "content-type": "text/plain" }, 415],
      [JSON.stringify(PING), {}, 400],
      [JSON.stringify(INITIALIZE), { accept: "application/json" }, 406],
      [JSON.stringify(INITIALIZE), { "content-encoding": "br" }, 415],
      [JSON.stringify(INITIALIZE), { "content-encoding": "gzip" }, 400],
    ];
    for (const [body, headers, status] of cases) {
      const reply = await send({ token: owner, body, headers });
      assert.equal(reply.status, status, `${body.slice(0, 40)} ${JSON.stringify(headers)}: ${await reply.text()}`);
    }
    const session = await openSession(started, owner);
    assert.equal((await send({ token: owner, headers: session, body: PING })).status, 200, "it goes on");
  });
});

test("the state of a waiting call counts for its token and its call, once, and not when it was altered", async () => {
  const config = { autonomy: { level: "supervised" as const }, security: { write_file: { enabled: true } } };
  await withMcpGateway({ config }, async ({ send, token, ask }) => {
    const [owner, other] = [await token("tools"), await token("tools")];
    const input = { path: "note.txt", content: "Hi" };
    const capabilities = { elicitation: { url: {} } };
    const asked = await messageOf(await send({ ...alone("write_file", input, {}, capabilities), token: owner }));
    const requestState = String(asked.result?.["requestState"]);
    const inputResponses = { approval: { action: "accept" } };
    const retry = async (by: string, args: unknown, state: string) =>
      await messageOf(
        await send({
          ...alone("write_file", args, { requestState: state, inputResponses }, capabilities),
          token: by,
        }),
      );
    const [body = "", mac = ""] = requestState.split(".").slice(1);
    const altered = [
      `v1.${body}.${mac.split("").reverse().join("")}`,
      `v1.${btoa('{"p":{"approvalId":"apr_1"},"exp":9999999999}')}.${mac}`,
      "",
      "x".repeat(100_000),
    ];
    for (const state of altered) {
      const { error } = await retry(owner, input, state);
      if (state !== "") assert.equal(error?.data?.["reason"], "invalid_request_state", state.slice(0, 40));
    }
    assert.equal((await retry(other, input, requestState)).error?.data?.["reason"], "invalid_request_state");
    const others = await retry(owner, { ...input, content: "Another" }, requestState);
    assert.equal(others.error?.data?.["reason"], "invalid_request_state");

    const { data: [approval] } = await ask("GET", "/v1/approvals?status=pending") as { data: { id: string }[] };
    await ask("POST", `/v1/approvals/${approval?.id}`, { decision: "approve" });
    assert.notEqual((await retry(owner, input, requestState)).result?.["isError"], true);
    assert.equal((await retry(owner, input, requestState)).result?.["isError"], true, "an approval counts once");
  });
});

test("a client that goes away or cancels ends its call, in both eras", async () => {
  let started = 0;
  let ended = 0;
  const hang = defineTool({
    name: "hang",
    description: "Ends when it is cancelled",
    access: "read",
    inputSchema: { type: "object", properties: {}, additionalProperties: false },
    execute: (_input, { signal }) => {
      started++;
      return new Promise((_resolve, reject) =>
        signal.addEventListener("abort", () => {
          ended++;
          reject(signal.reason);
        })
      );
    },
  });
  await withMcpGateway({ tools: [hang], config: { gateway: { shutdown_grace_secs: 1 } } }, async (gateway) => {
    const { send, token } = gateway;
    const owner = await token("tools");
    const session = await openSession(gateway, owner);
    const call = { jsonrpc: "2.0", id: 9, method: "tools/call", params: { name: "hang", arguments: {} } };

    const left = await send({ ...alone("hang", {}), token: owner });
    await until(() => started === 1);
    await left.body?.cancel();
    await until(() => ended === 1);

    const inSession = await send({ token: owner, headers: session, body: call });
    await until(() => started === 2);
    await inSession.body?.cancel();
    await until(() => ended === 2);

    const cancelled = await send({ token: owner, headers: session, body: { ...call, id: 10 } });
    await until(() => started === 3);
    const params = { requestId: 10, reason: "Enough" };
    await send({
      token: owner,
      headers: session,
      body: { jsonrpc: "2.0", method: "notifications/cancelled", params },
    });
    await until(() => ended === 3);
    assert.equal(await cancelled.text(), "", "the stream of a cancelled call ends");

    const other = await openSession(gateway, await token("tools"));
    await send({ token: owner, headers: session, body: { ...call, id: 11 } });
    await until(() => started === 4);
    await send({
      headers: other,
      body: { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 11 } },
    });
    assert.equal(ended, 3, "another session cancels nothing");
  });
  assert.equal(ended, 4, "the end of the gateway ends the call");
});
