import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { createGateway } from "../../handlers/mod.ts";
import { HandshakeRefused, openChat } from "../support/chat_client.ts";
import { jsonOf } from "../support/json_of.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

interface Made {
  readonly id: string;
  readonly token: string;
}

const make = (gateway: RunningGateway): Promise<Made> =>
  jsonOf(gateway.call("/v1/tokens", { body: { scopes: ["chat"] } })) as Promise<unknown> as Promise<Made>;
const socketUrl = (gateway: RunningGateway, query = "") => `${gateway.url.replace("http", "ws")}/ws/chat${query}`;
const open = (gateway: RunningGateway, token: string) =>
  openChat(socketUrl(gateway), { headers: { authorization: `Bearer ${token}` } });

const WAYS: readonly [name: string, path: (made: Made) => string][] = [
  ["the one token", ({ id }) => `/v1/tokens/${id}`],
  ["every token", () => "/v1/tokens"],
];

for (const [name, path] of WAYS) {
  test(`revoking ${name} closes its sockets with 1008 and voids its tickets, and no other's`, async () => {
    await withRunningGateway({}, async (gateway) => {
      const made = await make(gateway);
      const [theirs, own] = [await open(gateway, made.token), await open(gateway, gateway.token)];
      const { ticket } = await jsonOf(
        gateway.call("/v1/ws-ticket", { method: "POST", headers: { authorization: `Bearer ${made.token}` } }),
      );
      await gateway.call(path(made), { method: "DELETE" });
      const { code, reason } = await theirs.closed;
      assert.equal(code, 1008);
      assert.match(reason, /token .* revoked/);
      await assert.rejects(
        openChat(socketUrl(gateway, `?ticket=${ticket}`)),
        (error) => error instanceof HandshakeRefused && error.status === 401,
      );
      own.send({ type: "ping" });
      assert.deepEqual(await own.readUntil(() => true), [{ type: "pong" }]);
      own.socket.close();
      await own.closed;
    });
  });
}

test("revoking a token ends the run that its socket waits for", async () => {
  await withRunningGateway({ script: [{ text: "so far", hang: "after" }] }, async (gateway) => {
    const made = await make(gateway);
    const client = await open(gateway, made.token);
    client.send("hi");
    await client.readUntil(({ type }) => type === "delta");
    await gateway.services.tokens.revokeAll();
    assert.equal((await client.closed).code, 1008);
    await gateway.drain(1_000);
    assert.equal(gateway.provider.aborted, 1);
  });
});

test("a body that is held back until its token is revoked does nothing, at any route", () =>
  withTemporaryFolder(async (folder) => {
    const gateway = await createGateway({
      ...{ dataDir: join(folder, "data"), workspace: folder, environment: {}, onLog: () => {} },
      config: { storage: { driver: "memory" }, provider: { kind: "offline" } },
    });
    const at = (path: string, init: RequestInit) =>
      gateway.fetch(new Request(`http://127.0.0.1${path}`, init), { remoteAddress: "127.0.0.1" });
    const code = await gateway.createPairingCode();
    const paired = await jsonOf(at("/pair", { method: "POST", headers: { "x-pairing-code": code } }));
    const admin = { authorization: `Bearer ${paired.token}` };
    for (const path of ["/v1/tools/memory_store/call", "/v1/runs", "/v1/chat/completions", "/mcp", "/api/chat"]) {
      const body = JSON.stringify({ scopes: ["admin"] });
      const headers = { ...admin, "content-type": "application/json" };
      const { id, token }: Made = await jsonOf(at("/v1/tokens", { method: "POST", headers, body }));
      const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
      const writer = writable.getWriter();
      const init = { body: readable, duplex: "half" } as const;
      const reply = at(path, { method: "POST", headers: { ...headers, authorization: `Bearer ${token}` }, ...init });
      await writer.write(new TextEncoder().encode("{"));
      assert.equal((await at(`/v1/tokens/${id}`, { method: "DELETE", headers: admin })).status, 200);
      await writer.write(new TextEncoder().encode("}"));
      await writer.close();
      const { error } = await jsonOf(reply);
      assert.deepEqual([(await reply).status, error?.code], [401, "auth_invalid"], path);
    }
    await gateway.close();
  }));
