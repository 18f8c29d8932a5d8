import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { HandshakeRefused, openChat } from "../support/chat_client.ts";
import {
  jsonOf,
  type ReceivedFrame,
  type RunningGateway,
  type RunningGatewayOptions,
  until,
  withWorld,
} from "../support/world.ts";

const ON_NODE = !("Deno" in globalThis);
const nodeOnly = ON_NODE ? {} : { skip: "Deno sends its own pings and tells the gateway of none" };

const socketUrl = ({ url }: RunningGateway, query = "") => `${url.replace("http", "ws")}/ws/chat${query}`;

const open = (gateway: RunningGateway, headers: Readonly<Record<string, string>> = {}) =>
  openChat(socketUrl(gateway), { headers: { authorization: `Bearer ${gateway.token}`, ...headers } });

const textOf = (frames: readonly ReceivedFrame[]) => frames.map((frame) => frame["delta"] ?? "").join("");

/** A script that answers with the last message it was sent. */
const echo: NonNullable<RunningGatewayOptions["script"]> = (request) => ({
  text: `<${request.messages.at(-1)?.content}>`,
});

test("a conversation in plain frames with exactly the contract's fields", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [{ text: ["Hello", " you"] }, "again"] });
    const client = await open(gateway);
    client.send("Hi");
    assert.deepEqual(await client.readReply(), [
      { type: "delta", delta: "Hello" },
      { type: "delta", delta: " you" },
      { type: "done" },
    ]);
    client.send({ type: "message", text: "More" });
    assert.equal(textOf(await client.readReply()), "again");
    const roles = gateway.provider.requests[1]?.messages.filter(({ role }) => role !== "system").map(({ role }) =>
      role
    );
    assert.deepEqual(roles, ["user", "assistant", "user"]);
    await client.leave();
  }));

test("a ticket opens one socket, once, with the scopes of its token", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: echo });
    const { ticket } = await jsonOf(gateway.call("/v1/ws-ticket", { method: "POST" }));
    const client = await openChat(socketUrl(gateway, `?ticket=${ticket}`));
    client.send("Hi");
    assert.equal(textOf(await client.readReply()), "<Hi>");
    await client.leave();
    await assert.rejects(openChat(socketUrl(gateway, `?ticket=${ticket}`)), new HandshakeRefused(401));
    const other = await jsonOf(gateway.call("/v1/ws-ticket", { method: "POST" }));
    const results = await Promise.allSettled(
      Array.from({ length: 10 }, () => openChat(socketUrl(gateway, `?ticket=${other.ticket}`))),
    );
    const opened = results.filter((result) => result.status === "fulfilled");
    assert.equal(opened.length, 1);
    for (const { value } of opened) await value.leave();
    const { token } = await jsonOf(gateway.call("/v1/tokens", { body: { scopes: ["tools"] } }));
    const headers = { authorization: `Bearer ${token}` };
    assert.equal((await gateway.call("/v1/ws-ticket", { method: "POST", headers })).status, 403);
    await assert.rejects(openChat(socketUrl(gateway), { headers }), new HandshakeRefused(403));
  }));

test("the handshake is refused without a token, from other sites, for other hosts and on other routes", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: echo });
    const own = `127.0.0.1:${gateway.port}`;
    const auth = { authorization: `Bearer ${gateway.token}` };
    const refused: readonly (readonly [number, Readonly<Record<string, string>>])[] = [
      [401, {}],
      [401, { authorization: "Bearer pst_wrong" }],
      [401, { authorization: `Basic ${gateway.token}` }],
      [403, { ...auth, origin: "https://evil.example" }],
      [403, { ...auth, origin: "null" }],
      [403, { ...auth, origin: `http://${own}.evil.example` }],
      [403, { ...auth, origin: `http://127.0.0.1:${gateway.port + 1}` }],
      [403, { ...auth, "sec-fetch-site": "cross-site" }],
      [403, { ...auth, origin: `http://${own}`, "sec-fetch-site": "cross-site" }],
      [403, { ...auth, host: "evil.example" }],
      [403, { ...auth, host: `evil.example:${gateway.port}`, origin: `http://evil.example:${gateway.port}` }],
    ];
    for (const [status, headers] of refused) {
      await assert.rejects(
        openChat(socketUrl(gateway), { headers }),
        new HandshakeRefused(status),
        JSON.stringify(headers),
      );
    }
    for (const path of ["/", "/health", "/v1/ping", "/v1/chat/completions", "/ws", "/ws/chat/"]) {
      await assert.rejects(
        openChat(gateway.url.replace("http", "ws") + path, { headers: auth }),
        new HandshakeRefused(400),
      );
    }
    await (await open(gateway, { origin: `http://${own}` })).leave();
    const { status, headers } = await gateway.call("/ws/chat");
    assert.deepEqual([status, headers.get("upgrade")], [426, "websocket"]);
  }));

