import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import * as zlib from "node:zlib";
import * as v from "valibot";
import { defineRoute } from "../../../handlers/define_route.ts";
import type { Route } from "../../../handlers/route.ts";
import { readJson } from "../../../handlers/wire/read_json.ts";
import { emptyReply, sendJson } from "../../../handlers/wire/reply.ts";
import { createTestRouter, errorOf, type SendInit } from "../../support/test_router.ts";

/** Deno takes the beginning of a zstd stream for all of it. */
const HAS_ZSTD = !("deno" in process.versions);
const MAX = 100_000;

const schema = v.optional(v.looseObject({ text: v.string() }));
let handled = 0;
const echo: Route = {
  method: "POST",
  path: "/echo",
  access: "public",
  summary: "",
  body: schema,
  bodyOptional: true,
  reply: { status: 200, type: "application/json" },
  idempotency: "honoured",
  handler: async (request, context) => {
    const body = await readJson(request, context, schema, { optional: true });
    handled++;
    return sendJson(context, 200, { length: body?.text.length ?? null });
  },
};
const createEcho = (more: Parameters<typeof createTestRouter>[0] = {}) =>
  createTestRouter({ routes: [echo], gateway: { max_request_bytes: MAX }, ...more });

const post = (coding: string, body: unknown, init: SendInit = {}) =>
  createEcho().send("POST", "/echo", { body, ...init, headers: { "content-encoding": coding, ...init.headers } });

const COMPRESS = {
  gzip: (bytes: Uint8Array) => new Uint8Array(zlib.gzipSync(bytes)),
  deflate: (bytes: Uint8Array) => new Uint8Array(zlib.deflateSync(bytes)),
  zstd: (bytes: Uint8Array) => new Uint8Array(zlib.zstdCompressSync(bytes)),
};
type Coding = keyof typeof COMPRESS;
const CODINGS = (Object.keys(COMPRESS) as Coding[]).filter((coding) => coding !== "zstd" || HAS_ZSTD);

const jsonOf = (length: number) => new TextEncoder().encode(JSON.stringify({ text: "x".repeat(length) }));
const joined = (...parts: readonly Uint8Array[]) => new Uint8Array(Buffer.concat(parts));

function streamOf(parts: Iterable<Uint8Array>, onCancel = () => {}) {
  const iterator = parts[Symbol.iterator]();
  return new ReadableStream<Uint8Array>({
    pull(controller) {
      const { done, value } = iterator.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    cancel: onCancel,
  }, { highWaterMark: 0 });
}

async function refused(reply: Response): Promise<string> {
  const { code, message } = await errorOf(reply);
  return `${reply.status} ${code}: ${message}`;
}

test("a compressed body is read in each coding, twice compressed, and in pieces of one byte", async () => {
  for (const coding of CODINGS) {
    const body = COMPRESS[coding](jsonOf(50_000));
    const pieces = Array.from(body, (byte) => Uint8Array.of(byte));
    const twice = COMPRESS.gzip(body);
    const forms: readonly (readonly [header: string, body: unknown])[] = [
      [coding, body],
      [coding.toUpperCase(), streamOf(pieces)],
      [`identity, ${coding}`, body],
      [`${coding},, gzip`, twice],
    ];
    for (const [header, sent] of forms) {
      const reply = await post(header, sent);
      assert.deepEqual([reply.status, await reply.json()], [200, { length: 50_000 }], header);
    }
  }
  const { status } = await post("x-gzip", COMPRESS.gzip(jsonOf(1)));
  assert.equal(status, 200);
});

test("no bytes are no body, whatever their coding", async () => {
  const reply = await post("gzip", "", { headers: { "content-length": "0" } });
  assert.deepEqual([reply.status, await reply.json()], [200, { length: null }]);
});

test("an unknown coding, a third one, and one that the runtime lacks are 415 with those that are taken", async () => {
  const known = HAS_ZSTD ? "gzip, deflate, zstd" : "gzip, deflate";
  const rows: readonly (readonly [coding: string, known: string])[] = [
    ["br", "gzip, deflate, zstd"],
    ["gzip, br", "gzip, deflate, zstd"],
    ["gzip, gzip, gzip", "gzip, deflate, zstd"],
    ...(HAS_ZSTD ? [] : [["zstd", known] as const]),
  ];
  for (const [coding, taken] of rows) {
    const reply = await post(coding, new Uint8Array([1]));
    assert.equal(reply.headers.get("accept-encoding"), taken, coding);
    assert.match(await refused(reply), /^415 unsupported_media_type: .*gzip, deflate/, coding);
  }
});

test("a body is bounded by what comes out, not by its Content-Length", async () => {
  for (const coding of CODINGS) {
    const fits = COMPRESS[coding](jsonOf(MAX - 11));
    assert.ok(fits.length < 1000);
    const headers = { "content-length": String(fits.length) };
    assert.equal((await post(coding, fits, { headers })).status, 200, coding);
    const long = await post(coding, COMPRESS[coding](jsonOf(MAX - 10)));
    assert.match(await refused(long), /^413 payload_too_large: .*100000 bytes/, coding);
  }
});

test("a bomb ends the reading of its body, which need not come to its end", async () => {
  for (const coding of CODINGS) {
    const bomb = COMPRESS[coding](new Uint8Array(4 * 1024 * 1024));
    const cancelled = Promise.withResolvers<void>();
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(bomb.subarray(0, -8)),
      // No more comes
      pull: () => new Promise<void>(() => {}),
      cancel: () => cancelled.resolve(),
    });
    assert.match(await refused(await post(coding, body)), /^413 payload_too_large/, coding);
    await cancelled.promise;
  }
});

