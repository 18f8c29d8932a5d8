import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { StdioBridge } from "../../../../cli/commands/mcp/stdio_bridge.ts";
import { defineTool, type Gateway } from "../../../../handlers/mod.ts";
import { systemClock } from "../../../../lib/base/clock.ts";
import {
  type GatewayClient,
  GatewayClientError,
  type GatewayRequest,
} from "../../../../lib/system/net/gateway_client.ts";
import { type McpGateway, withMcpGateway } from "../../../support/mcp_gateway.ts";
import { until } from "../../../support/until.ts";

/** Returns a client of a gateway in this process. @param isGone tells whether the gateway takes no connection any more */
function clientOf(gateway: Gateway, { token, isGone = () => false }: {
  readonly token: string;
  readonly isGone?: () => boolean;
}): GatewayClient {
  const send = async ({ method, path, raw, headers, signal }: GatewayRequest) => {
    if (isGone()) {
      const cause = Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
      throw new GatewayClientError("Cannot reach the gateway", { cause });
    }
    const reply = await gateway.request(path, {
      method,
      headers: {
        ...headers,
        authorization: `Bearer ${token}`,
        ...(raw === undefined ? {} : { "content-type": raw.type }),
      },
      ...(raw === undefined ? {} : { body: Buffer.from(raw.bytes) }),
      ...(signal === undefined ? {} : { signal }),
    });
    return { status: reply.status, headers: Object.fromEntries(reply.headers), reply };
  };
  return {
    async request(request) {
      const { status, reply } = await send(request);
      return { status, body: await reply.text() };
    },
    async stream(request) {
      const { status, headers, reply } = await send(request);
      return { status, headers, body: reply.body ?? new PassThrough().end() };
    },
    openSocket: () => Promise.reject(new Error("There are no sockets here")),
  };
}

function bridgeTo(client: GatewayClient, reach: () => Promise<GatewayClient> = () => Promise.resolve(client)) {
  const input = new PassThrough();
  const written: { id?: unknown; method?: string; error?: { code: number; message: string }; result?: unknown }[] = [];
  const warnings: string[] = [];
  const bridge = new StdioBridge({
    client,
    reach,
    write: (line) => Promise.resolve(void written.push(JSON.parse(line))),
    warn: (message) => void warnings.push(message),
    clock: systemClock,
  });
  const done = bridge.read(input);
  return {
    written,
    warnings,
    say: (...messages: readonly unknown[]) => {
      for (const message of messages) {
        input.write(typeof message === "string" ? message : `${JSON.stringify(message)}\n`);
      }
    },
    answerOf: async (id: unknown) => {
      // The gateway's own requests have ids too
      const answer = () => written.find((message) => message.id === id && message.method === undefined);
      await until(() => answer() !== undefined);
      return answer();
    },
    async end() {
      input.end();
      await done;
      await bridge.close();
    },
  };
}

const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "test", version: "1" } },
};
const INITIALIZED = { jsonrpc: "2.0", method: "notifications/initialized" };
const NEW_META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const echo = (id: unknown, text: string, _meta?: unknown) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name: "echo", arguments: { text }, ...(_meta === undefined ? {} : { _meta }) },
});

async function tokenOf({ token }: McpGateway) {
  return { token: await token("tools") };
}

test("the bridge passes messages of both eras, also when lines are cut anywhere", async () => {
  await withMcpGateway({}, async (started) => {
    const { say, answerOf, end } = bridgeTo(clientOf(started.gateway, await tokenOf(started)));
    say(INITIALIZE, INITIALIZED);
    const [first = "", second = ""] = JSON.stringify(echo("ä", "Grüße")).split("Gr");
    say(first);
    say(`Gr${second}\n`, echo(3, "new", NEW_META));
    assert.match(JSON.stringify(await answerOf("ä")), /Grüße/);
    assert.match(JSON.stringify(await answerOf(3)), /"new"/);
    await end();
    assert.doesNotMatch(await started.gateway.request("/metrics").then((reply) => reply.text()), /mcp_sessions [1-9]/);
  });
});

test("the bridge passes what a tool asks to the client, and the client's answer back", async () => {
  const asking = defineTool({
    name: "ask_it",
    description: "Asks",
    access: "read",
    inputSchema: { type: "object", properties: {}, additionalProperties: false },
    async execute(_input, { ask }) {
      const schema = { type: "object", properties: { name: { type: "string" } } };
      return await ask({ key: "who", message: "Who?", schema });
    },
  });
  await withMcpGateway({ tools: [asking] }, async (started) => {
    const { say, written, answerOf, end } = bridgeTo(clientOf(started.gateway, await tokenOf(started)));
    const capabilities = { elicitation: { form: {} } };
    const content = { name: "Ann" };
    const call = { jsonrpc: "2.0", method: "tools/call" };
    say({ ...INITIALIZE, params: { ...INITIALIZE.params, capabilities } }, INITIALIZED);
    // The gateway counts its requests from 0, as clients do
    say({ ...call, id: 0, params: { name: "ask_it", arguments: {} } });
    await until(() => written.some(({ method }) => method === "elicitation/create"));
    const question = written.find(({ method }) => method === "elicitation/create");
    say({ jsonrpc: "2.0", id: question?.id, result: { action: "accept", content } });
    assert.match(JSON.stringify(await answerOf(0)), /Ann/);

    const _meta = { ...NEW_META, "io.modelcontextprotocol/clientCapabilities": capabilities };
    say({ ...call, id: 7, params: { name: "ask_it", arguments: {}, _meta } });
    const { requestState } = (await answerOf(7))?.result as { requestState: string };
    const inputResponses = { who: { action: "accept", content } };
    say({ ...call, id: 8, params: { name: "ask_it", arguments: {}, inputResponses, requestState, _meta } });
    assert.match(JSON.stringify(await answerOf(8)), /Ann/);
    await end();
  });
});

