import assert from "node:assert/strict";
import { createServer } from "node:net";
import { test } from "node:test";
import { ListenError, type RunningServer, serveGateway } from "../../../cli/serve/serve_gateway.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import type { GatewayServices } from "../../../lib/services.ts";
import { createFakeServices, type FakeServices, type FakeServicesOptions } from "../../support/fake_services.ts";
import { exchange, lastAnswer, openRawSocket } from "../../support/raw_socket.ts";
import { withRunningGateway } from "../../support/running_gateway.ts";
import { until } from "../../support/until.ts";

const ON_NODE = !("Deno" in globalThis);
/** Deno's server answers below HTTP in its own words */
const nodeOnly = ON_NODE ? {} : { skip: "this is Node's HTTP parser" };

async function withServer(
  options: FakeServicesOptions & { readonly headersTimeoutMs?: number },
  use: (server: RunningServer, services: FakeServices) => Promise<void>,
): Promise<void> {
  const fake = createFakeServices(options);
  const services: GatewayServices = Object.assign(fake, {
    clock: systemClock,
    listensOn() {},
    learningTools: () => undefined,
    reload: () => Promise.resolve(),
    beginDrain: () => fake.enter("draining"),
    drain: () => Promise.resolve(),
    close: () => Promise.resolve(),
  });
  const { headersTimeoutMs } = options;
  const server = await serveGateway({
    services,
    host: "127.0.0.1",
    port: 0,
    ...(headersTimeoutMs === undefined ? {} : { headersTimeoutMs }),
  });
  try {
    await use(server, fake);
  } finally {
    await server.drain(0);
  }
}

/** Asks until it is answered: with the short limits of these tests, a request of a machine that stands still is a slow one. */
async function alive({ url }: RunningServer): Promise<void> {
  await until(async () => {
    const reply = await fetch(`${url}health`).catch(() => undefined);
    await reply?.body?.cancel();
    return reply?.status === 200;
  }, "it does not answer any more");
}

test("port 0 takes a free port and says which; a port in use is refused naming address and port", async () => {
  await withServer({}, async (server) => {
    assert.ok(server.port > 0);
    assert.equal(server.url, `http://127.0.0.1:${server.port}/`);
    await alive(server);
    const services = createFakeServices() as unknown as GatewayServices;
    await assert.rejects(serveGateway({ services, host: "127.0.0.1", port: server.port }), (error) => {
      assert.ok(error instanceof ListenError);
      assert.equal(error.code, "EADDRINUSE");
      assert.match(error.message, new RegExp(`^Cannot listen on 127\\.0\\.0\\.1:${server.port}: the port is in use`));
      return true;
    });
  });
});

test("an IPv6 address is listened on, with brackets in the URL", async () => {
  const services = Object.assign(createFakeServices(), {
    listensOn() {},
    learningTools: () => undefined,
    reload: () => Promise.resolve(),
    beginDrain() {},
    drain: () => Promise.resolve(),
    close: () => Promise.resolve(),
    clock: systemClock,
  });
  const server = await serveGateway({ services, host: "[::1]", port: 0 }).catch((error) => {
    assert.ok(error instanceof ListenError); // a machine without IPv6
    return undefined;
  });
  if (server === undefined) return;
  assert.equal(server.url, `http://[::1]:${server.port}/`);
  await alive(server);
  await server.drain(0);
});

test("requests, replies and the peer's address pass through a real socket", async () => {
  await withServer({}, async (server, services) => {
    const reply = await fetch(`${server.url}v1/ping`, {
      method: "POST",
      headers: { authorization: "Bearer token_chat", "content-type": "application/json", "x-request-id": "abc" },
      body: '{"message":"é"}',
    });
    assert.deepEqual(await reply.json(), { ok: true, echo: "é" });
    assert.equal(reply.headers.get("x-request-id"), "abc");
    const empty = await fetch(`${server.url}v1/ping`, {
      method: "POST",
      headers: { authorization: "Bearer token_chat" },
    });
    assert.deepEqual(await empty.json(), { ok: true, echo: null });
    const head = await fetch(`${server.url}health`, { method: "HEAD" });
    assert.deepEqual([head.status, await head.text()], [200, ""]);
    assert.equal(
      services.logged.find(({ fields }) => fields["request_id"] === "abc")?.fields["remote_address"],
      "127.0.0.1",
    );
  });
});

