import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { type ChatClient, openChat } from "../support/chat_client.ts";
import { withRunningGateway } from "../support/running_gateway.ts";

const SOCKETS = 2000;
const AT_ONCE = 50;
/** Memory of both ends, since the clients live in this process too; the gateway's own share is measured by the bench */
const MAX_BYTES_EACH = 96 * 1024;

test("2,000 idle sockets: none dropped over several heartbeats, each still answered, all closed by the drain", async () => {
  const config = {
    gateway: { rate_limit_max: 0, websocket: { heartbeat_secs: 1, pong_timeout_secs: 10 } },
    logging: { level: "error" },
  };
  await withRunningGateway({ config, script: () => "ok" }, async (gateway) => {
    const open = () =>
      openChat(`${gateway.url.replace("http", "ws")}/ws/chat`, {
        headers: { authorization: `Bearer ${gateway.token}` },
      });
    const before = process.memoryUsage().rss;
    const clients: ChatClient[] = [];
    while (clients.length < SOCKETS) clients.push(...await Promise.all(Array.from({ length: AT_ONCE }, open)));
    const each = (process.memoryUsage().rss - before) / SOCKETS;
    assert.ok(each < MAX_BYTES_EACH, `${Math.round(each)} bytes each`);
    await systemClock.sleep(4000);
    assert.match(gateway.services.metrics.render(), /postern_ws_connections 2000\n/);
    for (let i = 0; i < SOCKETS; i += AT_ONCE) {
      await Promise.all(
        clients.slice(i, i + AT_ONCE).map(async (client) => {
          client.send("Hi");
          assert.equal((await client.readReply()).at(-1)?.type, "done");
        }),
      );
    }
    await gateway.drain(5000);
    const closes = await Promise.all(clients.map(({ closed }) => closed));
    assert.deepEqual(closes.filter(({ code }) => code !== 1001), []);
  });
});
