import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { type RunningGateway, until, withWorld } from "../support/world.ts";

const random = createSeededRandom(42);
const below = (limit: number) => {
  const [high = 0, low = 0] = random.bytes(2);
  return (high * 256 + low) % limit;
};
const pause = () => systemClock.sleep(below(12));

/** Leaves in the middle of the request's bytes, while the model works, or in the middle of the reply. */
async function leaveHttp(gateway: RunningGateway, stream: boolean): Promise<void> {
  const body = JSON.stringify({ stream, messages: [{ role: "user", content: "Hi" }] });
  const whole = `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const client = await gateway.rawSocket();
  const cut = below(4) === 0 ? below(whole.length) : whole.length;
  client.write(whole.slice(0, cut));
  await pause();
  if (stream && cut === whole.length && below(2) === 0) await client.read(/word/);
  if (below(2) === 0) client.socket.resetAndDestroy();
  else client.destroy();
}

async function leaveSocket(gateway: RunningGateway): Promise<void> {
  const client = await gateway.chat();
  for (let i = below(4); i > 0; i--) client.send("Hi");
  await pause();
  if (below(2) === 0) client.socket.close();
  else client.socket.terminate();
  await client.closed;
}

test("300 clients that leave at random moments leave no run, no socket and no unhandled rejection behind", async () => {
  const unhandled: unknown[] = [];
  const onUnhandled = (reason: unknown) => void unhandled.push(reason);
  process.on("unhandledRejection", onUnhandled);
  const script = () => ({ text: Array.from({ length: 50 }, () => "word "), chunkDelayMs: 1 });
  try {
    await withWorld(async (world) => {
      const gateway = await world.gateway({ script, config: { gateway: { rate_limit_max: 0 } } });
      const kinds = [
        () => leaveHttp(gateway, false),
        () => leaveHttp(gateway, true),
        () => leaveSocket(gateway),
      ];
      for (let round = 0; round < 20; round++) {
        await Promise.all(Array.from({ length: 15 }, (_, i) => kinds[i % 3]?.()));
      }
      const left = () => {
        const metrics = gateway.services.metrics.render();
        return ["postern_runs_active", "postern_ws_connections", "postern_http_requests_in_flight"]
          .filter((name) => !metrics.includes(`\n${name} 0\n`));
      };
      await until(() => left().length === 0 && gateway.provider.active === 0, () => `${left()} are left`);
      assert.ok(gateway.provider.aborted > 50);
      assert.deepEqual(gateway.log.filter(({ level }) => level === "error" || level === "warn"), []);
      const reply = await gateway.call("/v1/chat/completions", {
        body: { messages: [{ role: "user", content: "Hi" }] },
      });
      assert.equal(reply.status, 200);
      await reply.text();
    });
  } finally {
    process.off("unhandledRejection", onUnhandled);
  }
  assert.deepEqual(unhandled, []);
});
