import { createAdaptorServer } from "@hono/node-server";
import { getConnInfo } from "@hono/node-server/conninfo";
import { plugin as webSockets } from "crossws/server";
import denoAdapter from "crossws/adapters/deno";
import express from "express";
import { Hono } from "hono";
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { serve, type ServerRequest } from "srvx";
import { Deno } from "../../fixtures/mounts/deno_api.ts";
import {
  createGateway,
  type Gateway,
  type GatewayConnection,
  type GatewayLogLine,
  toNodeHandler,
} from "../../handlers/mod.ts";
import { lastAnswer, openRawSocket } from "../support/raw_socket.ts";
import { withWorld, type World } from "../support/world.ts";

const ON_DENO = "Deno" in globalThis;
const TOKEN = "test-token-of-the-environment-0123456789";
const CONFIG = { gateway: { rate_limit_max: 0 }, provider: { kind: "offline" as const } };

/** A server that has the gateway under a path. */
interface Mount {
  readonly name: string;
  readonly port: number;
  readonly prefix: string;
}

async function listening(server: Server, name: string, world: World): Promise<Mount> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  world.onEnd(async () => {
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  });
  return { name, port: (server.address() as AddressInfo).port, prefix: "/agent" };
}

async function mountInNode(gateway: Gateway, world: World): Promise<readonly Mount[]> {
  const handler = toNodeHandler(gateway);
  const app = express().set("trust proxy", true).use("/agent", handler);
  const hono = new Hono().all(
    "/agent/*",
    (c) => gateway.fetch(c.req.raw, { remoteAddress: getConnInfo(c).remote.address }),
  );
  const servers: readonly (readonly [string, Server])[] = [
    ["node:http", createServer(handler)],
    ["Express", createServer(app as unknown as RequestListener)],
    // Hono's server has a listener of its own for requests, which works on Node alone
    ...(ON_DENO ? [] : [["Hono", createAdaptorServer({ fetch: hono.fetch }) as Server] as const]),
  ];
  return await Promise.all(servers.map(([name, server]) => {
    server.on("upgrade", handler.upgrade);
    return listening(server, name, world);
  }));
}

async function mountInSrvx(gateway: Gateway, world: World): Promise<Mount> {
  const peerOf = (request: Request) => ({ remoteAddress: (request as ServerRequest).ip });
  const server = serve({
    ...{ hostname: "127.0.0.1", port: 0, manual: true, silent: true, gracefulShutdown: false },
    plugins: [webSockets({ resolve: (request) => gateway.websocket.resolve(request, peerOf(request)) })],
    fetch: (request) => gateway.fetch(request, peerOf(request)),
  });
  await server.serve();
  world.onEnd(() => server.close(true));
  return { name: "srvx", port: Number(new URL(server.url ?? "").port), prefix: "/agent" };
}

/** Deno.serve, and a Hono app in it. */
function mountInDeno(gateway: Gateway, world: World): readonly Mount[] {
  if (!ON_DENO) return [];
  const peers = new WeakMap<Request, GatewayConnection>();
  const sockets = denoAdapter({
    resolve: (request) => gateway.websocket.resolve(request, peers.get(request as Request)),
  });
  type Info = { readonly remoteAddr: { readonly hostname: string } };
  const fetchOf = (request: Request, info: Info) => gateway.fetch(request, { remoteAddress: info.remoteAddr.hostname });
  const app = new Hono<{ Bindings: Info }>().all("/agent/*", (c) => fetchOf(c.req.raw, c.env));
  const serving = (name: string, answer: (request: Request, info: Info) => Response | Promise<Response>) => {
    const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, (request, info) => {
      if (request.headers.get("upgrade") !== "websocket") return answer(request, info);
      peers.set(request, { remoteAddress: info.remoteAddr.hostname });
      return sockets.handleUpgrade(request, info as never);
    });
    world.onEnd(() => server.shutdown());
    return { name, port: server.addr.port, prefix: "/agent" };
  };
  return [serving("Deno.serve", fetchOf), serving("Hono in Deno.serve", (request, info) => app.fetch(request, info))];
}

/** A request that must not get through. */
interface Attack {
  readonly name: string;
  /** Request line and headers, with `{p}` for the path of the mount and `{h}` for the right host; after an empty line, the body */
  readonly request: readonly string[];
  /** Status that Postern's own server gives, or any of these */
  readonly status: number | readonly number[];
  /** Code, where the refusal is not that of a server beneath */
  readonly code?: string;
}

