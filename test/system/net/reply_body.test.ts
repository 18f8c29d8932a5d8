import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as zlib from "node:zlib";
import { CancelError } from "../../../lib/base/cancel.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import type { ReplyHead } from "../../../lib/system/net/pinned_exchange.ts";
import { type BodySink, findEncodings } from "../../../lib/system/net/reply_body.ts";
import { fetchSetUp, fetchSites, textOf } from "../../support/fetch_bench.ts";
import { triesOf } from "../../support/seeded_random.ts";

const { site, rawSite } = fetchSites();

const TEXT = "Grüezi mitenand, ".repeat(3_000);
const BYTES = Buffer.byteLength(TEXT);
const ENCODINGS = await findEncodings();
/** Bytes of a bomb: twice what the growth of a body is looked at from */
const SIZE = triesOf(2_097_152);

/** Compressed forms of a text by the name of their encoding, those that this runtime reads. */
const FORMS: ReadonlyMap<string, (text: string | Uint8Array) => Uint8Array> = new Map(
  ([
    ["gzip", zlib.gzipSync],
    ["deflate", zlib.deflateSync],
    ["br", zlib.brotliCompressSync],
    ["zstd", zlib.zstdCompressSync],
  ] as const).filter(([name]) => name === "deflate" || ENCODINGS.includes(name)),
);

/** Starts a server that sends the body of `bodies` by path, with the first part of the path as its encoding. */
const encodedSite = (bodyOf: (path: string) => Uint8Array | string) =>
  site((request, response) => {
    const path = decodeURIComponent(request.url?.slice(1) ?? "");
    response.writeHead(200, { "content-encoding": path.split("/")[0] ?? "" }).end(bodyOf(path));
  });

