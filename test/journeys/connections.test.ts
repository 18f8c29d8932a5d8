import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { ENDPOINTS } from "../contract/endpoints.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { lastAnswer } from "../support/raw_socket.ts";
import { type RunningGateway, until, withWorld } from "../support/world.ts";

const ON_NODE = !("Deno" in globalThis);
const config = { gateway: { rate_limit_max: 0 } };
const CHUNKED = "2\r\n{}\r\n0\r\n\r\n";

/** Answer as the client sees it: its status, its code, and whether the client was told to send its body before. */
type Seen = `${number} ${string}${"" | " after 100"}`;

/** A request, and what each server says to it. Deno's own server always sends `100 Continue` first, and knows no 501. */
interface Row {
  readonly head: string;
  readonly method?: string;
  readonly path?: string;
  readonly body?: string;
  readonly node: Seen;
  /** Default: as on Node. An empty code: Deno's server answers by itself, without a body */
  readonly deno?: Seen;
}

const BODY_ROWS: readonly Row[] = [
  { head: "Content-Encoding: br\r\nContent-Length: 2", node: "415 unsupported_media_type" },
  { head: "Content-Encoding: GZIP, br\r\nContent-Length: 2", node: "415 unsupported_media_type" },
  { head: "Content-Encoding: br", method: "GET", path: "/health", node: "415 unsupported_media_type" },
  { head: "Content-Encoding: gzip\r\nContent-Length: 2", body: "{}", node: "400 invalid_request" },
  { head: "Content-Encoding: identity\r\nContent-Length: 2", body: "{}", node: "200 " },
  { head: "Content-Encoding: Identity\r\nContent-Length: 2", body: "{}", node: "200 " },
  { head: "Transfer-Encoding: gzip", node: "501 not_implemented", deno: "400 " },
  { head: "Transfer-Encoding: identity", node: "501 not_implemented", deno: "400 " },
  { head: "Transfer-Encoding: xchunked", body: CHUNKED, node: "501 not_implemented", deno: "400 " },
  { head: "Transfer-Encoding: chunked, gzip", body: CHUNKED, node: "501 not_implemented", deno: "400 " },
  { head: "Transfer-Encoding: gzip, chunked", body: CHUNKED, node: "501 not_implemented" },
  { head: "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", body: CHUNKED, node: "501 not_implemented" },
  { head: "Transfer-Encoding: gzip, chunked", method: "GET", body: CHUNKED, node: "501 not_implemented" },
  { head: "Transfer-Encoding: Chunked", body: CHUNKED, node: "200 " },
  { head: "Expect: a-miracle\r\nContent-Length: 2", node: "417 expectation_failed" },
  { head: "Expect: 100-continue, a-miracle\r\nContent-Length: 2", node: "417 expectation_failed" },
  { head: "Expect: a-miracle", method: "GET", path: "/health", node: "417 expectation_failed" },
  { head: "Expect: 100-Continue\r\nContent-Length: 2", body: "{}", node: "200  after 100" },
  { head: "Expect:\r\nContent-Length: 2", body: "{}", node: "200 " },
  {
    head: "Expect: 100-continue\r\nContent-Encoding: br\r\nContent-Length: 2",
    node: "415 unsupported_media_type",
    deno: "415 unsupported_media_type after 100",
  },
  {
    head: "Expect: 100-continue\r\nTransfer-Encoding: gzip, chunked",
    node: "501 not_implemented",
    deno: "501 not_implemented after 100",
  },
  {
    head: "Expect: 100-continue\r\nContent-Length: 99999999",
    node: "413 payload_too_large",
    deno: "413 payload_too_large after 100",
  },
  { head: "Expect: 100-continue\r\nContent-Length: x", node: "400 invalid_request", deno: "400 " },
  {
    head: "Expect: 100-continue\r\nContent-Length: 2",
    path: "/v1/nothing",
    node: "404 not_found",
    deno: "404 not_found after 100",
  },
];

