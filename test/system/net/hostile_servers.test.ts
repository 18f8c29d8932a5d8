import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { describe, test } from "node:test";
import * as zlib from "node:zlib";
import { type FetchChanges, fetchSetUp, fetchSites, STRICT, textOf } from "../../support/fetch_bench.ts";

const { site, rawSite } = fetchSites();

/** Bytes that a server may send before it has to be given up: what sockets hold, and no endless amount. */
const MAX_SENT = 20_000_000;

/** Writes pieces for as long as the other side takes them. @returns how many bytes were written so far */
function pour(socket: Socket, piece: string | Uint8Array): () => number {
  let sent = 0;
  const write = () => {
    while (!socket.destroyed && sent <= 2 * MAX_SENT) {
      sent += piece.length;
      if (!socket.write(piece)) return;
    }
  };
  socket.on("drain", write);
  write();
  return () => sent;
}

interface Attack {
  readonly name: string;
  readonly answer: (socket: Socket) => (() => number) | void;
  /** The code, and the reason on either runtime. Default: `fetch_failed` and any reason */
  readonly code?: string;
  readonly reason?: RegExp;
  readonly changes?: FetchChanges;
  /** True when Deno goes on reading until the time limit. It keeps nothing of what it reads. */
  readonly lastsOnDeno?: boolean;
}

const OK = "HTTP/1.1 200 OK\r\n";
const SOON = { timeoutMs: 150 };

const ATTACKS: readonly Attack[] = [
  { name: "says nothing at all", answer: () => {}, code: "fetch_timeout", changes: SOON },
  { name: "closes at once", answer: (socket) => void socket.end() },
  { name: "resets the connection", answer: (socket) => void socket.resetAndDestroy() },
  { name: "answers with other words", answer: (socket) => void socket.end("220 mail.test ESMTP\r\n250 OK\r\n") },
  { name: "answers with bytes", answer: (socket) => void socket.end(new Uint8Array(10_000).fill(0x16)) },
  { name: "answers as HTTP/0.9", answer: (socket) => void socket.end("<html>hello</html>") },
  {
    name: "names a wrong version",
    answer: (socket) => void socket.end("HTTP/9.9 200 OK\r\ncontent-length: 0\r\n\r\n"),
  },
  { name: "names no status", answer: (socket) => void socket.end("HTTP/1.1 OK\r\n\r\n") },
  {
    name: "sends headers without end",
    answer: (socket) => {
      socket.write(OK);
      return pour(socket, `x-${"a".repeat(90)}: ${"b".repeat(900)}\r\n`);
    },
  },
  {
    name: "sends one header without end",
    answer: (socket) => {
      socket.write(`${OK}x-a: `);
      return pour(socket, "b".repeat(10_000));
    },
  },
  {
    name: "sends a first line without end",
    answer: (socket) => {
      socket.write("HTTP/1.1 200 ");
      return pour(socket, "b".repeat(10_000));
    },
  },
  { name: "sends 5,000 headers", answer: (socket) => void socket.end(`${OK}${"x-a: b\r\n".repeat(5_000)}\r\nhello`) },
  {
    name: "sends interim replies without end",
    answer: (socket) => pour(socket, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(100)),
    changes: { timeoutMs: 3_000 },
  },
  {
    name: "sends 100 Continue without end",
    answer: (socket) => pour(socket, "HTTP/1.1 100 Continue\r\n\r\n".repeat(100)),
    changes: { timeoutMs: 3_000 },
  },
  {
    name: "drips its head",
    answer: (socket) => drip(socket, OK, "x"),
    code: "fetch_timeout",
    reason: /no whole reply came within 0\.15 s/,
    changes: SOON,
  },
  {
    name: "drips its body",
    answer: (socket) => drip(socket, `${OK}content-length: 1000\r\n\r\n`, "x"),
    code: "fetch_timeout",
    changes: SOON,
  },
  {
    name: "drips its chunks",
    answer: (socket) => drip(socket, `${OK}transfer-encoding: chunked\r\n\r\n`, "1\r\nx\r\n"),
    code: "fetch_timeout",
    changes: SOON,
  },
  {
    name: "promises more than it sends",
    answer: (socket) => void socket.end(`${OK}content-length: 100\r\n\r\nhalf`),
    reason: /connection was closed in the middle of the reply|the connection failed/,
  },
  {
    name: "ends in the middle of a chunk",
    answer: (socket) => void socket.end(`${OK}transfer-encoding: chunked\r\n\r\nff\r\nhalf`),
  },
  {
    name: "ends before the last chunk",
    answer: (socket) => void socket.end(`${OK}transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n`),
  },
  {
    name: "sends a length that is no number",
    answer: (socket) => void socket.end(`${OK}content-length: many\r\n\r\nhello`),
  },
  {
    name: "sends two lengths that differ",
    answer: (socket) => void socket.end(`${OK}content-length: 5\r\ncontent-length: 6\r\n\r\nhello!`),
  },
  {
    name: "sends a chunk size that is no number",
    answer: (socket) => void socket.end(`${OK}transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n`),
  },
  {
    name: "sends a chunk extension without end",
    answer: (socket) => {
      socket.write(`${OK}transfer-encoding: chunked\r\n\r\n1;`);
      return pour(socket, "a=b;".repeat(2_000));
    },
    changes: { timeoutMs: 1_000 },
    lastsOnDeno: true,
  },
  {
    name: "sends many chunks of one byte with long extensions",
    answer: (socket) => {
      socket.write(`${OK}transfer-encoding: chunked\r\n\r\n`);
      return pour(socket, `1;${"a=b;".repeat(1_000)}\r\nx\r\n`);
    },
    changes: { timeoutMs: 3_000 },
  },
  {
    name: "switches protocols unasked",
    answer: (socket) =>
      void socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"),
    changes: { timeoutMs: 1_000 },
  },
  {
    name: "answers a second time after a short body",
    answer: (socket) => void socket.end(`${OK}content-length: many\r\n\r\n${OK}content-length: 2\r\n\r\nhi`),
  },
];

