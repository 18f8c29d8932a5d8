import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { isListening } from "../../../lib/system/net/is_listening.ts";
import { freePort } from "../../support/free_port.ts";

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