const AUTH = `Authorization: Bearer ${TOKEN}`;
const JSON_BODY = ["Content-Type: application/json", "Content-Length: 2", "", "{}"];
const HANDSHAKE = [
  ...["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"],
  "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
];
const HOST = { status: 403, code: "host_forbidden" };
const ORIGIN = { status: 403, code: "origin_forbidden" };
const TOOLS = "/v1/tools";
const paths = [
  "/health/../v1/tools",
  "/%2e%2e/agent/v1/tools",
  "/%2e/v1/tools",
  "//v1/tools",
  "\\v1\\tools",
  "/V1/TOOLS",
  "/v1%2ftools",
  "/v1/tools/",
  "/..;/v1/tools",
];

const ATTACKS: readonly Attack[] = [
  { name: "a rebound host", request: ["GET {p}/health", "Host: evil.test"], ...HOST },
  { name: "a rebound host with a token", request: [`GET {p}${TOOLS}`, "Host: evil.test:80", AUTH], ...HOST },
  { name: "a host that begins as this one", request: ["GET {p}/health", "Host: 127.0.0.1.evil.test"], ...HOST },
  { name: "a forwarded host", request: ["GET {p}/health", "Host: evil.test", "X-Forwarded-Host: 127.0.0.1"], ...HOST },
  {
    name: "a forwarded host, newer",
    request: ["GET {p}/health", "Host: evil.test", "Forwarded: host=127.0.0.1"],
    ...HOST,
  },
  { name: "a target of another host", request: ["GET http://evil.test{p}/health", "Host: {h}"], ...HOST },
  { name: "a host beside its target", request: ["GET http://{h}{p}/health", "Host: evil.test"], ...HOST },
  { name: "two hosts", request: ["GET {p}/health", "Host: {h}", "Host: evil.test"], status: [400, 403] },
  // Deno takes the address of its own socket for the host
  { name: "no host", request: ["GET {p}/health"], status: ON_DENO ? [200, 400] : 400 },
  {
    name: "a foreign page",
    request: ["POST {p}/pair", "Host: {h}", "Origin: http://evil.test", ...JSON_BODY],
    ...ORIGIN,
  },
  { name: "a page without origin", request: ["POST {p}/pair", "Host: {h}", "Origin: null", ...JSON_BODY], ...ORIGIN },
  {
    name: "a form of a foreign page",
    request: ["POST {p}/api/chat", "Host: {h}", AUTH, "Sec-Fetch-Site: cross-site", ...JSON_BODY],
    ...ORIGIN,
  },
  {
    name: "a forged peer",
    request: [
      ...[`GET {p}${TOOLS}`, "Host: {h}", "X-Forwarded-For: 10.9.8.7", "X-Real-IP: 10.9.8.7"],
      ...["Forwarded: for=10.9.8.7", "CF-Connecting-IP: 10.9.8.7", "X-Forwarded-Proto: https"],
    ],
    status: 401,
    code: "auth_required",
  },
  { name: "a wrong token", request: [`GET {p}${TOOLS}`, "Host: {h}", `${AUTH}x`], status: 401, code: "auth_invalid" },
  {
    name: "a socket of a foreign page",
    request: ["GET {p}/ws/chat", "Host: {h}", "Origin: http://evil.test", AUTH, ...HANDSHAKE],
    ...ORIGIN,
  },
  { name: "a socket of a rebound host", request: ["GET {p}/ws/chat", "Host: evil.test", AUTH, ...HANDSHAKE], ...HOST },
  {
    name: "a socket without a token",
    request: ["GET {p}/ws/chat", "Host: {h}", ...HANDSHAKE],
    status: 401,
    code: "auth_required",
  },
  { name: "a socket elsewhere", request: ["GET {p}/health", "Host: {h}", ...HANDSHAKE], status: 400 },
  {
    name: "a compressed body",
    request: ["POST {p}/api/chat", "Host: {h}", AUTH, "Content-Encoding: br", ...JSON_BODY],
    status: 415,
  },
  {
    name: "two lengths",
    request: [
      "POST {p}/api/chat",
      "Host: {h}",
      AUTH,
      "Transfer-Encoding: chunked",
      "Content-Length: 5",
      "",
      "0\r\n\r\n",
    ],
    status: [400, 422],
  },
  {
    name: "a huge length",
    request: ["POST {p}/api/chat", "Host: {h}", AUTH, "Content-Length: 99999999999", "", "{"],
    status: 413,
  },
  ...paths.map((path) => ({
    name: `the path ${path}`,
    request: [`GET {p}${path}`, "Host: {h}"],
    status: [400, 401, 404],
  })),
  ...paths.map((path) => ({
    name: `the path ${path} of a foreign host`,
    request: [`GET {p}${path}`, "Host: evil.test", AUTH],
    status: [400, 403, 404],
  })),
];

