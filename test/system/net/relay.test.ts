import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { after, test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { MAX_PROBLEMS, Relay, type RelayOptions } from "../../../lib/system/net/relay.ts";
import { createUrlPolicy, type UrlPolicyOptions } from "../../../lib/system/net/url_policy.ts";
import type { UrlRules } from "../../../lib/system/net/url_rules.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const closers: (() => void)[] = [];
after(() => closers.forEach((close) => close()));

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

/** A web server, with the requests it got. */
async function site(answer?: RequestListener) {
  const seen: { readonly url: string; readonly raw: readonly string[]; body: string }[] = [];
  const port = await listen(createServer((request, response) => {
    const one = { url: `${request.method} ${request.url}`, raw: request.rawHeaders, body: "" };
    seen.push(one);
    request.on("data", (chunk) => one.body += chunk);
    if (answer !== undefined) return answer(request, response);
    request.on("end", () => response.end(`hello ${one.body}`));
  }));
  return { port, seen };
}

const RULES: UrlRules = {
  block_private_ip: true,
  allow_loopback: true,
  public_ranges: [],
  enforce_domain_allowlist: false,
  domain_allowlist: [],
  domain_blocklist: [],
};

interface Bench {
  readonly relay: Relay;
  readonly path: string;
  /** Names that were looked up */
  readonly looked: string[];
  /** Sends bytes on a connection of its own. @returns all that comes until the relay ends it */
  send(text: string): Promise<string>;
  open(): Socket;
}

/** Runs `use` with a relay that knows `*.test` as 127.0.0.1 and `private.test` as a private address. */
function withRelay(
  rules: Partial<UrlRules>,
  use: (bench: Bench) => Promise<void>,
  { own, ...more }: Partial<RelayOptions> & UrlPolicyOptions = {},
): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const looked: string[] = [];
    const policy = createUrlPolicy({
      own,
      lookup: (host) => {
        looked.push(host);
        if (host === "private.test") return Promise.resolve(["93.184.216.34", "10.0.0.1"]);
        return host.endsWith(".test") ? Promise.resolve(["127.0.0.1"]) : Promise.reject(new Error("ENOTFOUND"));
      },
    });
    const relay = new Relay({
      policy,
      rules: () => ({ ...RULES, ...rules }),
      clock: systemClock,
      ...more,
    });
    const path = join(folder, "relay");
    await relay.listen(path);
    const open = () => connect({ path, allowHalfOpen: true }).on("error", () => {});
    try {
      await use({
        relay,
        path,
        looked,
        open,
        async send(text) {
          const socket = open();
          socket.write(text);
          return await textOf(socket);
        },
      });
    } finally {
      await relay.close();
    }
  });
}

async function textOf(socket: Socket): Promise<string> {
  let text = "";
  socket.on("data", (chunk) => text += chunk);
  await new Promise<void>((resolve) => socket.once("end", resolve).once("close", resolve));
  socket.destroy();
  return text;
}

/** Writes until nobody takes any more: what lies between the two ends is full. @returns bytes that were taken */
async function writeUntilFull(socket: Socket): Promise<number> {
  const chunk = new Uint8Array(65_536);
  let taken = 0;
  const write = () =>
    void socket.write(chunk, (error) => {
      if (error) return;
      taken += chunk.length;
      write();
    });
  write();
  let [before, looks] = [0, 0];
  await until(() => {
    looks = taken === before ? looks + 1 : 0;
    before = taken;
    return taken > 0 && looks > 50;
  });
  return taken;
}

const get = (url: string, more = "") => `GET ${url} HTTP/1.1\r\nHost: x\r\n${more}\r\n`;
const tunnel = (to: string, more = "") => `CONNECT ${to} HTTP/1.1\r\nHost: ${to}\r\n\r\n${more}`;

