import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { openChat } from "../support/chat_client.ts";
import { drainPastGrace, drainWithinGrace } from "../support/drained_work.ts";
import { openRawSocket } from "../support/raw_socket.ts";
import { withRunningGateway } from "../support/running_gateway.ts";
import { until } from "../support/until.ts";

test("clients that never read, never finish or never speak cannot hold the drain up", async () => {
  const script = () => ({ text: Array.from({ length: 500 }, () => "x".repeat(64 * 1024)) });
  await withRunningGateway({ script }, async (gateway) => {
    const head = `Host: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n`;
    const body = JSON.stringify({ messages: [{ role: "user", content: "Hi" }], stream: true });
    const silent = await openRawSocket(gateway.port);
    const halfHead = await openRawSocket(gateway.port);
    halfHead.write("GET /health HTTP/1.1\r\nHo");
    const halfBody = await openRawSocket(gateway.port);
    halfBody.write(`POST /v1/ping HTTP/1.1\r\n${head}Content-Length: 100\r\n\r\n{`);
    const deaf = await openRawSocket(gateway.port);
    deaf.socket.pause();
    deaf.write(`POST /v1/chat/completions HTTP/1.1\r\n${head}Content-Length: ${body.length}\r\n\r\n${body}`);
    const deafSocket = await openChat(`${gateway.url.replace("http", "ws")}/ws/chat`, {
      headers: { authorization: `Bearer ${gateway.token}` },
    });
    deafSocket.socket.pause();
    deafSocket.send("Hi");
    await until(() => gateway.provider.active >= 2);
    const started = systemClock.monotonic();
    await gateway.drain(50);
    assert.ok(systemClock.monotonic() - started < 6000);
    for (const raw of [silent, halfHead, halfBody, deaf]) raw.destroy();
    deafSocket.socket.terminate();
    await until(() => gateway.provider.active === 0);
  });
});

const LOAD = { streams: 200, requests: 200, sockets: 50, runs: 50 };

test("SIGTERM during 200 streams and 200 requests cuts nothing within the grace, and runs go on at the next start", () =>
  drainWithinGrace(LOAD));

test("SIGTERM during 200 streams and 200 requests that outlive the grace gives each its final event", () =>
  drainPastGrace(LOAD));
