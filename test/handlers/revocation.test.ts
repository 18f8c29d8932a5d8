import assert from "node:assert/strict";
import { test } from "node:test";
import { HandshakeRefused, openChat } from "../support/chat_client.ts";
import { jsonOf } from "../support/json_of.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";

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