function toBytes({ request }: Attack, { port, prefix }: Mount): string {
  const blank = request.indexOf("");
  const [line = "", ...headers] = blank < 0 ? request : request.slice(0, blank);
  const close = request.some((header) => header.startsWith("Connection:")) ? [] : ["Connection: close"];
  const head = [`${line} HTTP/1.1`, ...headers, ...close].join("\r\n");
  const body = blank < 0 ? "" : request.slice(blank + 1).join("");
  return `${head}\r\n\r\n${body}`.replaceAll("{p}", prefix).replaceAll("{h}", `127.0.0.1:${port}`);
}

describe("every mount refuses the same attacks", () => {
  const mounts: Mount[] = [];
  const lines: GatewayLogLine[] = [];
  const left: string[] = [];
  let done = Promise.withResolvers<void>();
  const over = Promise.withResolvers<void>();
  let world: Promise<void>;

  before(async () => {
    const ready = Promise.withResolvers<void>();
    world = withWorld(async (started) => {
      const own = await started.gateway({ config: CONFIG, environment: { POSTERN_TOKEN: TOKEN } });
      mounts.push({ name: "postern gateway", port: own.port, prefix: "" });
      const folder = await started.folder();
      const gateway = await createGateway({
        dataDir: join(folder, "data"),
        workspace: folder,
        basePath: "/agent",
        config: CONFIG,
        environment: { POSTERN_TOKEN: TOKEN },
        onLog: (line) => void lines.push(line),
        providers: {
          slow: {
            models: ["one"],
            async *stream(_request, { signal }) {
              yield { type: "text_delta", delta: "word" };
              await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
              left.push("left");
              done.resolve();
            },
          },
        },
      });
      started.onEnd(() => gateway.close());
      mounts.push(...await mountInNode(gateway, started), await mountInSrvx(gateway, started));
      mounts.push(...mountInDeno(gateway, started));
      ready.resolve();
      await over.promise;
    });
    await Promise.race([ready.promise, world]);
  });
  after(async () => {
    over.resolve();
    await world;
  });

  for (const attack of ATTACKS) {
    test(attack.name, async () => {
      for (const mount of mounts) {
        const raw = await openRawSocket(mount.port);
        raw.write(toBytes(attack, mount));
        const answer = lastAnswer(await raw.read(/\}\}/)); // the end of a refusal; a server beneath closes
        raw.destroy();
        const statuses = typeof attack.status === "number" ? [attack.status] : attack.status;
        assert.ok(statuses.includes(answer.status), `${mount.name}: ${answer.status}\n${answer.headers}`);
        if (attack.code !== undefined) assert.equal(answer.code, attack.code, mount.name);
        assert.doesNotMatch(answer.headers, /access-control-allow-origin/, mount.name);
      }
    });
  }

  test("a path that is not plain is refused with a token too, where the server hands it over as it came", async () => {
    for (const mount of mounts.filter(({ name }) => ["node:http", "Express"].includes(name))) {
      for (const path of paths) {
        const request = [`GET {p}${path}`, "Host: {h}", AUTH];
        const raw = await openRawSocket(mount.port);
        raw.write(toBytes({ name: path, request, status: 400 }, mount));
        const { status } = lastAnswer(await raw.closed());
        raw.destroy();
        assert.ok(status === 400 || status === 404, `${mount.name}: ${status} for ${path}`);
      }
    }
  });

  test("the peer in the log is the socket's, whatever the headers say", () => {
    const peers = lines.filter(({ message }) => message === "Request").map(({ fields }) => fields["remote_address"]);
    assert.ok(peers.length > mounts.length * 10);
    const known = new Set<unknown>(["127.0.0.1", "::ffff:127.0.0.1"]);
    assert.deepEqual(peers.filter((peer) => !known.has(peer)), []);
  });

  test("a client that leaves a stream ends the work behind it", async () => {
    const body = '{"model":"slow/one","stream":true,"messages":[{"role":"user","content":"Hi"}]}';
    for (const { name, port, prefix } of mounts.slice(1)) {
      done = Promise.withResolvers();
      const raw = await openRawSocket(port);
      raw.write(
        `POST ${prefix}/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n${AUTH}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      const begun = await raw.read(/word/);
      assert.match(begun, /^HTTP\/1\.1 200[\s\S]*text\/event-stream/i, name);
      raw.destroy();
      await done.promise;
    }
    assert.equal(left.length, mounts.length - 1);
  });
});
