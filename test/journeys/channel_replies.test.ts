import assert from "node:assert/strict";
import { test } from "node:test";
import { bodyHmac } from "../../lib/base/body_hmac.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { type FakeServer, jsonOf, type RunningGateway, until, withWorld, type World } from "../support/world.ts";

const SECRET = "channel-secret-0123456789";

interface ReceiverReply {
  readonly status: number;
  readonly headers?: Record<string, string>;
}

/** Starts the receiver of replies, which answers each request by its number, from 0. Undefined: it does not answer. */
function startReceiver(world: World, answer: (turn: number) => ReceiverReply | undefined): Promise<FakeServer> {
  let turn = 0;
  return world.server((_seen, response) => {
    const given = answer(turn++);
    if (given !== undefined) response.writeHead(given.status, given.headers ?? {}).end();
  });
}

const deliveriesOf = async (gateway: RunningGateway) => (await jsonOf(await gateway.call("/v1/deliveries"))).data;

test("a message is answered at the channel's reply_url, signed, once for each message id", () =>
  withWorld(async (world) => {
    const receiver = await startReceiver(world, () => ({ status: 200 }));
    const config = { channels: { alerts: { secret_env: "HOOK_SECRET", reply_url: `${receiver.origin}/replies?k=1` } } };
    const environment = { HOOK_SECRET: SECRET };
    const gateway = await world.gateway({ script: () => "All is well", config, environment });
    const send = (sender: string) => {
      const body = JSON.stringify({ message: "How is it?", sender, message_id: `${sender}-1` });
      const time = String(Math.floor(systemClock.now() / 1000));
      const hex = Buffer.from(bodyHmac(SECRET, time, body)).toString("hex");
      return gateway.call("/v1/webhook/alerts", {
        body,
        headers: { "x-postern-signature": `t=${time},sha256=${hex}` },
      });
    };
    const { run_id } = await jsonOf(await send("ann"));
    await until(() => receiver.requests.length === 1);
    const [seen] = receiver.requests;
    assert.deepEqual([seen?.method, seen?.path], ["POST", "/replies?k=1"]);
    const { reply, status, sender, message_id } = seen?.json as Record<string, unknown>;
    assert.deepEqual([reply, status, sender, message_id], ["All is well", "completed", "ann", "ann-1"]);
    assert.equal(seen?.headers["idempotency-key"], run_id);
    const [, time = "", hex] = /^t=(\d+),sha256=(\w+)$/.exec(String(seen?.headers["x-postern-signature"])) ?? [];
    assert.equal(hex, Buffer.from(bodyHmac(SECRET, time, seen?.text ?? "")).toString("hex"));
    await until(async () => (await deliveriesOf(gateway))[0]?.status === "delivered");
    // Into the next second, for another signature; a timer may be early
    await systemClock.sleep(1020 - systemClock.now() % 1000);
    assert.equal((await jsonOf(await send("ann"))).run_id, run_id);
    await send("bob");
    await until(() => receiver.requests.length === 2);
    assert.equal((receiver.requests[1]?.json as { sender: string }).sender, "bob");
    assert.deepEqual((await deliveriesOf(gateway)).map((one: { sender: string }) => one.sender), ["bob", "ann"]);
  }));

test("the receiver's redirect to a private address is not followed, and its failure is on record", () =>
  withWorld(async (world) => {
    const receiver = await startReceiver(world, () => ({ status: 307, headers: { location: "http://127.0.0.1:1/" } }));
    const config = { channels: { alerts: { reply_url: receiver.origin } } };
    const gateway = await world.gateway({ script: () => "Hi", config });
    const reply = await gateway.call("/v1/webhook/alerts?wait=1", { body: { message: "Hello" } });
    assert.equal((await jsonOf(reply)).reply, "Hi");
    await until(async () => (await deliveriesOf(gateway))[0]?.attempts > 0);
    const [delivery] = await deliveriesOf(gateway);
    assert.equal(delivery.status, "waiting");
    assert.match(delivery.last_error, /127\.0\.0\.1 is this machine/);
    assert.equal((await gateway.call("/v1/deliveries?status=lost")).status, 400);
  }));

test("a reply that was being sent when the process was killed is sent again after the next start", () =>
  withWorld(async (world) => {
    const folder = await world.folder();
    const receiver = await startReceiver(world, (turn) => (turn === 0 ? undefined : { status: 204 }));
    const config = `[provider]\nkind = "offline"\n[channels.alerts]\nreply_url = "${receiver.origin}"`;
    let runId = "";
    await world.during(world.gatewayProcess({ folder, config }), async (gateway) => {
      await gateway.pair();
      const accepted = await gateway.call("/v1/webhook/alerts", { body: { message: "Hello", message_id: "m1" } });
      assert.equal(accepted.status, 202);
      runId = (await jsonOf(accepted)).run_id;
      await until(() => receiver.requests.length === 1);
    });
    await world.gatewayProcess({ folder, flags: ["--new-pairing"] });
    await until(() => receiver.requests.length === 2);
    const keys = receiver.requests.map(({ headers }) => headers["idempotency-key"]);
    assert.deepEqual(keys, [runId, runId]);
    assert.deepEqual(receiver.requests[1]?.json, receiver.requests[0]?.json);
  }));