test("10 MiB and one byte more: accepted and 413, with a length, without one, and with a length that is not kept", async () => {
  await withServer({}, async (server) => {
    const limit = 10 * 1024 * 1024;
    const send = async (bytes: number, chunked: boolean) => {
      const body = new Uint8Array(bytes).fill(0x20);
      body[0] = 0x35;
      const reply = await fetch(`${server.url}v1/ping`, {
        method: "POST",
        headers: { authorization: "Bearer token_chat", "content-type": "application/json" },
        body: chunked ? ReadableStream.from([body.subarray(0, bytes / 2), body.subarray(bytes / 2)]) : body,
        ...(chunked ? { duplex: "half" } : {}),
      } as RequestInit);
      const { error } = await reply.json() as { error?: { code: string } };
      return [reply.status, error?.code];
    };
    for (const chunked of [false, true]) {
      assert.deepEqual(await send(limit, chunked), [200, undefined]);
      assert.deepEqual(await send(limit + 1, chunked), [413, "payload_too_large"]);
    }
    const head = "POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer token_chat\r\n";
    const raw = await openRawSocket(server.port);
    raw.write(`${head}Content-Length: 99999999999\r\n\r\n`);
    assert.deepEqual(lastAnswer(await raw.read(/\}\}$/)).code, "payload_too_large");
    raw.destroy();
    await alive(server);
  });
});

test("a body that stops half-way ends the request and nothing else", async () => {
  await withServer({}, async (server, services) => {
    const raw = await openRawSocket(server.port);
    raw.write(
      'POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer token_chat\r\nContent-Length: 100\r\n\r\n{"mess',
    );
    await until(() => !services.metrics.render().includes("in_flight 0"));
    raw.destroy();
    await until(() => services.metrics.render().includes("in_flight 0"));
    assert.equal(services.logged.filter(({ level }) => level === "error").length, 0);
    await alive(server);
  });
});

test("a body that does not come within request_timeout_secs is 408", async () => {
  await withServer({ gateway: { request_timeout_secs: 1 } }, async (server) => {
    const raw = await openRawSocket(server.port);
    raw.write(
      'POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer token_chat\r\nContent-Length: 100\r\n\r\n{"mess',
    );
    const { status, code, headers } = lastAnswer(await raw.read(/\}\}/));
    assert.deepEqual([status, code], [408, "request_timeout"]);
    if (ON_NODE) assert.match(headers, /connection: close/);
    raw.destroy();
    await alive(server);
  });
});

test("headers that come too slowly are 408 in the one error shape", nodeOnly, async () => {
  await withServer({ headersTimeoutMs: 200 }, async (server) => {
    const raw = await openRawSocket(server.port);
    raw.write("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ");
    const { status, code, headers } = lastAnswer(await raw.closed());
    assert.deepEqual([status, code], [408, "request_timeout"]);
    assert.match(headers, /x-request-id: req_/);
    await alive(server);
  });
});

test("headers without end are refused, and the process stays", async () => {
  await withServer({}, async (server) => {
    for (const line of ["X-Many: 1\r\n", `X-Long: ${"x".repeat(1000)}\r\n`]) {
      const answer = await exchange(
        server.port,
        `GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n${line.repeat(Math.ceil(1_000_000 / line.length))}`,
      );
      if (ON_NODE) assert.deepEqual([lastAnswer(answer).status, lastAnswer(answer).code], [431, "headers_too_large"]);
      else assert.doesNotMatch(answer, /HTTP\/1.1 2/);
    }
    await alive(server);
  });
});

test(
  "what is no HTTP gets 400 in the one error shape; behind a good request it ends the connection",
  nodeOnly,
  async () => {
    await withServer({}, async (server) => {
      const cases = [
        "\u0000\u0001\u0002\r\n\r\n",
        "GARBAGE\r\n\r\n",
        "GET /health HTTP/9.9\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nBad Header: x\r\n\r\n",
        "POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n",
        "GET health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET ftp://127.0.0.1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET /v1/../health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
      ];
      for (const bytes of cases) {
        const { status, code } = lastAnswer(await exchange(server.port, bytes));
        assert.deepEqual([status, code], [400, "invalid_request"], JSON.stringify(bytes));
      }
      const behind = await exchange(
        server.port,
        "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\u0016\u0003 pipelined garbage\r\n\r\n",
      );
      assert.match(behind, /^HTTP\/1.1 200 /);
      await alive(server);
    });
  },
);