describe("compressed replies", () => {
  test("asks for what this runtime reads to its end, gzip at least, or for nothing compressed", async () => {
    assert.equal(ENCODINGS[0], "gzip");
    if (!("Deno" in globalThis)) assert.deepEqual(ENCODINGS, ["gzip", "br", "zstd"]);
    const place = await site((_request, response) => response.end());
    const { get } = fetchSetUp();
    await get(place.origin);
    await get(place.origin, { identity: true });
    const asked = place.seen.map(({ headers }) => headers["accept-encoding"]);
    assert.deepEqual(asked, [ENCODINGS.join(", "), "identity"]);
  });

  for (const [name, compress] of FORMS) {
    test(`${name}: read whole, cut at the bound, and a truncated or damaged stream is an error that says so`, async () => {
      const whole = compress(TEXT);
      const damaged = Uint8Array.from(whole);
      damaged.fill(0xff, 0, 12);
      const bodies: Readonly<Record<string, Uint8Array>> = {
        whole,
        half: whole.subarray(0, whole.length >> 1),
        cut: whole.subarray(0, whole.length - 1),
        damaged,
        plain: Buffer.from("this is not compressed at all"),
        empty: new Uint8Array(),
      };
      const place = await encodedSite((path) => bodies[path.split("/")[1] ?? ""] ?? "");
      const { get, failure } = fetchSetUp();
      const at = (path: string) => `${place.origin}/${name}/${path}`;
      const reply = await get(at("whole"));
      assert.deepEqual([textOf(reply.body), reply.bytes, reply.truncated], [TEXT, BYTES, false]);
      const short = await get(at("whole"), { maxBytes: 1_000 });
      assert.deepEqual([short.body.length, short.bytes, short.truncated], [1_000, 1_000, true]);
      assert.deepEqual([(await get(at("whole"), { maxBytes: BYTES })).truncated], [false]);
      for (const path of ["half", "cut"]) {
        assert.match(
          (await failure(at(path))).message,
          new RegExp(`127\\.0\\.0\\.1.*its ${name} body ends in the middle`),
          path,
        );
      }
      for (const path of ["damaged", "plain"]) {
        assert.match(
          (await failure(at(path))).message,
          new RegExp(`its ${name} body (is damaged|ends in the middle)`),
          path,
        );
      }
      // A reply without a body may say how it would be compressed
      assert.equal((await get(at("empty"))).bytes, 0);
      assert.equal((await get(at("whole"), { method: "HEAD" })).bytes, 0);
    });

    test(`${name}: a bomb costs no more than the bound`, async () => {
      const bomb = compress(new Uint8Array(SIZE));
      const place = await encodedSite(() => bomb);
      const reply = await fetchSetUp().get(`${place.origin}/${name}`);
      assert.deepEqual([reply.body.length, reply.truncated], [100_000, true]);
    });
  }

  test("refuses a body that grows more than 2,000 times, whatever its bound", async () => {
    const place = await encodedSite((path) => FORMS.get(path)?.(new Uint8Array(SIZE)) ?? "");
    const { failure, get } = fetchSetUp();
    const far = { maxBytes: 100_000_000 };
    for (const name of ["br", "zstd"].filter((one) => FORMS.has(one))) {
      assert.match((await failure(`${place.origin}/${name}`, far)).message, /grows more than 2000 times/, name);
    }
    // As much as gzip ever does
    assert.equal((await get(`${place.origin}/gzip`, far)).bytes, SIZE);
  });

  test("bounds the compressed bytes too: empty members of gzip never give a byte", async () => {
    const members = Buffer.concat(new Array<Uint8Array>(20_000).fill(zlib.gzipSync("")));
    const place = await encodedSite(() => members);
    assert.match(
      (await fetchSetUp().failure(`${place.origin}/gzip`)).message,
      /compressed body is longer than 165536 bytes/,
    );
  });

  test("refuses unknown and stacked encodings by name; an empty one and identity are none", async () => {
    const place = await encodedSite(() => "plain");
    const { get, failure } = fetchSetUp();
    for (const name of ["compress", "dcb", "constructor", "__proto__", "aes128gcm", "gzip2"]) {
      const { message } = await failure(`${place.origin}/${encodeURIComponent(name)}`);
      assert.ok(message.includes(`compressed as "${name}", which is not read here`), message);
    }
    for (const names of ["gzip, br", "gzip,gzip", "identity, gzip, deflate"]) {
      assert.match(
        (await failure(`${place.origin}/${encodeURIComponent(names)}`)).message,
        /more than once \("[a-z, ]+"\)/,
      );
    }
    for (const names of ["identity", " ", "identity,identity"]) {
      assert.equal(textOf((await get(`${place.origin}/${encodeURIComponent(names)}`)).body), "plain", names);
    }
  });

  test("a connection that breaks off inside a compressed body is an error of its own", async () => {
    const body = zlib.gzipSync(TEXT);
    const place = await rawSite((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${body.length + 50}\r\n\r\n`);
      socket.end(body);
    });
    assert.match((await fetchSetUp().failure(place.origin)).message, /connection was (closed|reset)/);
  });
});

interface Place {
  readonly sink: (head: ReplyHead) => Promise<BodySink>;
  readonly closed: string[];
  readonly heads: ReplyHead[];
  bytes: number;
  largest: number;
}

function openPlace(write: (bytes: Uint8Array) => Promise<void> | void = () => {}): Place {
  const place: Place = {
    closed: [],
    heads: [],
    bytes: 0,
    largest: 0,
    sink(head) {
      place.heads.push(head);
      return Promise.resolve({
        async write(bytes) {
          await write(bytes);
          place.bytes += bytes.length;
          place.largest = Math.max(place.largest, bytes.length);
        },
        close: (outcome) => void place.closed.push(outcome),
      });
    },
  };
  return place;
}

describe("a body that goes to a sink", () => {
  const endless = () =>
    site((_request, response) => {
      const write = () => {
        while (!response.destroyed && response.write("x".repeat(65_536)));
      };
      response.on("drain", write);
      write();
    });

  test("is written piece by piece and not kept, up to 100 MB", async () => {
    const size = 100_000_000;
    const place = await site((_request, response) => {
      let left = size;
      const write = () => {
        while (left > 0) {
          const part = Buffer.alloc(Math.min(65_536, left), 120);
          left -= part.length;
          if (!response.write(part)) return;
        }
        response.end();
      };
      response.on("drain", write);
      response.writeHead(200, { "content-length": size });
      write();
    });
    const target = openPlace();
    const reply = await fetchSetUp().get(place.origin, { sink: target.sink, maxBytes: size, timeoutMs: 60_000 });
    assert.deepEqual([reply.bytes, reply.body.length, reply.truncated], [size, 0, false]);
    assert.deepEqual([target.bytes, target.closed], [size, ["whole"]]);
    assert.ok(target.largest < 2_000_000, `a piece of ${target.largest} bytes`);
  });

  test("is decompressed on the way, cut at its bound, and told of", async () => {
    const place = await encodedSite(() => zlib.gzipSync(TEXT));
    const { get } = fetchSetUp();
    const [whole, short] = [openPlace(), openPlace()];
    assert.equal((await get(`${place.origin}/gzip`, { sink: whole.sink })).bytes, BYTES);
    assert.equal((await get(`${place.origin}/gzip`, { sink: short.sink, maxBytes: 10 })).truncated, true);
    assert.deepEqual([whole.bytes, whole.closed], [BYTES, ["whole"]]);
    assert.deepEqual([short.bytes, short.closed], [10, ["truncated"]]);
  });

  test("is opened for the last reply alone, with its head; a sink that declines leaves the body in the reply", async () => {
    const place = await site((request, response) => {
      if (request.url === "/") return void response.writeHead(302, { location: "/end" }).end("elsewhere");
      response.writeHead(404, { "x-a": "1" }).end("x".repeat(2_000_000));
    });
    const heads: ReplyHead[] = [];
    const sink = (head: ReplyHead) => Promise.resolve(void heads.push(head));
    const reply = await fetchSetUp().get(`${place.origin}/`, { sink, maxBytes: 100_000_000 });
    assert.deepEqual(heads.map(({ status, headers }) => [status, headers["x-a"]]), [[404, "1"]]);
    assert.deepEqual([reply.body.length, reply.truncated], [1_048_576, true]);
  });

  test("ends with the signal and with the time limit, also while the sink waits; the sink is closed once", async () => {
    const place = await endless();
    const { get, refusal } = fetchSetUp();
    for (const write of [() => {}, () => new Promise<void>(() => {})]) {
      const controller = new AbortController();
      const cancelled = openPlace(() => {
        controller.abort(new CancelError("client_gone"));
        return write();
      });
      const far = { maxBytes: Number.MAX_SAFE_INTEGER };
      const fetching = get(place.origin, { ...far, sink: cancelled.sink, signal: controller.signal });
      await assert.rejects(fetching, (error) => error instanceof CancelError && error.reason === "client_gone");
      const late = openPlace(write);
      assert.equal(await refusal(place.origin, { ...far, sink: late.sink, timeoutMs: 500 }), "fetch_timeout");
      assert.deepEqual([cancelled.closed, late.closed], [["failed"], ["failed"]]);
    }
  });

  test("tells what the sink throws as it is, when it opens, writes or closes", async () => {
    const place = await site((_request, response) => response.end(TEXT));
    const { get } = fetchSetUp();
    const full = new ToolError("disk_full", "Cannot write: the disk is full");
    const broken = new Error("ENOSPC");
    const writes = openPlace(() => Promise.reject(broken));
    const closes = (error: Error): BodySink => ({ write() {}, close: () => Promise.reject(error) });
    await assert.rejects(get(place.origin, { sink: () => Promise.reject(full) }), full);
    await assert.rejects(get(place.origin, { sink: writes.sink }), broken);
    await assert.rejects(get(place.origin, { sink: () => Promise.resolve(closes(full)) }), full);
    assert.deepEqual(writes.closed, ["failed"]);
    // The first failure is the one that is told
    const both: BodySink = { write: () => Promise.reject(broken), close: () => Promise.reject(full) };
    await assert.rejects(get(place.origin, { sink: () => Promise.resolve(both) }), broken);
  });

  test("is closed as failed when the reply breaks off or is damaged", async () => {
    const broken = await rawSite((socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"));
    const damaged = await encodedSite(() => zlib.gzipSync(TEXT).subarray(0, 100));
    const { refusal } = fetchSetUp();
    for (const url of [broken.origin, `${damaged.origin}/gzip`, `${damaged.origin}/nothing`]) {
      const target = openPlace();
      assert.equal(await refusal(url, { sink: target.sink }), "fetch_failed");
      assert.deepEqual(target.closed, ["failed"], url);
    }
  });
});

describe("politeness", () => {
  test("two requests at once go to a host; others wait in their order, and other hosts do not", async () => {
    let [inside, most] = [0, 0];
    const held: (() => void)[] = [];
    const arrivals: (() => void)[] = [];
    const arrived = () => new Promise<void>((resolve) => arrivals.push(resolve));
    const place = await site((_request, response) => {
      most = Math.max(most, ++inside);
      held.push(() => {
        inside--;
        response.end();
      });
      arrivals.shift()?.();
    });
    const names = { "one.test": [["127.0.0.1"]], "two.test": [["127.0.0.1"]] };
    const { get } = fetchSetUp({ names });
    const two = [arrived(), arrived()];
    const first = ["/a", "/b", "/c", "/d"].map((path) =>
      get(`http://one.test${path === "/b" ? "." : ""}:${place.port}${path}`)
    );
    await Promise.all(two);
    const third = arrived();
    const other = get(`http://two.test:${place.port}/other`);
    await third;
    const fourth = arrived();
    const trusted = get(`http://one.test:${place.port}/trusted`, { guard: { fromConfig: true } });
    await fourth;
    assert.deepEqual(place.seen.map(({ path }) => path), ["/a", "/b", "/other", "/trusted"]);
    while (place.seen.length < 6) {
      const next = arrived();
      held.shift()?.();
      await next;
    }
    for (const end of held) end();
    await Promise.all([...first, other, trusted]);
    assert.deepEqual([place.seen.slice(4).map(({ path }) => path), most], [["/c", "/d"], 4]);
  });

  test("a wait ends with the signal and counts to the time limit, and the queue is bounded", async () => {
    const arrived = Promise.withResolvers<void>();
    const place = await site(() => {
      if (place.seen.length === 2) arrived.resolve();
    });
    const { get, refusal, failure } = fetchSetUp();
    const controller = new AbortController();
    const { signal } = controller;
    const holding = [1, 2].map(() => get(place.origin, { signal }).catch((error) => error));
    await arrived.promise;
    assert.equal(await refusal(place.origin, { timeoutMs: 40 }), "fetch_timeout");
    const waiting = Array.from({ length: 32 }, () => get(place.origin, { signal }).catch((error) => error));
    // An address is not looked up: all of them wait by the next tick
    await new Promise((resolve) => setImmediate(resolve));
    assert.match((await failure(place.origin)).message, /32 requests to it wait already/);
    assert.equal(place.seen.length, 2);
    controller.abort(new CancelError("cancelled"));
    for (const error of await Promise.all([...holding, ...waiting])) {
      assert.ok(error instanceof CancelError, String(error));
    }
  });
});