test("a relay on loopback takes requests with its password alone, and passes the password on to nobody", async () => {
  const web = await site();
  const relay = new Relay({
    ...{ policy: createUrlPolicy(), rules: () => RULES, clock: systemClock, requiresList: false },
    password: "open sesame",
  });
  const port = await relay.listenOnLoopback();
  const send = async (head: string) => {
    const socket = connect(port, "127.0.0.1");
    socket.write(`${head}\r\n\r\n`);
    let said = "";
    for await (const chunk of socket) said += chunk;
    return said;
  };
  const basic = (text: string) => `proxy-authorization: Basic ${btoa(text)}`;
  const get = `GET http://127.0.0.1:${web.port}/ HTTP/1.1\r\nhost: 127.0.0.1:${web.port}`;
  const tunnel = `CONNECT 127.0.0.1:${web.port} HTTP/1.1`;
  try {
    for (const head of [get, tunnel]) {
      for (const wrong of ["", `\r\n${basic("postern:wrong")}`, `\r\n${basic("postern")}`]) {
        assert.match(await send(head + wrong), /^HTTP\/1\.1 407 .*proxy-authenticate: Basic realm="postern"/is);
      }
    }
    assert.deepEqual(web.seen, []);
    assert.match(
      await send(`${get}\r\n${basic("postern:open sesame")}\r\nconnection: close`),
      /^HTTP\/1\.1 200 .*hello/s,
    );
    assert.equal(web.seen.length, 1);
    assert.doesNotMatch(JSON.stringify(web.seen), /proxy-authorization/i);
  } finally {
    await relay.close();
  }
});

test("a request for an allowed host goes to a checked address, with its method, body, query and repeated headers", async () => {
  const { port, seen } = await site((_request, response) => {
    response.writeHead(207, {
      "set-cookie": ["a=1", "b=2"],
      "keep-alive": "timeout=9",
      "x-odd": "1",
      connection: "x-odd",
    });
    response.end("done");
  });
  await withRelay({ domain_allowlist: [`web.test:${port}`] }, async ({ send, relay }) => {
    const reply = await send(
      `POST http://web.test:${port}/a/../b?q=1#top HTTP/1.1\r\nHost: other.test\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 4\r\n` +
        `Proxy-Authorization: Basic c2VjcmV0\r\nConnection: x-b\r\nX-B: hop\r\nTE: trailers\r\n\r\nbody`,
    );
    assert.match(reply, /^HTTP\/1\.1 207 /);
    assert.match(reply, /set-cookie: a=1\r\nset-cookie: b=2\r\n/i);
    assert.doesNotMatch(reply, /timeout=9|x-odd/i);
    assert.match(reply, /\r\n\r\n(4\r\n)?done/);
    assert.equal(seen[0]?.url, "POST /b?q=1");
    assert.equal(seen[0]?.body, "body");
    const raw = (seen[0]?.raw ?? []).join("|").toLowerCase();
    assert.match(raw, new RegExp(`host\\|web\\.test:${port}`));
    assert.match(raw, /x-a\|1\|x-a\|2/);
    assert.doesNotMatch(raw, /proxy-authorization|hop|trailers|other\.test/);
    assert.deepEqual(relay.problems(), []);
  });
});

test("a tunnel carries bytes both ways, those sent with the head too, and each end may close first", async () => {
  const port = await listen(createTcpServer({ allowHalfOpen: true }, (socket) => {
    socket.on("data", (chunk) => socket.write(`<${chunk}>`));
    socket.on("end", () => socket.end("bye"));
  }));
  await withRelay({ domain_allowlist: [`127.0.0.1:${port}`] }, async ({ open }) => {
    const socket = open();
    socket.write(tunnel(`127.0.0.1:${port}`, "early"));
    const text = textOf(socket);
    await until(() => socket.bytesRead > 40);
    socket.end("late");
    assert.match(await text, /^HTTP\/1\.1 200 [^\r]*\r\n\r\n<early.*late>bye$/);
  });
});