/** Sends the head, then one piece each 10 ms, until the other side is gone. */
function drip(socket: Socket, head: string, piece: string): void {
  socket.write(head);
  const timer = setInterval(() => socket.write(piece), 10);
  socket.on("close", () => clearInterval(timer));
}

describe("a server that", () => {
  for (const { name, answer, code, reason, changes, lastsOnDeno } of ATTACKS) {
    test(`${name} is given up, and the error names the host and the reason`, async () => {
      let sentBy: () => number = () => 0;
      const gone: Promise<void>[] = [];
      const place = await rawSite((socket) => {
        gone.push(new Promise((resolve) => socket.on("close", () => resolve())));
        sentBy = answer(socket) ?? sentBy;
      });
      const { failure } = fetchSetUp();
      const error = await failure(place.origin, { timeoutMs: 5_000, ...changes });
      if (code !== undefined) assert.equal(error.code, code);
      else assert.match(error.code, /^fetch_(failed|timeout)$/);
      assert.match(error.message, new RegExp(`^Cannot fetch from "127\\.0\\.0\\.1:${place.port}": .{10}`));
      if (reason !== undefined) assert.match(error.message, reason);
      // The connection is closed, not left to the server. On a busy machine the time can be over before there is one
      await Promise.all(gone);
      if (lastsOnDeno && "Deno" in globalThis) return;
      assert.ok(sentBy() < MAX_SENT, `${sentBy()} bytes were taken`);
    });
  }

  test("sends more than it promised gives what it promised", async () => {
    const place = await rawSite((socket) => void socket.end(`${OK}content-length: 5\r\n\r\nhello and much more`));
    const { get } = fetchSetUp();
    const reply = await get(place.origin).catch((error) => error);
    // Node gives the promised bytes; a runtime may also refuse the reply as a whole
    if (reply instanceof Error) assert.match(reply.message, /127\.0\.0\.1/);
    else assert.equal(textOf(reply.body), "hello");
  });

  test("ends its lines with a bare line feed is read or refused, and nothing is smuggled", async () => {
    const place = await rawSite((socket) =>
      void socket.end("HTTP/1.1 200 OK\ncontent-length: 5\n\nhelloHTTP/1.1 200 OK\ncontent-length: 2\n\nhi")
    );
    const reply = await fetchSetUp().get(place.origin, { timeoutMs: 2_000 }).catch((error) => error);
    if (reply instanceof Error) assert.match(reply.message, /^Cannot fetch from "127\.0\.0\.1:/);
    else assert.equal(textOf(reply.body), "hello");
  });

  test("sends a body without end is cut at the bound, with and without chunks", async () => {
    for (const head of ["content-type: text/plain\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"]) {
      let sentBy: () => number = () => 0;
      const place = await rawSite((socket) => {
        socket.write(OK + head);
        sentBy = pour(socket, head.startsWith("t") ? `2710\r\n${"x".repeat(10_000)}\r\n` : "x".repeat(10_000));
      });
      const reply = await fetchSetUp().get(place.origin, { maxBytes: 50_000 });
      assert.deepEqual([reply.body.length, reply.truncated], [50_000, true]);
      assert.ok(sentBy() < MAX_SENT, `${sentBy()} bytes were taken`);
    }
  });

  test("sends a bomb inside a bomb is refused by the name of its encodings", async () => {
    const bomb = zlib.gzipSync(zlib.gzipSync(new Uint8Array(10_000_000)));
    const place = await site((_request, response) =>
      response.writeHead(200, { "content-encoding": "gzip, gzip" }).end(bomb)
    );
    assert.match((await fetchSetUp().failure(place.origin)).message, /compressed more than once \("gzip, gzip"\)/);
  });

  test("redirects in a circle, to private addresses and to other schemes reaches nothing", async () => {
    const targets = [
      ...["http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[::1]/", "http://0x7f000001/"],
      ...["http://[::ffff:0:a00:1]/", "http://[64:ff9b::a9fe:a9fe]/", "//192.168.0.1/", "http://inner.test/"],
      ...["file:///etc/passwd", "ftp://a.test/", "gopher://127.0.0.1:25/", "data:text/html,hello", "javascript:1"],
      ...["http://a.test:99999/", "http://"],
    ];
    const place = await site((request, response) =>
      response.writeHead(302, { location: targets[Number(request.url?.slice(1))] ?? "/circle" }).end()
    );
    const { failure } = fetchSetUp({ names: { "start.test": [["127.0.0.1"]], "inner.test": [["10.0.0.1"]] } });
    // The first address is the operator's, what it redirects to is not
    const changes = { guard: { rules: STRICT, fromConfig: true } };
    for (const [index, target] of targets.entries()) {
      const { code } = await failure(`http://start.test:${place.port}/${index}`, changes);
      assert.match(code, /^(url_private|url_scheme|url_invalid|fetch_redirects)$/, target);
    }
    const local = fetchSetUp();
    assert.equal((await local.failure(`${place.origin}/circle`)).code, "fetch_redirects");
    assert.equal(place.seen.length, targets.length + 6);
  });

  test("redirects with a body without end is followed without reading it", async () => {
    let sentBy: () => number = () => 0;
    const end = await site((_request, response) => response.end("end"));
    const place = await rawSite((socket) => {
      socket.write(`HTTP/1.1 302 Found\r\nlocation: ${end.origin}/\r\n\r\n`);
      sentBy = pour(socket, "x".repeat(10_000));
    });
    assert.equal(textOf((await fetchSetUp().get(place.origin)).body), "end");
    assert.ok(sentBy() < MAX_SENT);
  });

  test("hides a line break in its redirect sends no second request", async () => {
    const end = await rawSite((socket, head) => void socket.end(`${OK}content-length: ${head.length}\r\n\r\n${head}`));
    const place = await rawSite((socket) =>
      void socket.end(`HTTP/1.1 302 Found\r\nlocation: ${end.origin}/%0d%0ax-a:%20b\tc\r\ncontent-length: 0\r\n\r\n`)
    );
    const reply = await fetchSetUp().get(place.origin, { timeoutMs: 2_000 }).catch((error) => error);
    if (reply instanceof Error) return assert.match(reply.message, /^Cannot /);
    assert.doesNotMatch(textOf(reply.body), /^x-a:/m);
  });
});