async function ask(gateway: RunningGateway, { head, method = "POST", path = "/v1/ping", body }: Row): Promise<Seen> {
  const raw = await gateway.rawSocket();
  raw.write(
    `${method} ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n${head}\r\n\r\n`,
  );
  if (body !== undefined) {
    if (/Expect: 1/.test(head)) await raw.read(/HTTP/);
    raw.write(body);
  }
  const text = await raw.read(/HTTP\/1\.1 (?!100)[\s\S]*(?:\}|content-length: 0[\s\S]*\r\n\r\n)/i);
  raw.destroy();
  const { status, code = "" } = lastAnswer(text);
  return `${status} ${code}${/^HTTP\/1\.1 100/.test(text) ? " after 100" : ""}` as Seen; // built as it is declared
}

test("what the headers say of the body is judged before the body and before 100 Continue", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config, script: () => "ok" });
    for (const row of BODY_ROWS) {
      const expected = ON_NODE ? row.node : row.deno ?? row.node;
      assert.equal(await ask(gateway, row), expected, `${row.method ?? "POST"} ${row.path ?? ""} ${row.head}`);
    }
  }));

test("a compressed body is taken from the socket in pieces, and a bomb is refused before its end", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: { gateway: { ...config.gateway, max_request_bytes: 100_000 } } });
    const send = async (parts: readonly Uint8Array[], length: number) => {
      const raw = await gateway.rawSocket();
      const head = `Authorization: Bearer ${gateway.token}\r\nContent-Encoding: gzip\r\nContent-Length: ${length}`;
      raw.write(`POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\n${head}\r\n\r\n`);
      for (const part of parts) raw.write(part);
      const text = await raw.read(/HTTP\/1\.1 [\s\S]*\}/);
      raw.destroy();
      return text;
    };
    const body = gzipSync(JSON.stringify({ message: "x".repeat(50_000) }));
    const pieces = Array.from(body, (byte) => Uint8Array.of(byte));
    assert.match(await send(pieces, body.length), /^HTTP\/1\.1 200 [\s\S]*"echo":"x{50000}"/);
    const bomb = gzipSync(new Uint8Array(4_000_000));
    assert.equal(lastAnswer(await send([bomb.subarray(0, -1)], bomb.length)).code, "payload_too_large");
    // A client that goes in the middle leaves nothing behind that the next one could see
    const gone = await gateway.rawSocket();
    gone.write(`POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n`);
    gone.write(`Content-Encoding: gzip\r\nContent-Length: ${body.length}\r\n\r\n`);
    gone.write(body.subarray(0, 20));
    gone.destroy();
    assert.match(await send([body], body.length), /^HTTP\/1\.1 200 /);
  }));

test("each route refuses an unknown coding of its body and an unknown expectation, with a token and without", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config, script: () => "ok" });
    for (const [method, template] of ENDPOINTS) {
      const path = template.replace(/:\w+\+?/, "default");
      for (const token of [gateway.token, "none"]) {
        const row = { method, path, node: "0 " } as const;
        const from = { ...gateway, token };
        const what = `${method} ${path}`;
        assert.equal(
          await ask(from, { ...row, head: "Content-Encoding: br\r\nContent-Length: 2" }),
          "415 unsupported_media_type",
          what,
        );
        assert.equal(
          await ask(from, { ...row, head: "Expect: x\r\nContent-Length: 2" }),
          "417 expectation_failed",
          what,
        );
      }
    }
  }));

/** Requests that are answered before their end, or below HTTP; then the client goes on dripping. */
const DRIPPED: Readonly<Record<string, string>> = {
  "a body that is never read": "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n",
  "a chunked body that is never read":
    "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n",
  "no token": "POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n",
  "a body that is too long": "POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n",
  "a compressed body": "POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\nContent-Encoding: br\r\n\r\n",
  "an unknown path": "POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n",
  "an expectation": "POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\nExpect: x\r\n\r\n",
  "a target that is no address": "POST /../x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n",
  "no host": "POST /v1/ping HTTP/1.1\r\nContent-Length: 1000\r\n\r\n",
  "a transfer coding": "POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n",
  "no HTTP": "HELO\r\n\r\n",
  "a refused handshake":
    "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
  "a handshake that names no host": "GET /ws/chat HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
};