test("what is no CONNECT and no http:// address in absolute form is refused, and says what the relay takes", async () => {
  await withRelay({ domain_allowlist: ["web.test"] }, async ({ send, relay, looked }) => {
    for (
      const text of [
        "GET / HTTP/1.0\r\n\r\n",
        get("/"),
        get("https://web.test/"),
        get("ftp://web.test/"),
        get("file:///etc/passwd"),
        "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        tunnel("web.test"),
        tunnel("web.test:"),
        tunnel("user@web.test:443"),
        tunnel("web.test:443/x"),
        tunnel("/proc/self/fd/3:443"),
      ]
    ) {
      const reply = await send(text);
      assert.match(reply, /^HTTP\/1\.1 400 [^]*CONNECT host:port/, text);
    }
    assert.match(
      await send(get("http://web.test/", "Connection: Upgrade\r\nUpgrade: websocket\r\n")),
      /^HTTP\/1\.1 501 /,
    );
    assert.match(
      await send(get("http://web.test/", "Transfer-Encoding: gzip, chunked\r\n") + "0\r\n\r\n"),
      /^HTTP\/1\.1 50?[01] /,
    );
    assert.deepEqual([relay.problems(), looked], [[], []]);
  });
});

test("a host that the allowlist does not name is refused before its name is looked up", async () => {
  const told: string[] = [];
  await withRelay({ domain_allowlist: ["web.test"] }, async ({ send, relay, looked }) => {
    for (
      const target of [
        get("http://secret-of-the-workspace.example.com/"),
        tunnel("secret-of-the-workspace.example.com:443"),
      ]
    ) {
      const reply = await send(target);
      assert.match(reply, /^HTTP\/1\.1 403 /);
      assert.match(reply, /add "secret-of-the-workspace\.example\.com" to \[url_access\] domain_allowlist/);
    }
    assert.deepEqual(looked, []);
    assert.deepEqual(relay.problems().map(({ host }) => host), ["secret-of-the-workspace.example.com"]);
    assert.deepEqual(told, ["secret-of-the-workspace.example.com"], "the same host is told of once");
    for (let index = 0; index < 30; index++) await send(tunnel(`h${index}.example.com:443`));
    assert.equal(relay.problems().length, MAX_PROBLEMS);
    assert.equal(told.length, MAX_PROBLEMS);
  }, { onProblem: ({ host }) => told.push(host) });
});

test("the allowlist counts although enforce_domain_allowlist is false, and an empty one allows nothing", async () => {
  await withRelay({ domain_allowlist: [], enforce_domain_allowlist: false }, async ({ send }) => {
    assert.match(await send(tunnel("web.test:443")), /^HTTP\/1\.1 403 /);
  });
});

test("ports other than 80 and 443 need an entry that names the port", async () => {
  const { port } = await site();
  await withRelay({ domain_allowlist: ["web.test", "*.sub.test"] }, async ({ send, looked }) => {
    const reply = await send(get(`http://web.test:${port}/`));
    assert.match(reply, new RegExp(`an entry without a port opens 80 and 443 alone; add "web\\.test:${port}" to`));
    assert.match(await send(tunnel("a.sub.test:22")), /^HTTP\/1\.1 403 [^]*add "a\.sub\.test:22"/);
    assert.deepEqual(looked, []);
    // Nobody listens there, or somebody does: it is not the allowlist that is in the way
    assert.doesNotMatch(await send(tunnel("web.test:443", "x")), /domain_allowlist/);
  });
  await withRelay({ domain_allowlist: [`*.sub.test:${port}`] }, async ({ send }) => {
    assert.match(await send(get(`http://a.sub.test:${port}/`)), /hello/);
    assert.match(await send(get("http://a.sub.test/")), /^HTTP\/1\.1 403 [^]*add "a\.sub\.test" to/);
  });
});

test("private, reserved and metadata addresses are refused although the allowlist names them, in every way of writing", async () => {
  const hosts = ["private.test", "169.254.169.254", "10.0.0.1", "[fd00::1]", "100.64.0.1"];
  await withRelay({ domain_allowlist: hosts }, async ({ send }) => {
    for (const host of hosts) {
      assert.match(await send(tunnel(`${host}:443`)), /^HTTP\/1\.1 403 [^]*private or reserved/, host);
      assert.match(await send(get(`http://${host}/`)), /^HTTP\/1\.1 403 [^]*private or reserved/, host);
    }
    assert.match(await send(tunnel("2852039166:80")), /^HTTP\/1\.1 403 [^]*private or reserved/);
  });
  await withRelay({ domain_allowlist: ["web.test", "127.0.0.1"], allow_loopback: false }, async ({ send }) => {
    for (const host of ["web.test", "127.0.0.1", "127.1", "0x7f000001"]) {
      assert.match(await send(tunnel(`${host}:443`)), /^HTTP\/1\.1 403 [^]*allow_loopback/, host);
    }
  });
  await withRelay({ domain_allowlist: ["web.test"], domain_blocklist: ["web.test"] }, async ({ send }) => {
    assert.match(await send(tunnel("web.test:443")), /^HTTP\/1\.1 403 [^]*domain_blocklist/);
  });
});