test("pipelined requests are answered in order", async () => {
  await withServer({}, async (server) => {
    const one = (id: string, path: string) => `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: ${id}\r\n`;
    const answer = await exchange(
      server.port,
      `${one("a", "/health")}\r\n${one("b", "/openapi.json")}\r\n${one("c", "/nothing")}Connection: close\r\n\r\n`,
    );
    assert.deepEqual([...answer.matchAll(/x-request-id: (\w+)/gi)].map(([, id]) => id), ["a", "b", "c"]);
  });
});

test("an absolute-form target of another host is refused, whatever the Host header says", async () => {
  await withServer({}, async (server) => {
    const get = (target: string, host: string) =>
      exchange(server.port, `GET ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    const own = `127.0.0.1:${server.port}`;
    for (
      const [target, host] of [["http://evil.com/health", own], ["http://evil.com/health", "evil.com"], [
        "/health",
        "evil.com",
      ]] as const
    ) {
      const { status, code } = lastAnswer(await get(target, host));
      assert.ok(status === 403 || status === 400, `${target} ${host} ${status}`);
      if (ON_NODE) assert.equal(code, "host_forbidden");
    }
    assert.equal(lastAnswer(await get(`http://${own}/health`, own)).status, 200);
    const twice = await exchange(
      server.port,
      `GET /health HTTP/1.1\r\nHost: ${own}\r\nHost: evil.com\r\nConnection: close\r\n\r\n`,
    );
    assert.ok([400, 403].includes(lastAnswer(twice).status), twice);
  });
});

test("raw paths are not repaired on their way to the routes", async () => {
  await withServer({}, async (server) => {
    for (
      const path of [
        "//health",
        "/v1/../health",
        "/%68ealth",
        "/health/",
        "/HEALTH",
        "/v1/tools/%2e%2e/tokens",
        "/health%00",
      ]
    ) {
      const answer = await exchange(
        server.port,
        `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer token_admin\r\nConnection: close\r\n\r\n`,
      );
      const dots = /\.\.|%2e/.test(path);
      assert.equal(lastAnswer(answer).status, dots && ON_NODE ? 400 : 404, path);
    }
  });
});

test("clients that go away in the middle of a stream stop the work and do not end the process", async () => {
  const script = () => ({ text: Array.from({ length: 2000 }, () => "word "), chunkDelayMs: 2 });
  await withRunningGateway({ script }, async ({ url, port, call, provider, token }) => {
    const body = '{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}';
    const head =
      `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
    const early = await openRawSocket(port);
    early.write(head + body);
    early.destroy();
    await Promise.all(Array.from({ length: 10 }, async (_, i) => {
      const raw = await openRawSocket(port);
      raw.write(head + body);
      await raw.read(/word/);
      if (i % 2 === 0) raw.socket.resetAndDestroy();
      else raw.destroy();
    }));
    const client = new AbortController();
    const reply = await call("/v1/chat/completions", { body, signal: client.signal });
    const reader = reply.body?.getReader();
    await reader?.read();
    client.abort();
    await until(() => provider.active === 0);
    assert.ok(provider.aborted >= 11);
    assert.equal((await fetch(`${url}/health`)).status, 200);
  });
});

interface Handshake {
  readonly host?: string;
  readonly path?: string;
  readonly headers?: string;
}

function handshake({ host = "127.0.0.1", path = "/ws/chat", headers = "" }: Handshake): string {
  return `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n` +
    `Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n${headers}\r\n`;
}

test("a WebSocket handshake with a wrong host, origin, token or route is refused with status and code", async () => {
  await withRunningGateway({ script: [] }, async ({ port, token, url }) => {
    const bearer = `Authorization: Bearer ${token}\r\n`;
    const cases: readonly (readonly [Handshake, number, string])[] = [
      [{ headers: "" }, 401, "auth_required"],
      [{ headers: "Authorization: Bearer nonsense\r\n" }, 401, "auth_invalid"],
      [{ path: "/ws/chat?ticket=x" }, 401, "auth_invalid"],
      [{ headers: `${bearer}Origin: http://evil.com\r\n` }, 403, "origin_forbidden"],
      [{ headers: `${bearer}Sec-Fetch-Site: cross-site\r\n` }, 403, "origin_forbidden"],
      [{ host: "evil.com", headers: bearer }, 403, "host_forbidden"],
      [{ path: "/health", headers: bearer }, 400, "invalid_request"],
      [{ path: "/v1/chat/completions", headers: bearer }, 400, "invalid_request"],
      [{ path: "//ws/chat", headers: bearer }, 400, "invalid_request"],
    ];
    for (const [request, status, code] of cases) {
      const raw = await openRawSocket(port);
      raw.write(handshake(request));
      const answer = lastAnswer(await raw.read(/\}\}/));
      assert.deepEqual([answer.status, answer.code], [status, code], JSON.stringify(request));
      assert.match(answer.headers, /x-request-id: req_/);
      raw.destroy();
    }
    for (const headers of [bearer, `${bearer}Origin: ${url}\r\n`]) {
      const raw = await openRawSocket(port);
      raw.write(handshake({ host: `127.0.0.1:${port}`, headers }));
      const answer = lastAnswer(await raw.read(/\r\n\r\n/));
      assert.equal(answer.status, 101);
      // Deno writes the head of an upgrade by itself
      if (ON_NODE) assert.match(answer.headers, /x-request-id: req_/);
      raw.destroy();
    }
    const leaver = await openRawSocket(port);
    leaver.write(handshake({ headers: bearer }));
    leaver.socket.resetAndDestroy();
    assert.equal((await fetch(`${url}/health`)).status, 200);
  });
});