test("without an agent the handshake is 503", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ agent: false });
    await assert.rejects(open(gateway), new HandshakeRefused(503));
  }));

test("bad frames get an error frame and the socket stays", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: echo });
    const client = await open(gateway);
    const bad = [
      new Uint8Array([1, 2, 3]),
      new Uint8Array(0),
      "",
      '{"type":"message"}',
      '{"type":"message","text":7}',
      '{"type":"message","text":""}',
      '{"type":"message","text":"x","conversation_id":{}}',
      '{"type":"approve"}',
      '{"type":"resume","run_id":"x","after":-1}',
      '{"type":"hello","events":"yes"}',
    ];
    for (const frame of bad) {
      client.send(frame);
      const [error] = await client.readReply();
      assert.deepEqual(Object.keys(error ?? {}), ["type", "message", "code"], JSON.stringify(frame));
      assert.equal(error?.["code"], "invalid_request");
    }
    for (const frame of [{ type: "deny", approval_id: "nothing" }, { type: "resume", run_id: "nothing", after: 0 }]) {
      client.send(frame);
      assert.equal((await client.readReply()).at(-1)?.["code"], "not_found");
    }
    client.send({ type: "ping" });
    assert.deepEqual(await client.readUntil(({ type }) => type === "pong"), [{ type: "pong" }]);
    client.send("Hi");
    assert.equal(textOf(await client.readReply()), "<Hi>");
    await client.leave();
  }));

test("a frame of max_message_bytes is taken, one byte more closes with 1009", () =>
  withWorld(async (world) => {
    const config = { gateway: { websocket: { max_message_bytes: 1024 } } };
    const gateway = await world.gateway({ config, script: echo });
    const client = await open(gateway);
    client.send("é".repeat(512));
    assert.equal(textOf(await client.readReply()).length, 514);
    client.send("é".repeat(512) + "x");
    assert.equal((await client.closed).code, 1009);
    const binary = await open(gateway);
    binary.send(new Uint8Array(1025));
    assert.equal((await binary.closed).code, 1009);
  }));

test("the default limit of a frame is 2 MiB", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => "ok" });
    const client = await open(gateway);
    client.send("x".repeat(2 * 1024 * 1024));
    assert.equal(textOf(await client.readReply()), "ok");
    client.send("x".repeat(2 * 1024 * 1024 + 1));
    assert.equal((await client.closed).code, 1009);
  }));

test("cancel ends the running message with an error frame, and the next one is answered", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [{ text: "half", hang: "after" }, "whole"] });
    const client = await open(gateway);
    client.send("Hi");
    await client.readUntil(({ type }) => type === "delta");
    client.send({ type: "cancel" });
    const [error] = await client.readReply();
    assert.deepEqual([error?.type, error?.["code"]], ["error", "cancelled"]);
    assert.equal(gateway.provider.aborted, 1);
    client.send({ type: "cancel" });
    client.send("Again");
    assert.equal(textOf(await client.readReply()), "whole");
    await client.leave();
  }));

const CANCELS = { config: { runs: { when_reader_leaves: "cancel" } } } as const;

test("a client that goes away cancels its run and those that wait, where the configuration says so", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ ...CANCELS, script: () => ({ text: "x", hang: "after" }) });
    const client = await open(gateway);
    for (const text of ["a", "b", "c"]) client.send(text);
    await client.readUntil(({ type }) => type === "delta");
    client.socket.terminate();
    await until(() => gateway.provider.active === 0);
    assert.equal(gateway.provider.requests.length, 1);
    assert.equal(gateway.provider.aborted, 1);
    await until(() => /postern_ws_connections 0\n/.test(gateway.services.metrics.render()));
  }));

