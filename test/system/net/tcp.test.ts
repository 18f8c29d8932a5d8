import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { connectTcp, isListening } from "../../../lib/system/net/tcp.ts";
import { freePort } from "../../support/free_port.ts";

const never = new AbortController().signal;

async function withServer(serve: (socket: Socket) => void, use: (port: number) => Promise<void>): Promise<void> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => {}));
    serve(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    await use((server.address() as AddressInfo).port);
  } finally {
    for (const socket of sockets) socket.destroy();
    await new Promise((closed) => server.close(closed));
  }
}

for (const host of ["127.0.0.1", "localhost"]) {
  test(`bytes go both ways over ${host}, until the other side ends`, () =>
    withServer((socket) => socket.on("data", (bytes) => socket.end(bytes)), async (port) => {
      const connection = await connectTcp({ host, port }, never);
      connection.write(new TextEncoder().encode("hello"));
      let text = "";
      for (let bytes = await connection.read(never); bytes !== undefined; bytes = await connection.read(never)) {
        text += new TextDecoder().decode(bytes);
      }
      assert.equal(text, "hello");
      assert.equal(await connection.read(never), undefined);
      connection.write(new Uint8Array(1));
      connection.close();
      connection.close();
    }));
}

test("a read that is cancelled leaves the connection open", () =>
  withServer((socket) => socket.on("data", (bytes) => socket.write(bytes)), async (port) => {
    const connection = await connectTcp({ host: "127.0.0.1", port }, never);
    const cancel = new AbortController();
    const reading = connection.read(cancel.signal);
    cancel.abort();
    await assert.rejects(reading, CancelError);
    await assert.rejects(connection.read(cancel.signal), CancelError);
    connection.write(Uint8Array.of(7));
    assert.deepEqual([...await connection.read(never) ?? []], [7]);
    connection.close();
  }));

test("what nobody reads waits at the other side", () => {
  const sent = Promise.withResolvers<Socket>();
  return withServer((socket) => {
    socket.write(new Uint8Array(50_000_000));
    sent.resolve(socket);
  }, async (port) => {
    const connection = await connectTcp({ host: "127.0.0.1", port }, never);
    const socket = await sent.promise;
    await connection.read(never);
    // Time to read the rest, which nobody has asked for
    for (let turn = 0; turn < 2000; turn++) await new Promise((resolve) => setImmediate(resolve));
    assert.ok(socket.writableLength > 30_000_000, `${socket.writableLength} bytes wait`);
    connection.close();
  });
});

test("a closed connection ends the read that waits for it", () =>
  withServer(() => {}, async (port) => {
    const connection = await connectTcp({ host: "127.0.0.1", port }, never);
    const reading = connection.read(never);
    connection.close();
    assert.equal(await reading, undefined);
  }));

test("a refused connection is the system's error, and a cancelled one is not made", async () => {
  await assert.rejects(connectTcp({ host: "127.0.0.1", port: 1 }, never), { code: "ECONNREFUSED" });
  await assert.rejects(connectTcp({ host: "127.0.0.1", port: 1 }, AbortSignal.abort()), CancelError);
});

const signal = new AbortController().signal;

for (const host of ["127.0.0.1", "::1"]) {
  test(`a port of ${host} listens until it is closed`, async (t) => {
    const server = createServer((socket) => socket.resume());
    const listening = once(server, "listening").then(() => true, () => false);
    server.listen(await freePort(), host);
    if (!await listening) return t.skip(`this machine has no ${host}`);
    const origin = `http://${host.includes(":") ? `[${host}]` : host}:${(server.address() as AddressInfo).port}`;
    assert.equal(await isListening(origin, signal), true);
    await new Promise((closed) => server.close(closed));
    assert.equal(await isListening(origin, signal), false);
  });
}

test("nothing is asked once the signal has aborted", async () => {
  assert.equal(await isListening("http://127.0.0.1:9", AbortSignal.abort()), false);
});