test("an upgrade to anything but a WebSocket is answered as the plain request it also is, or refused", async () => {
  await withServer({}, async (server) => {
    const answer = await exchange(
      server.port,
      "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    );
    assert.ok([200, 400].includes(lastAnswer(answer).status), answer);
    await alive(server);
  });
});

/** Tells whether a server can listen on a port of this machine. */
function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer().once("error", () => resolve(false));
    server.listen({ host: "127.0.0.1", port }, () => server.close(() => resolve(true)));
  });
}

test("drain refuses new connections, lets what is at work finish, and closes the rest", async () => {
  const script = [{ text: ["one ", "two ", "three"], chunkDelayMs: 60 }];
  await withRunningGateway({ script }, async ({ port, call, token, drain, services }) => {
    const idle = await openRawSocket(port);
    idle.write("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    await idle.read(/\}/);
    const socket = await openRawSocket(port);
    socket.write(handshake({ headers: `Authorization: Bearer ${token}\r\n` }));
    await socket.read(/\r\n\r\n/);
    const reply = await call("/v1/chat/completions", {
      body: { model: "m", stream: true, messages: [{ role: "user", content: "hi" }] },
    });
    const text = reply.text();
    const drained = drain(60_000);
    assert.equal(services.facts.health().status, "draining");
    await idle.closed();
    assert.match(await text, /three[\s\S]*\[DONE\]/);
    // A close frame with 1001
    assert.ok((await socket.read(/\u0088/)).includes("\u0003\u00e9"));
    socket.destroy();
    await drained;
    // Another test may have taken the port in this very moment, and gives it back
    await until(() => isFree(port), "the port is never free again");
    for (const raw of [idle, socket]) raw.destroy();
  });
});

test("drain cancels what outlives the grace, with a final event, and comes to an end", async () => {
  await withRunningGateway({ script: [{ text: "start", hang: "after" }] }, async ({ call, drain, provider }) => {
    const reply = await call("/v1/chat/completions", {
      body: { model: "m", stream: true, messages: [{ role: "user", content: "hi" }] },
    });
    const text = reply.text();
    const started = systemClock.monotonic();
    await drain(50);
    assert.ok(systemClock.monotonic() - started < 10_000);
    assert.match(await text, /"code":"shutting_down"[\s\S]*\[DONE\]/);
    assert.equal(provider.active, 0);
  });
});