test("the gateway's own port is refused on every address of this machine, public paths too", async () => {
  const { port, seen } = await site();
  const own = () => ({ port, publicPaths: ["/health"] });
  const rules = { domain_allowlist: [`web.test:${port}`, `127.0.0.1:${port}`], block_private_ip: false };
  await withRelay(rules, async ({ send, relay }) => {
    for (const host of ["web.test", "127.0.0.1", "0.0.0.0", "127.0.0.2", "[::ffff:127.0.0.1]"]) {
      assert.match(await send(get(`http://${host}:${port}/health`)), /^HTTP\/1\.1 403 /, host);
      assert.match(await send(tunnel(`${host}:${port}`)), /^HTTP\/1\.1 403 /, host);
    }
    assert.match(relay.problems()[0]?.reason ?? "", /it is the gateway itself/);
    assert.equal(seen.length, 0);
  }, { own });
});

test("what cannot be reached is a 502 with the reason, and a problem", async () => {
  const closed = await listen(createTcpServer());
  closers.pop()?.();
  await withRelay({ domain_allowlist: [`web.test:${closed}`, "unknown.example"] }, async ({ send, relay }) => {
    assert.match(await send(tunnel(`web.test:${closed}`)), /^HTTP\/1\.1 502 [^]*the connection was refused/);
    assert.match(await send(get("http://unknown.example/")), /^HTTP\/1\.1 502 [^]*could not be looked up/);
    assert.deepEqual(relay.problems().map(({ host }) => host), [`web.test:${closed}`, "unknown.example"]);
  });
});

test("no request hides behind another: ambiguous framing is refused, and one connection carries one request", async () => {
  const { port, seen } = await site();
  const second = get(`http://web.test:${port}/second`);
  await withRelay({ domain_allowlist: [`web.test:${port}`] }, async ({ send }) => {
    const head = (framing: string) => `DELETE http://web.test:${port}/first HTTP/1.1\r\nHost: x\r\n${framing}\r\n`;
    for (
      const framing of [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nContent-Length: 5\r\n",
        "Content-Length: 3, 5\r\n",
        "Content-Length: +3\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        " folded: x\r\n",
        "Content-Length: 3\r\n\tx\r\n",
        "X: a\nTransfer-Encoding: chunked\r\n",
        "X: a\r\r\n",
      ]
    ) {
      const reply = await send(head(framing) + `0\r\n\r\n${second}`);
      assert.match(reply, /^HTTP\/1\.1 (400|501) /, JSON.stringify(framing));
    }
    assert.deepEqual(seen, []);
    // The chunks of a body stay one body, also with a method that has none by habit
    const reply = await send(head("Transfer-Encoding: chunked\r\n") + `3\r\nabc\r\n0\r\n\r\n${second}`);
    assert.match(reply, /hello abc/);
    assert.deepEqual(seen.map(({ url, body }) => [url, body]), [["DELETE /first", "abc"]]);
    await send(head("") + second);
    assert.deepEqual(seen.slice(1).map(({ url }) => url), ["DELETE /first"]);
    // A request in the body of a length is a body
    await send(head(`Content-Length: ${second.length}\r\n`) + second);
    assert.deepEqual(seen.slice(2).map(({ url, body }) => [url, body]), [["DELETE /first", second]]);
  });
});