test("a slow reader pauses the model, and what waits for it is bounded", () =>
  withWorld(async (world) => {
    const chunk = "x".repeat(64 * 1024);
    const chunks = 320;
    let made = 0;
    const text = {
      *[Symbol.iterator]() {
        for (; made < chunks; made++) yield chunk;
      },
    };
    const script = () => ({ text: text as unknown as string[] });
    // A reply that goes on without its reader waits for nobody, and its events are in the journal
    const gateway = await world.gateway({ ...CANCELS, script });
    const client = await open(gateway);
    client.socket.pause();
    client.send("Hi");
    let seen = -1;
    while (made === 0 || made !== seen) {
      seen = made;
      await systemClock.sleep(150);
    }
    // 1 MiB in the gateway, the rest in the two kernels' buffers
    assert.ok(made * chunk.length < 12 * 1024 * 1024, `${made} chunks were made for a reader that reads none`);
    client.socket.resume();
    const frames = await client.readReply();
    assert.equal(textOf(frames).length, chunks * chunk.length);
    assert.equal(frames.at(-1)?.type, "done");
    await client.leave();
  }));

test("the gateway pings, and drops a peer that does not answer", nodeOnly, () =>
  withWorld(async (world) => {
    const config = { gateway: { websocket: { heartbeat_secs: 1, pong_timeout_secs: 3 } } };
    const gateway = await world.gateway({ config, script: echo });
    const answering = await open(gateway);
    let pings = 0;
    answering.socket.on("ping", () => pings++);
    const silent = await openChat(socketUrl(gateway), {
      headers: { authorization: `Bearer ${gateway.token}` },
      autoPong: false,
    });
    assert.equal((await silent.closed).code, 1006);
    assert.ok(pings >= 1);
    answering.send("Hi");
    assert.equal(textOf(await answering.readReply()), "<Hi>");
    await answering.leave();
  }));

test("a message whose files are still read is stopped as any other, and the next one is answered", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: echo });
    const form = new FormData();
    form.append("file", new File(["%PDF-1.4"], "a.pdf", { type: "application/pdf" }));
    const sent = new Response(form);
    const headers = { "content-type": sent.headers.get("content-type") ?? "" };
    const { id } = await jsonOf(gateway.call("/v1/files", { body: new Uint8Array(await sent.arrayBuffer()), headers }));
    const begun = Promise.withResolvers<void>();
    const workers = gateway.services.agent?.files?.workers ?? assert.fail("no files");
    workers.run = ({ signal }) =>
      new Promise((_, reject) => {
        begun.resolve();
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      });
    const client = await open(gateway);
    client.send({ type: "message", text: "Read it", files: [id] });
    await begun.promise;
    client.send({ type: "cancel" });
    const [error] = await client.readReply();
    assert.deepEqual([error?.["code"], error?.["message"]], ["conflict", "The work was cancelled"]);
    client.send("Hi");
    assert.equal(textOf(await client.readReply()), "<Hi>");
    await client.leave();
  }));

test("a socket on which nothing is said is closed after idle_timeout_secs", () =>
  withWorld(async (world) => {
    const config = { gateway: { websocket: { idle_timeout_secs: 1 } } };
    const gateway = await world.gateway({ config, script: echo });
    const { code, reason } = await (await open(gateway)).closed;
    assert.deepEqual([code, reason], [1000, "Nothing was said for 1 s"]);
  }));

test("broken frames of the protocol end their own socket alone", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: echo });
    const other = await open(gateway);
    const attacks = [
      ...(ON_NODE ? [[0x81, 0x02, 0x68, 0x69]] : []), // not masked, which Deno lets pass
      [0xf1, 0x80, 0, 0, 0, 0], // reserved bits
      [0x83, 0x80, 0, 0, 0, 0], // an unknown opcode
      [0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], // 2^63 bytes
      [0x89, 0xfe, 0x00, 0x7e, 0, 0, 0, 0], // a ping of 126 bytes
      [0x81, 0x82, 0, 0, 0, 0, 0xff, 0xff], // text that is no UTF-8
      [0x80, 0x80, 0, 0, 0, 0], // a continuation of nothing
      [0x88, 0x81, 0, 0, 0, 0, 0x03], // half a close code
    ];
    for (const bytes of attacks) {
      const client = await open(gateway);
      // The client's own stream: ws has no way to say such things
      const { _socket: stream } = client.socket as unknown as { _socket: { write(bytes: Uint8Array): void } };
      stream.write(new Uint8Array(bytes));
      assert.notEqual((await client.closed).code, 1000, String(bytes));
    }
    other.send("Hi");
    assert.equal(textOf(await other.readReply()), "<Hi>");
    await other.leave();
  }));
