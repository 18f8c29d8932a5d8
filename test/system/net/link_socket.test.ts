import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { openLinkSocket } from "../../../lib/system/net/link_socket.ts";

const NOTHING = { text: () => {}, binary: () => {}, closed: () => {} };

async function withServer(prepare: (server: Server) => void, use: (url: URL) => Promise<void>): Promise<void> {
  const server = createServer();
  // One that was handed over for an upgrade is not the server's any more
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => sockets.add(socket));
  prepare(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/ws/node?id=pi`));
  } finally {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  }
}

const open = (url: URL, more: { signal?: AbortSignal; timeoutMs?: number } = {}) =>
  openLinkSocket(
    { url, token: "the-token-0123456789", clock: systemClock, signal: new AbortController().signal, ...more },
    NOTHING,
  );

const refuse = (status: string, body: string) => (server: Server) =>
  server.on(
    "upgrade",
    (_request, socket) =>
      socket.end(
        `HTTP/1.1 ${status}\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
      ),
  );

test("a refusal is told with its status and the gateway's own sentence, made harmless for a terminal", async () => {
  const body = JSON.stringify({ error: { message: "Cannot connect: no\u001b[2J" } });
  await withServer(refuse("403 Forbidden", body), async (url) => {
    await assert.rejects(open(url), {
      name: "LinkError",
      status: 403,
      message: `Cannot connect to ${url.origin}: Cannot connect: no [2J`,
    });
  });
});

test("a letter of a refusal that comes in two pieces stays whole", async () => {
  const body = Buffer.from(JSON.stringify({ error: { message: "Cannot connect: Zürich" } }));
  const cut = body.indexOf("ü") + 1;
  await withServer((server) =>
    server.on("upgrade", (_request, socket) => {
      socket.write(`HTTP/1.1 403 No\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n`);
      socket.write(body.subarray(0, cut));
      setTimeout(() => socket.end(body.subarray(cut)), 20);
    }), async (url) => {
    await assert.rejects(open(url), { message: /Zürich$/ });
  });
});

test("a refusal without a sentence, or with too long a one, is told by what it is", async () => {
  await withServer(refuse("500 Oh", "<html>"), async (url) => {
    await assert.rejects(open(url), { status: 500, message: /it answers with status 500$/ });
  });
  const body = JSON.stringify({ error: { message: "x".repeat(60_000) } });
  await withServer(refuse("401 No", body), async (url) => {
    await assert.rejects(open(url), (error: Error) => error.message.length < 600);
  });
});

test("the token goes in the header and never into an error", async () => {
  const seen: (string | undefined)[] = [];
  await withServer((server) => {
    server.on("upgrade", (request, socket) => {
      seen.push(request.headers.authorization, request.url);
      socket.destroy();
    });
  }, async (url) => {
    await assert.rejects(open(url), (error: Error) => !error.message.includes("the-token"));
    assert.deepEqual(seen.slice(0, 2), ["Bearer the-token-0123456789", "/ws/node?id=pi"]);
  });
});

test("who is not there, and who says nothing, is an error within the time limit", async () => {
  await assert.rejects(open(new URL("http://127.0.0.1:1/ws/node?id=pi")), { name: "LinkError", status: undefined });
  await withServer((server) => void server.on("upgrade", () => {}), async (url) => {
    await assert.rejects(open(url, { timeoutMs: 100 }), { name: "LinkError", message: /does not answer in time$/ });
  });
});

test("an abort ends the attempt", async () => {
  await withServer((server) => void server.on("upgrade", () => {}), async (url) => {
    const controller = new AbortController();
    const opening = open(url, { signal: controller.signal });
    controller.abort();
    await assert.rejects(opening, { name: "CancelError" });
    await assert.rejects(open(url, { signal: controller.signal }), { name: "CancelError" });
  });
});
