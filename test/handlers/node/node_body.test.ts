import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { gzipSync } from "node:zlib";
import { NodeRequest } from "srvx/node";
import { expandBody } from "../../../handlers/middleware/expand_body.ts";
import { createNodeBodyReader } from "../../../handlers/node/node_body.ts";
import { until } from "../../support/until.ts";

const MAX_BYTES = 1_000_000;

/** Reads a body that comes in these pieces, compressed or not, and forgets it. */
async function readAndForget(
  stream: EventEmitter,
  sizes: readonly number[],
  codings: readonly string[],
): Promise<readonly WeakRef<Uint8Array>[]> {
  const expansion = codings.length === 0 ? undefined : await expandBody(codings, MAX_BYTES);
  // No more of the request is asked
  const request = { runtime: { node: { req: stream } } } as unknown as Request;
  const { bytes } = createNodeBodyReader()(request, MAX_BYTES, expansion);
  const plain = sizes.map((size) => new Uint8Array(size));
  const chunks = codings.length === 0 ? plain : plain.map((chunk) => new Uint8Array(gzipSync(chunk)));
  for (const chunk of chunks) stream.emit("data", chunk);
  stream.emit("end");
  const body = await bytes;
  assert.equal(body.length, sizes.reduce((sum, size) => sum + size));
  return [...chunks, body].map((bytes) => new WeakRef(bytes));
}

test("a body that was read is not kept for as long as its request is answered", {
  skip: "deno" in process.versions ? "Deno reads bodies from streams of its own" : false,
}, async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  for (const [sizes, codings] of [[[50_000], []], [[50_000, 50_000], []], [[50_000, 50_000], ["gzip"]]] as const) {
    const stream = Object.assign(new EventEmitter(), { headers: { "transfer-encoding": "chunked" } });
    const kept = await readAndForget(stream, sizes, codings);
    await until(() => {
      collect();
      return kept.every((body) => body.deref() === undefined);
    }, "it is kept");
    assert.equal(stream.listenerCount("data"), 1, "the request is still there, with what listens to it");
  }
});

test("a body that a clone of the request reads too is whole, and a body that was read before is refused", async () => {
  const readings: Promise<unknown>[] = [];
  const server = createServer((req, res) => {
    const request = new NodeRequest({ req, res });
    const read = () => createNodeBodyReader()(request, MAX_BYTES).bytes;
    readings.push(
      (async () => {
        if (req.url === "/clone") return await Promise.all([request.clone().text(), read()]);
        await request.text();
        return await assert.rejects(read(), { code: "internal_error" });
      })().finally(() => res.end()),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const body = "x".repeat(200_000);
  for (const path of ["/clone", "/read"]) {
    await (await fetch(`http://127.0.0.1:${port}${path}`, { method: "POST", body })).text();
  }
  const [both] = await Promise.all(readings) as [[string, Uint8Array]];
  assert.deepEqual(both.map(({ length }) => length), [200_000, 200_000]);
  server.close();
  server.closeAllConnections();
});