test("the bridge answers each line that is no message, and passes refusals of the gateway on", async () => {
  await withMcpGateway({}, async (started) => {
    const { say, written, warnings, answerOf, end } = bridgeTo(clientOf(started.gateway, await tokenOf(started)));
    say("no json\n", "[]\n", "\n", echo(7, "no session"), INITIALIZED);
    assert.match(JSON.stringify(await answerOf(7)), /-32602.*without a session/);
    await end();
    assert.deepEqual(written.map(({ id, error }) => [id, error?.code]), [[null, -32700], [null, -32600], [7, -32602]]);
    assert.match(warnings.join("\n"), /A message was not taken: Cannot take this message without a session/);
  });
});

test("the bridge finds a gateway that was started again, and opens the session there", async () => {
  await withMcpGateway({}, async (first) => {
    await withMcpGateway({}, async (second) => {
      let isGone = false;
      const before = clientOf(first.gateway, { ...await tokenOf(first), isGone: () => isGone });
      const after = clientOf(second.gateway, await tokenOf(second));
      const { say, written, answerOf, end } = bridgeTo(before, () => Promise.resolve(after));
      say(INITIALIZE, INITIALIZED, echo(2, "before"));
      await answerOf(2);
      isGone = true;
      say(echo(3, "after"));
      assert.match(JSON.stringify(await answerOf(3)), /"after"/);
      await end();
      assert.deepEqual(written.map(({ id }) => id), [1, 2, 3], "the client hears nothing of the second handshake");
    });
  });
});

test("a token that is revoked ends the session, and the client is told why", async () => {
  await withMcpGateway({}, async (started) => {
    const { say, answerOf, end } = bridgeTo(clientOf(started.gateway, await tokenOf(started)));
    say(INITIALIZE, INITIALIZED, echo(2, "before"));
    await answerOf(2);
    const { data } = await started.ask("GET", "/v1/tokens") as { data: { id: string }[] };
    for (const { id } of data) await started.ask("DELETE", `/v1/tokens/${id}`);
    say(echo(3, "after"));
    assert.match(JSON.stringify(await answerOf(3)), /unknown, used up or expired|opens no session/);
    await end();
  });
});

test("a client that reads nothing is not read any more, and gets every answer once it reads", async () => {
  const COUNT = 20_000;
  const gate = Promise.withResolvers<void>();
  const written: { readonly id: number; readonly error?: { readonly data: unknown } }[] = [];
  let given = 0;
  const client: GatewayClient = {
    request: () => Promise.reject(new Error("Nothing but messages is sent")),
    stream: ({ raw }) => {
      const { id } = JSON.parse(Buffer.from(raw?.bytes ?? []).toString()) as { readonly id: number };
      const answer = Buffer.from(JSON.stringify({ jsonrpc: "2.0", id, result: {} }));
      return Promise.resolve({ status: 200, headers: {}, body: new PassThrough().end(answer) });
    },
    openSocket: () => Promise.reject(new Error("There are no sockets here")),
  };
  const bridge = new StdioBridge({
    client,
    reach: () => Promise.resolve(client),
    write(line) {
      written.push(JSON.parse(line));
      return gate.promise;
    },
    warn: () => {},
    clock: systemClock,
  });
  async function* input() {
    for (given = 1; given <= COUNT; given++) yield Buffer.from(`${JSON.stringify(echo(given, "Hi", NEW_META))}\n`);
  }
  const done = bridge.read(input());
  let [seen, looks] = [0, 0];
  await until(() => {
    looks = given === seen ? looks + 1 : 0;
    seen = given;
    return looks === 20;
  }, "nothing moves");
  assert.ok(given < COUNT / 2, `${given} messages were read`);
  assert.equal(written.length, 1);
  gate.resolve();
  await done;
  await bridge.close();
  assert.equal(new Set(written.map(({ id }) => id)).size, COUNT);
  const refusals = written.filter(({ error }) => error !== undefined);
  assert.ok(refusals.length < COUNT);
  assert.ok(refusals.every(({ error }) => JSON.stringify(error?.data) === '{"code":"overloaded"}'));
});