test("what is between two codings is bounded too", async () => {
  const bomb = COMPRESS.gzip(new Uint8Array(4 * 1024 * 1024));
  assert.match(await refused(await post("gzip, gzip", COMPRESS.gzip(bomb))), /^413 /);
  // Many empty parts, out of which nothing comes
  const empty = COMPRESS.gzip(new Uint8Array(0));
  const nothing = new Uint8Array(Buffer.concat(Array<Uint8Array>(Math.ceil(8 * MAX / empty.length)).fill(empty)));
  const small = COMPRESS.gzip(nothing);
  assert.ok(small.length < MAX);
  assert.match(await refused(await post("gzip, gzip", small)), /^413 /);
});

test("a body that is cut, changed, or followed by other bytes is 400 and names the header", async () => {
  for (const coding of CODINGS) {
    const whole = COMPRESS[coding](jsonOf(20_000));
    const changed = whole.map((byte, at) => at === whole.length - 12 ? byte ^ 255 : byte);
    const bodies = [
      ...[1, 4, whole.length >> 1, whole.length - 3].map((cut) => whole.subarray(0, whole.length - cut)),
      joined(whole, new TextEncoder().encode("behind")),
      streamOf([whole, new TextEncoder().encode("behind")]),
      joined(whole, new Uint8Array(3)),
      // A frame of zstd need not have a sum
      ...(coding === "zstd" ? [] : [changed]),
      jsonOf(3),
    ];
    for (const [at, body] of bodies.entries()) {
      const before = handled;
      const answer = await refused(await post(coding, body));
      assert.match(answer, /^400 invalid_request: .*Content-Encoding/, `${coding} ${at}`);
      assert.equal(handled, before);
    }
  }
  const twice = await post("gzip, gzip", COMPRESS.gzip(COMPRESS.gzip(jsonOf(9)).subarray(0, -2)));
  assert.match(await refused(twice), /^400 .*Content-Encoding/);
  assert.match(await refused(await post("gzip", COMPRESS.gzip(new Uint8Array([0xff, 0xff])))), /^400 .*UTF-8/);
});

test(
  "a zstd frame that asks for a window of 128 MiB is refused before its first byte",
  { skip: !HAS_ZSTD },
  async () => {
    const compress = zlib.createZstdCompress({ params: { [zlib.constants.ZSTD_c_windowLog]: 27 } });
    compress.write(jsonOf(10));
    compress.end();
    const parts: Uint8Array[] = [];
    for await (const part of compress) parts.push(part as Uint8Array);
    assert.match(await refused(await post("zstd", joined(...parts))), /^400 .*Content-Encoding.*windowTooLarge/);
  },
);

test("a body that somebody has read before is refused, whatever its coding", async () => {
  const request = new Request("http://127.0.0.1/echo", {
    method: "POST",
    headers: { "content-type": "application/json", "content-encoding": "gzip" },
    body: COMPRESS.gzip(jsonOf(1)),
  });
  await request.arrayBuffer();
  const reply = await createEcho().router.fetch(request);
  assert.match(await refused(reply), /^500 /);
  // An error that nobody has heard of ends the process in the next turn of its event loop
  await new Promise((resolve) => setImmediate(resolve));
});

test("a client that goes in the middle, and one that is slow, end the expansion", async () => {
  const whole = COMPRESS.gzip(jsonOf(1000));
  const broken = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(whole.subarray(0, 20)),
    pull: (controller) => controller.error(new Error("gone")),
  });
  const before = handled;
  assert.match(await refused(await post("gzip", broken)), /^408 /);
  const reading = Promise.withResolvers<void>();
  const slow = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(whole.subarray(0, 20)),
    pull: () => {
      reading.resolve();
      return new Promise<void>(() => {});
    },
  });
  const { send, services } = createEcho();
  const answer = send("POST", "/echo", { body: slow, headers: { "content-encoding": "gzip" } });
  await reading.promise;
  await services.clock.advance(600_000);
  assert.match(await refused(await answer), /^408 request_timeout: .*600 s/);
  assert.equal(handled, before);
});

test("a repeat is the same request, however its body is compressed", async () => {
  const { send } = createEcho();
  const headers = { "idempotency-key": "k" };
  const before = handled;
  for (const [coding, body] of [["identity", jsonOf(7)], ["gzip", COMPRESS.gzip(jsonOf(7))]] as const) {
    const reply = await send("POST", "/echo", {
      token: "token_chat",
      body,
      headers: { ...headers, "content-encoding": coding },
    });
    assert.deepEqual([reply.status, await reply.json()], [200, { length: 7 }]);
  }
  assert.equal(handled, before + 1);
  const other = await send("POST", "/echo", {
    body: COMPRESS.gzip(jsonOf(8)),
    headers: { ...headers, "content-encoding": "gzip" },
  });
  assert.equal(other.status, 409);
});

test("a signature of the body is one of what was compressed", async () => {
  const plain = jsonOf(5);
  let signed: Uint8Array | undefined;
  const route = defineRoute({
    ...{ method: "POST", path: "/signed", access: "public", needs: [], summary: "", idempotency: "harmless" },
    body: v.object({ text: v.string() }),
    reply: { status: 204 },
    before: async (_parts, input) => {
      signed = await input.bytes();
    },
    handle: () => emptyReply(),
  });
  const { send } = createTestRouter({ routes: [route] });
  const reply = await send("POST", "/signed", { body: COMPRESS.gzip(plain), headers: { "content-encoding": "gzip" } });
  assert.deepEqual([reply.status, new Uint8Array(signed ?? [])], [204, plain]);
});
