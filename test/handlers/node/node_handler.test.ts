import express from "express";
import assert from "node:assert/strict";
import { createServer, type RequestListener, type Server } from "node:http";
import { connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import {
  createGateway,
  type Gateway,
  type MountableGateway,
  type NodeHandler,
  toNodeHandler,
} from "../../../handlers/mod.ts";
import { exchange, lastAnswer, openRawSocket } from "../../support/raw_socket.ts";
import { removeFolder } from "../../support/remove_folder.ts";
import { until } from "../../support/until.ts";

const TOKEN = "test-token-of-the-environment-0123456789";
const AUTH = { authorization: `Bearer ${TOKEN}` };
const ON_DENO = "Deno" in globalThis;

/** Runs `use` with the port of a server that is closed afterwards. */
async function serving(listener: RequestListener, use: (port: number, server: Server) => Promise<void>): Promise<void> {
  const server = createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    await use((server.address() as AddressInfo).port, server);
  } finally {
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  }
}

/** A gateway that answers with this. */
function replying(
  answer: (
    request: Request,
    connection: { readonly remoteAddress?: string | undefined },
  ) => Response | Promise<Response>,
  basePath = "",
): MountableGateway {
  return {
    basePath,
    fetch: async (request, connection) => await answer(request, connection),
    websocket: { resolve: () => ({}), maxMessageBytes: 1000 },
  };
}