test("a connection whose answer was sent is closed 5 s later, whatever the client drips", {
  skip: ON_NODE
    ? false
    : "Deno's server drains for as long as the client sends, and the gateway has no hand on its connections",
}, () =>
  withWorld(async (world) => {
    const clock = createFakeClock();
    const gateway = await world.gateway({ config, clock, script: () => "ok" });
    for (const [what, bytes] of Object.entries(DRIPPED)) {
      const raw = await gateway.rawSocket({ halfOpen: true });
      raw.write(bytes);
      const answer = await raw.read(/HTTP\/1\.1 \d{3}[\s\S]*\}/);
      if (what !== "a body that is never read" && !what.startsWith("a chunked")) {
        assert.notEqual(lastAnswer(answer).code, undefined, what);
      }
      // The answer is out once the client has it; its end is noted in the same turn
      await clock.advance(5000);
      await until(
        () => raw.socket.destroyed || !raw.socket.write("x") && raw.socket.destroyed,
        () => `still open: ${what}`,
      );
      raw.destroy();
    }
  }));

test(
  "a connection that is drained in time serves the next request",
  { skip: !ON_NODE },
  () =>
    withWorld(async (world) => {
      const clock = createFakeClock();
      const gateway = await world.gateway({ config, clock, script: () => "ok" });
      const raw = await gateway.rawSocket();
      raw.write("POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 6\r\n\r\n{}");
      await raw.read(/auth_required/);
      await clock.advance(4999);
      raw.write("    GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
      await raw.read(/"ok":true/);
      await clock.advance(60_000);
      raw.write("GET /v1/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
      await raw.read(/not_found/);
      raw.destroy();
    }),
);

test(
  "what follows a refusal on the same connection is not worked on",
  { skip: !ON_NODE },
  () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ config, script: () => "ok" });
      const body = '{"messages":[{"role":"user","content":"Hi"}]}';
      const post =
        `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n` +
        `Content-Length: ${body.length}\r\n\r\n${body}`;
      for (const [what, bytes] of Object.entries(DRIPPED)) {
        const raw = await gateway.rawSocket();
        raw.write(bytes);
        raw.write(post);
        await raw.read(/HTTP\/1\.1 \d{3}[\s\S]*\}/);
        raw.destroy();
        assert.equal(gateway.provider.requests.length, 0, what);
      }
    }),
);

const chatBytes = (gateway: RunningGateway, stream: boolean) => {
  const body = JSON.stringify({ stream, messages: [{ role: "user", content: "Hi" }] });
  return `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n` +
    `Content-Length: ${body.length}\r\n\r\n${body}`;
};

test("a client that has ended its half of the connection gets its answer", async () => {
  // Deno's server hangs up on such a client unless the head of the reply is out before it sees the end
  for (const stream of ON_NODE ? [false, true] : [false]) {
    const { promise: holdUntil, resolve: release } = Promise.withResolvers<void>();
    const clock = createFakeClock();
    const script = () => ({ text: ["one ", "two"], holdUntil });
    await withWorld(async (world) => {
      const gateway = await world.gateway({ config, clock, script });
      const raw = await gateway.rawSocket();
      raw.socket.end(chatBytes(gateway, stream));
      if (!ON_NODE) {
        assert.equal(await raw.closed(), "");
        raw.destroy();
        return release();
      }
      await until(() => gateway.provider.active === 1);
      if (stream) await raw.read(/one/);
      // Long enough for the gateway to see that nothing more comes, and to ask whether somebody listens
      for (let i = 0; i < 3; i++) await clock.advance(15_000);
      release();
      const text = await raw.closed();
      raw.destroy();
      assert.match(text, /HTTP\/1\.1 200/);
      assert.match(text, stream ? /data: \[DONE\]/ : /"content":"one two"/);
      assert.equal(gateway.provider.aborted, 0);
    });
  }
});

test("a client that has left is noticed without anything to send to it", { skip: !ON_NODE }, async () => {
  for (const stream of [false, true]) {
    const clock = createFakeClock();
    const script = () => ({ text: "one", hang: "after" as const });
    await withWorld(async (world) => {
      const gateway = await world.gateway({ config, clock, script });
      const raw = await gateway.rawSocket();
      raw.write(chatBytes(gateway, stream));
      await until(() => gateway.provider.active === 1);
      if (stream) await raw.read(/one/);
      const timers = clock.pending();
      raw.destroy();
      await until(() => clock.pending() > timers);
      if (!stream) await clock.advance(500);
      // The second bytes find that the first ones broke the connection
      await clock.advance(250);
      await until(() => gateway.provider.aborted === 1);
    });
  }
});