test("a redirect is a reply: where it leads is checked at the client's next request", async () => {
  const { port } = await site((_request, response) =>
    void response.writeHead(302, { location: "http://10.0.0.1/" }).end()
  );
  await withRelay({ domain_allowlist: [`web.test:${port}`] }, async ({ send }) => {
    assert.match(await send(get(`http://web.test:${port}/`)), /^HTTP\/1\.1 302 [^]*location: http:\/\/10\.0\.0\.1\//i);
    assert.match(await send(get("http://10.0.0.1/")), /^HTTP\/1\.1 403 /);
  });
});

test("heads above 16 KiB are refused", async () => {
  await withRelay({ domain_allowlist: ["web.test"] }, async ({ send }) => {
    assert.match(await send(get("http://web.test/", `X: ${"y".repeat(20_000)}\r\n`)), /^HTTP\/1\.1 431 /);
    assert.match(await send(get("http://web.test/", "X: 1\r\n".repeat(20_000))), /^HTTP\/1\.1 431 /);
  });
});

test("of 1,000 connections 128 are kept, the others are told why, and the relay goes on afterwards", async () => {
  const { port } = await site();
  await withRelay({ domain_allowlist: [`web.test:${port}`] }, async ({ open, send }) => {
    let [refused, opened, failed] = [0, 0, 0];
    const sockets = Array.from({ length: 1_000 }, () => {
      const socket = open();
      socket.on("connect", () => opened++);
      // The system's own queue is full
      socket.on("error", () => failed++);
      socket.on("data", (chunk) => /503[^]*128 connections/.test(String(chunk)) && refused++);
      return socket;
    });
    const tally = () => `${opened} opened, ${refused} refused, ${failed} failed`;
    await until(() => opened + failed === 1_000 && opened - refused === 128, tally);
    for (const socket of sockets) socket.destroy();
    await until(async () => /hello/.test(await send(get(`http://web.test:${port}/`))));
  });
});

test("a head that drips is cut off after 10 s, a silent connection after 2 minutes, one that moves bytes lives", async () => {
  const clock = createFakeClock();
  const port = await listen(createTcpServer((socket) => void socket.pipe(socket)));
  await withRelay({ domain_allowlist: [`127.0.0.1:${port}`] }, async ({ open }) => {
    const drip = open();
    drip.write("CONNECT 127.0");
    const dripped = textOf(drip);
    await until(() => drip.bytesWritten > 0 && clock.pending() > 0);
    await clock.advance(10_001);
    assert.equal(await dripped, "");
    const [quiet, busy] = [open(), open()];
    for (const socket of [quiet, busy]) socket.write(tunnel(`127.0.0.1:${port}`));
    const silent = textOf(quiet);
    let echoed = "";
    busy.on("data", (chunk) => echoed += chunk);
    await until(() => quiet.bytesRead > 0 && busy.bytesRead > 0);
    await clock.advance(100_000);
    busy.write("alive");
    await until(() => echoed.endsWith("alive"));
    await clock.advance(100_000);
    assert.match(await silent, /^HTTP\/1\.1 200 /);
    busy.write("still");
    await until(() => echoed.endsWith("still"));
  }, { clock });
});

test("a relay that has moved its bytes ends its connections and says so to the next", async () => {
  const { port } = await site((_request, response) => void response.end("x".repeat(100_000)));
  await withRelay({ domain_allowlist: [`web.test:${port}`] }, async ({ send, relay }) => {
    const reply = await send(get(`http://web.test:${port}/`));
    assert.ok(reply.length < 100_000, `${reply.length}`);
    assert.match(await send(get(`http://web.test:${port}/`)), /^HTTP\/1\.1 403 [^]*has moved 50000 bytes/);
    assert.match(relay.problems().map(({ reason }) => reason).join(), /ended every connection/);
  }, { limits: { bytes: 50_000 } });
});

test("close() ends what is open, listens no more, and leaves no socket", async () => {
  const port = await listen(createTcpServer(() => {}));
  await withRelay({ domain_allowlist: [`127.0.0.1:${port}`] }, async ({ open, relay, path }) => {
    const socket = open();
    socket.write(tunnel(`127.0.0.1:${port}`));
    await until(() => socket.bytesRead > 0);
    const ended = textOf(socket);
    await relay.close();
    await ended;
    const late = connect(path);
    const code = await new Promise((resolve) => late.once("error", (error: { code?: string }) => resolve(error.code)));
    assert.match(String(code), /ENOENT|ECONNREFUSED/);
    await relay.close();
  });
});

test("cut() ends connections to a server that does not read, and sends it nothing more", async () => {
  const clock = createFakeClock();
  const served: Socket[] = [];
  const port = await listen(createTcpServer({ pauseOnConnect: true }, (socket) => void served.push(socket)));
  const host = `127.0.0.1:${port}`;
  await withRelay({ domain_allowlist: [host] }, async ({ open, relay }) => {
    const upload = `POST http://${host}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n`;
    for (const head of [tunnel(host), upload]) {
      const client = open();
      client.write(head);
      const taken = await writeUntilFull(client);
      relay.cut();
      await until(() => client.destroyed && clock.pending() === 0, "the relay waits for the server");
      const server = served.pop();
      assert.ok(server !== undefined);
      let received = 0;
      server.on("error", () => {}).on("data", (chunk) => received += chunk.length);
      const closed = new Promise((resolve) => server.once("close", resolve));
      server.resume();
      await closed;
      assert.ok(received < taken, `${received} of ${taken} bytes came`);
    }
  }, { clock });
});

test("rules that change count from the next request on", async () => {
  const { port } = await site();
  const rules = { domain_allowlist: [`web.test:${port}`] };
  await withRelay({}, async ({ send }) => {
    assert.match(await send(get(`http://web.test:${port}/`)), /hello/);
    rules.domain_allowlist = [];
    assert.match(await send(get(`http://web.test:${port}/`)), /^HTTP\/1\.1 403 /);
  }, { rules: () => ({ ...RULES, ...rules }) });
});

test("once network is none no request is carried out, and an open tunnel carries not one byte more", async () => {
  let received = "";
  const port = await listen(createTcpServer((socket) => void socket.on("data", (bytes) => received += bytes)));
  let isOn = true;
  await withRelay({ domain_allowlist: [`127.0.0.1:${port}`] }, async ({ open, send, relay }) => {
    const client = open();
    client.write(tunnel(`127.0.0.1:${port}`));
    await until(() => client.bytesRead > 0);
    client.write("before");
    await until(() => received === "before");
    isOn = false;
    client.write("after");
    await textOf(client);
    assert.equal(received, "before");
    assert.match(
      await send(tunnel(`127.0.0.1:${port}`)),
      /^HTTP\/1\.1 403 [^]*\[security\.shell\] network is "none" by now/,
    );
    assert.match(relay.problems()[0]?.reason ?? "", /network is "none" by now; set it to "allowlist" to allow it$/);
  }, { isOn: () => isOn });
});

test("with [proxy] the connection goes through it, to the address that was checked", async () => {
  const { port } = await site();
  const asked: string[] = [];
  const proxy = createServer();
  proxy.on("connect", (request: IncomingMessage, client: Socket) => {
    asked.push(request.url ?? "");
    const upstream = connect(port, "127.0.0.1", () => client.write("HTTP/1.1 200 OK\r\n\r\n"));
    upstream.pipe(client).pipe(upstream);
    for (const end of [upstream, client]) end.on("error", () => {});
  });
  const proxyPort = await listen(proxy);
  const settings: { http: string; https: string; no_proxy: string[]; resolve?: "proxy" } = {
    http: `http://127.0.0.1:${proxyPort}`,
    https: "",
    no_proxy: [],
  };
  await withRelay({ domain_allowlist: ["web.test"] }, async ({ send }) => {
    assert.match(await send(get("http://web.test/")), /hello/);
    assert.match(
      await send(tunnel("web.test:80", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")),
      /200 [^]*hello/,
    );
    assert.deepEqual(asked, ["127.0.0.1:80", "127.0.0.1:80"]);
    // Where the proxy looks names up it gets the name, still of an allowed host alone
    settings.resolve = "proxy";
    assert.match(await send(get("http://web.test/")), /hello/);
    assert.match(await send(get("http://other.test/")), /^HTTP\/1\.1 403 /);
    assert.deepEqual(asked.splice(2), ["web.test:80"]);
    // A proxy that cannot be used is never passed by
    settings.http = "socks5://127.0.0.1:1080";
    assert.match(await send(get("http://web.test/")), /^HTTP\/1\.1 502 [^]*only http: and https: are known/);
  }, { proxy: () => settings });
});