describe("a gateway behind node:http and Express", () => {
  let folder = "";
  let gateway: Gateway;
  const errors: unknown[] = [];
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "postern-test-"));
    gateway = await createGateway({
      dataDir: join(folder, "data"),
      workspace: folder,
      basePath: "/api/agent",
      environment: { POSTERN_TOKEN: TOKEN },
      config: { provider: { kind: "offline" }, gateway: { max_request_bytes: 1_048_576 } },
    });
  });
  after(async () => {
    await gateway.close();
    await removeFolder(folder);
  });

  const withExpress = async (
    build: (app: ReturnType<typeof express>) => void,
    use: (port: number) => Promise<void>,
  ) => {
    const app = express();
    app.set("trust proxy", true);
    build(app);
    app.use(
      ((error, _request, response, _next) => {
        errors.push(error);
        response.status(500).type("text").send(error instanceof Error ? error.message : "");
      }) as express.ErrorRequestHandler,
    );
    await serving(app as unknown as RequestListener, use);
  };
  const chat = (port: number, body: string, headers: Record<string, string> = {}) =>
    fetch(`http://127.0.0.1:${port}/api/agent/api/chat`, {
      method: "POST",
      headers: { ...AUTH, "content-type": "application/json", ...headers },
      body,
    });

  test("a prefix of Express, nested routers and plain use() reach the same routes, and what is outside goes on", async () => {
    const handler = toNodeHandler(gateway);
    const mounts: readonly ((app: ReturnType<typeof express>) => void)[] = [
      (app) => app.use("/api/agent", handler),
      (app) => app.use("/api", express.Router().use("/agent", handler)),
      (app) => app.use("/api", handler),
      (app) => app.use(handler),
    ];
    for (const mount of mounts) {
      await withExpress((app) => {
        mount(app);
        app.use((_request, response) => void response.status(418).send("mine"));
      }, async (port) => {
        const at = (path: string) => fetch(`http://127.0.0.1:${port}${path}`, { redirect: "manual" });
        const health = await at("/api/agent/health?x=1");
        assert.equal((await health.json() as { status: string }).status, "ok");
        for (const path of ["/api/agent/", "/api/agent"]) {
          assert.match(await (await at(path)).text(), /<title>Postern/, path);
        }
        assert.equal((await at("/api/agent/nothing")).status, 404, "the gateway's own 404");
        for (const path of ["/", "/api", "/api/agents/health", "/other", "/health"]) {
          const reply = await at(path);
          assert.deepEqual([reply.status, await reply.text()], [418, "mine"], path);
        }
        const reply = await chat(port, '{"message":"hello"}');
        assert.equal(reply.status, 200);
        assert.ok((await reply.json() as { message: string }).message.length > 0);
      });
    }
  });

  test("a mount at another path than basePath says which basePath to give", async () => {
    await withExpress((app) => app.use("/gateway", toNodeHandler(gateway)), async (port) => {
      const reply = await fetch(`http://127.0.0.1:${port}/gateway/health`);
      assert.equal(reply.status, 500);
      assert.match(await reply.text(), /under "\/gateway": its basePath is "\/api\/agent".*basePath: "\/gateway"/);
    });
    await withExpress((app) => app.use("/agent", toNodeHandler(replying(() => new Response("")))), async (port) => {
      const reply = await fetch(`http://127.0.0.1:${port}/agent/health`);
      assert.match(await reply.text(), /basePath is "".*basePath: "\/agent"/);
    });
  });

  test("a body that express.json() has read is refused by a message that names the mend; rawBody is taken", async () => {
    const handler = toNodeHandler(gateway);
    await withExpress((app) => app.use(express.json()).use(handler), async (port) => {
      const refused = await chat(port, '{"message":"hello"}');
      assert.deepEqual([refused.status, refused.headers.get("x-should-retry")], [500, "false"]);
      const { error } = await refused.json() as { error: { message: string; code: string } };
      assert.equal(error.code, "internal_error");
      assert.match(error.message, /before express\.json\(\)/);
      assert.equal((await fetch(`http://127.0.0.1:${port}/api/agent/health`)).status, 200, "no body, no matter");
      const ticket = await fetch(`http://127.0.0.1:${port}/api/agent/v1/ws-ticket`, { method: "POST", headers: AUTH });
      assert.equal(ticket.status, 200, "an empty body is not missed");
      await ticket.body?.cancel();
    });
    const keepRaw = express.json({
      verify: (request, _response, buffer) => void Object.assign(request, { rawBody: buffer }),
    });
    await withExpress((app) => app.use(keepRaw).use(handler), async (port) => {
      assert.equal((await chat(port, '{"message":"hello"}')).status, 200);
      assert.equal((await chat(port, `{"message":"${"x".repeat(1_000)}"}`)).status, 200);
    });
    await withExpress((app) => {
      app.use((request, _response, next) => {
        request.setEncoding("utf8");
        next();
      });
      app.use(handler);
    }, async (port) => assert.equal((await chat(port, '{"message":"hello"}')).status, 500, "text loses bytes"));
  });

  test("a rawBody over max_request_bytes is refused as any other body", async () => {
    const raw = express.raw({ type: "*/*", limit: "4mb", verify: (r, _s, b) => void Object.assign(r, { rawBody: b }) });
    await withExpress((app) => app.use(raw).use(toNodeHandler(gateway)), async (port) => {
      const reply = await chat(port, `{"message":"${"x".repeat(1_100_000)}"}`, { "transfer-encoding": "chunked" })
        .catch(
          () => chat(port, `{"message":"${"x".repeat(1_100_000)}"}`),
        );
      assert.equal(reply.status, 413);
      await reply.body?.cancel();
    });
  });

  test("a body that comes late, in pieces or after other middleware is whole; one too long is 413 on a connection that lives", async () => {
    const later: express.RequestHandler = (_request, _response, next) => void setImmediate(next);
    await withExpress((app) => app.use(later).use(toNodeHandler(gateway)), async (port) => {
      const raw = await openRawSocket(port);
      const head = `POST /api/agent/api/chat HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${TOKEN}\r\n`;
      raw.write(`${head}Transfer-Encoding: chunked\r\nTrailer: X-Late\r\n\r\n`);
      for (const piece of ['{"mess', 'age":"hel', 'lo"}']) raw.write(`${piece.length.toString(16)}\r\n${piece}\r\n`);
      raw.write("0\r\nX-Late: 1\r\n\r\n");
      assert.match(await raw.read(/"run_id"/), /^HTTP\/1\.1 200/);
      const size = 1_048_577;
      raw.write(`${head}Transfer-Encoding: chunked\r\n\r\n${size.toString(16)}\r\n${"x".repeat(size)}\r\n0\r\n\r\n`);
      assert.equal(lastAnswer(await raw.read(/payload_too_large.*\}\}/)).status, 413);
      raw.write("GET /api/agent/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
      assert.match(lastAnswer(await raw.closed()).headers, /^http\/1\.1 200/);
      raw.destroy();
    });
  });

  test("Expect: 100-continue is answered once, also where the server asks the handler", async () => {
    const handler = toNodeHandler(gateway);
    const body = '{"message":"hello"}';
    const head = `POST /api/agent/api/chat HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${TOKEN}\r\n` +
      `Content-Length: ${body.length}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n`;
    const ask = async (port: number) => {
      const raw = await openRawSocket(port);
      raw.write(head);
      await raw.read(/100 Continue\r\n\r\n/);
      raw.write(body);
      const text = await raw.closed();
      assert.equal(text.match(/100 Continue/g)?.length, 1, text);
      assert.match(text, /HTTP\/1\.1 200/);
    };
    await serving(handler, ask);
    if (ON_DENO) return; // Deno answers the expectation by itself
    await serving(handler, async (port, server) => {
      server.on("checkContinue", handler);
      await ask(port);
      const refused = await exchange(port, head.replace(TOKEN, "wrong"));
      assert.doesNotMatch(refused, /100 Continue/, "the body of a refused request is not asked for");
      assert.equal(lastAnswer(refused).status, 401);
    });
  });

  test("a client that goes away ends the work: before its body is whole, and in the middle of a stream", async () => {
    const unhandled: unknown[] = [];
    const begun = Promise.withResolvers<void>();
    const gone = Promise.withResolvers<void>();
    const cancelled = Promise.withResolvers<void>();
    const fake = replying(async (request) => {
      if (request.method === "POST") {
        begun.resolve();
        await request.text().then(() => unhandled.push("the body came whole"), () => gone.resolve());
        return new Response("late");
      }
      return new Response(
        new ReadableStream({ pull: (c) => c.enqueue(new Uint8Array(65_536)), cancel: () => cancelled.resolve() }),
      );
    });
    await serving(toNodeHandler(fake), async (port) => {
      const upload = await openRawSocket(port);
      upload.write("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf");
      await begun.promise;
      upload.destroy();
      await gone.promise;
      const reader = await openRawSocket(port);
      reader.write("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
      await reader.read(/^HTTP\/1\.1 200/);
      reader.destroy();
      await cancelled.promise;
    });
    assert.deepEqual(unhandled, []);
  });

  test("a reader that stops reading stops the stream", async () => {
    let sent = 0;
    const fake = replying(() =>
      new Response(
        new ReadableStream({
          pull(controller) {
            sent += 65_536;
            controller.enqueue(new Uint8Array(65_536));
          },
        }),
      )
    );
    await serving(toNodeHandler(fake), async (port) => {
      const raw = await openRawSocket(port);
      raw.socket.pause();
      raw.write("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
      let before = -1;
      let still = 0;
      await until(() => {
        still = sent > 0 && sent === before ? still + 1 : 0;
        before = sent;
        return still > 110;
      }, "it goes on for ever");
      assert.ok(sent < 64 * 1024 * 1024, `${sent} bytes wait in memory or in the system`);
      raw.destroy();
    });
  });

  test("status, several cookies, no body, HEAD and HTTP/1.0 arrive as the gateway gave them", async () => {
    const replies: Readonly<Record<string, () => Response>> = {
      "/cookies": () => new Response("a", { headers: [["set-cookie", "a=1"], ["set-cookie", "b=2"], ["x-e", "é"]] }),
      "/204": () => new Response(null, { status: 204 }),
      "/304": () => new Response(null, { status: 304, headers: { etag: '"x"' } }),
      "/head": () => new Response(null, { headers: { "content-length": "5" } }),
      "/error": () => new Response(new ReadableStream({ pull: (c) => c.error(new Error("broken")) })),
    };
    const seen: string[] = [];
    const fake = replying((request, { remoteAddress }) => {
      seen.push(`${request.method} ${request.url} ${remoteAddress}`);
      return replies[new URL(request.url).pathname]?.() ?? new Response("none");
    });
    await serving(toNodeHandler(fake), async (port) => {
      const ask = (line: string, more = "") =>
        exchange(port, `${line}\r\nHost: 127.0.0.1\r\nConnection: close\r\n${more}\r\n`);
      const cookies = await ask("GET /cookies HTTP/1.1");
      assert.match(cookies, /set-cookie: a=1\r\nset-cookie: b=2\r\n/i);
      assert.match(cookies, /x-e: \xe9\r\n/i);
      assert.match(await ask("GET /204 HTTP/1.1"), /^HTTP\/1\.1 204 [^\r]*\r\n[\s\S]*\r\n\r\n$/);
      assert.match(await ask("GET /304 HTTP/1.1"), /^HTTP\/1\.1 304 [\s\S]*etag: "x"[\s\S]*\r\n\r\n$/i);
      assert.match(await ask("HEAD /head HTTP/1.1"), /content-length: 5\r\n[\s\S]*\r\n\r\n$/i);
      assert.match(await ask("GET /cookies HTTP/1.0"), /^HTTP\/1\.1 200[\s\S]*\r\n\r\na$/);
      assert.doesNotMatch(await ask("GET /error HTTP/1.1"), /0\r\n\r\n$/, "a broken stream does not end well");
      await ask(
        `GET http://other.test/abs?q HTTP/1.1`,
        "X-Forwarded-Host: forged\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\n",
      );
      assert.equal(seen.at(-1), "GET http://other.test/abs?q 127.0.0.1");
      await ask("GET //evil.test/x HTTP/1.1");
      assert.equal(seen.at(-1), "GET http://127.0.0.1//evil.test/x 127.0.0.1");
    });
  });

  test("HTTP/2 is served", { skip: ON_DENO && "Deno's node:http2 server is another" }, async () => {
    const server = createHttp2Server(toNodeHandler(gateway));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    try {
      for (const [path, status] of [["/api/agent/health", 200], ["/api/agent/../x", 400], ["/x", 404]] as const) {
        const stream = session.request({ ":path": path });
        const [headers] = await once(stream, "response") as [{ ":status": number }];
        assert.equal(headers[":status"], status, path);
        stream.resume();
        await once(stream, "end");
      }
      const stream = session.request({ ":path": "/api/agent/api/chat", ":method": "POST", ...AUTH });
      stream.end('{"message":"hello"}');
      const [headers] = await once(stream, "response") as [{ ":status": number }];
      assert.equal(headers[":status"], 200);
    } finally {
      session.destroy();
      server.close();
    }
  });

  test("upgrades: a chat opens, others are left to other listeners, and those that nobody takes are refused", async () => {
    const handler = toNodeHandler(gateway);
    await serving(handler, async (port, server) => {
      server.on("upgrade", handler.upgrade);
      const handshake = (path: string, upgrade = "websocket") =>
        exchange(
          port,
          `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n` +
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        );
      assert.equal(lastAnswer(await handshake("/other")).status, 404);
      assert.equal(lastAnswer(await handshake("/api/agent/ws/chat")).code, "auth_required");
      assert.equal(lastAnswer(await handshake("/api/agent/health")).status, 400);
      assert.equal(lastAnswer(await handshake("/api/agent/./ws/chat")).status, 400);
      assert.equal(lastAnswer(await handshake("/api/agent/ws/chat", "h2c")).status, 400);
      const reply = await fetch(`http://127.0.0.1:${port}/api/agent/v1/ws-ticket`, { method: "POST", headers: AUTH });
      const { ticket } = await reply.json() as { ticket: string };
      const socket = new WebSocket(`ws://127.0.0.1:${port}/api/agent/ws/chat?ticket=${ticket}`);
      const done = Promise.withResolvers<void>();
      socket.onopen = () => socket.send("hello");
      socket.onerror = () => done.reject(new Error("The socket failed"));
      socket.onmessage = ({ data }) => (JSON.parse(data) as { type: string }).type === "done" && done.resolve();
      await done.promise;
      const closed = Promise.withResolvers<number>();
      socket.onclose = ({ code }) => closed.resolve(code);
      socket.close();
      await closed.promise;
      server.on("upgrade", (request, connection) => {
        if (request.url === "/other") connection.end("HTTP/1.1 418 Mine\r\n\r\n");
      });
      assert.match(await handshake("/other"), /418 Mine/);
    });
  });
});

test("two gateways on one server: a handshake outside both is answered, and each takes its own", async () => {
  const seen: string[] = [];
  const mount = (basePath: string) => {
    const resolve = () => {
      seen.push(basePath);
      return { upgrade: () => new Response(basePath, { status: 403 }) };
    };
    return toNodeHandler({ basePath, fetch: () => assert.fail(), websocket: { resolve, maxMessageBytes: 1_024 } });
  };
  const [one, two] = [mount("/one"), mount("/two")];
  const both: NodeHandler["upgrade"] = (...given) => {
    one.upgrade(...given);
    two.upgrade(...given);
  };
  for (const listeners of [[one.upgrade, two.upgrade], [both]]) {
    const server = createServer();
    for (const listener of listeners) server.on("upgrade", listener);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const handshake = (path: string) =>
      exchange(
        port,
        `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
          "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
      );
    try {
      assert.equal(lastAnswer(await handshake("/three")).status, 404);
      assert.match(await handshake("/one/ws/chat"), /^HTTP\/1.1 403 /);
      assert.match(await handshake("/two/ws/chat"), /^HTTP\/1.1 403 /);
      assert.deepEqual(seen.splice(0), ["/one", "/two"]);
      server.on("upgrade", ({ url }, connection) => url === "/three" && connection.end("HTTP/1.1 418 Mine\r\n\r\n"));
      assert.match(await handshake("/three"), /418 Mine/);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }
});

test("a basePath that no request could match is refused by name", async () => {
  for (const basePath of ["agent", "/a//b", "/a/../b", "/a b", "/a?b", "/a%20", "http://x/a", 5 as unknown as string]) {
    await assert.rejects(createGateway({ dataDir: "unused", workspace: ".", basePath }), { code: "base_path_invalid" });
  }
});
