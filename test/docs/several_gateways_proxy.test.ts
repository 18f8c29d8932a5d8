import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { freePort } from "../support/free_port.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const skip = spawnSync("nginx", ["-v"]).status !== 0 && "no nginx: install Debian's package nginx-light";

/** Server in the place of a gateway, with the requests that it has seen. */
interface Gateway {
  readonly name: string;
  readonly port: number;
  readonly seen: string[];
  /** Status of its next answers. */
  status: number;
  readonly server: Server;
}

async function startGateway(name: string): Promise<Gateway> {
  const answer = (incoming: IncomingMessage, response: ServerResponse) => {
    gateway.seen.push(`${incoming.method} ${incoming.url} ${incoming.headers.host}`);
    response.writeHead(gateway.status, { "content-type": "text/plain", "x-gateway": name });
    if (incoming.url !== "/stream") return void response.end(name);
    response.write("first");
    incoming.on("close", () => gateway.seen.push("closed"));
  };
  const server = createServer(answer);
  server.on("upgrade", (incoming, socket) => {
    gateway.seen.push(`upgrade ${incoming.url} ${incoming.headers.upgrade}`);
    socket.end("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nframes");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const gateway: Gateway = { name, port: (server.address() as AddressInfo).port, seen: [], status: 200, server };
  return gateway;
}

/** Runs `use` with two servers and nginx before them, as the file for several gateways has it. */
async function withProxy(use: (url: string, gateways: readonly Gateway[]) => Promise<void>): Promise<void> {
  const gateways = [await startGateway("gateway-1"), await startGateway("gateway-2")];
  const port = await freePort();
  await withTemporaryFolder(async (folder) => {
    let text = readFileSync(join(PROJECT_ROOT, "docs/several_gateways/nginx.conf"), "utf8");
    for (const { name, port } of gateways) text = text.replace(`${name}:42617`, `127.0.0.1:${port}`);
    text = text.replaceAll("fail_timeout=5s", "fail_timeout=1s").replace("listen 8080;", `listen 127.0.0.1:${port};`);
    writeFileSync(join(folder, "gateways.conf"), text);
    const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((kind) =>
      `${kind}_temp_path ${folder}/${kind};`
    );
    writeFileSync(
      join(folder, "nginx.conf"),
      `daemon off; master_process off; pid ${folder}/pid; error_log stderr; events {}
http { access_log off; ${paths.join(" ")} include ${folder}/gateways.conf; }`,
    );
    const words = ["-p", folder, "-c", join(folder, "nginx.conf")];
    const checked = spawnSync("nginx", ["-t", ...words], { encoding: "utf8" });
    assert.equal(checked.status, 0, checked.stderr);
    assert.doesNotMatch(checked.stderr, /\[(warn|emerg)\]/);
    const proxy = spawn("nginx", words, { stdio: ["ignore", "ignore", "pipe"] });
    const ended = once(proxy, "close");
    try {
      const url = `http://127.0.0.1:${port}`;
      await until(() => fetch(url).then((reply) => reply.text()).then(() => true, () => false), "nginx never answered");
      await use(url, gateways);
    } finally {
      proxy.kill();
      await ended;
    }
  });
  for (const { server } of gateways) {
    server.closeAllConnections();
    server.close();
  }
}

describe("the proxy before several gateways", { skip }, () => {
  test("takes a gateway out, keeps names, passes streams and WebSockets on, and hides what is not public", () =>
    withProxy(async (url, [one, two]) => {
      assert.ok(one !== undefined && two !== undefined);
      const get = async (path: string, init?: RequestInit) => {
        const reply = await fetch(`${url}${path}`, init);
        return [reply.status, await reply.text()] as const;
      };
      for (const path of ["/metrics", "/v1/cluster/runs/run_1/events", "/v1/cluster/gateways/gw_1/drain"]) {
        assert.equal((await get(path))[0], 404, path);
      }
      for (const gateway of [one, two]) assert.deepEqual(gateway.seen.filter((seen) => !seen.startsWith("GET / ")), []);
      assert.equal((await get("/v1/models"))[0], 200);
      assert.ok([...one.seen, ...two.seen].includes(`GET /v1/models ${new URL(url).host}`));

      const stream = await fetch(`${url}/stream`);
      const reader = stream.body?.getReader();
      assert.equal(new TextDecoder().decode((await reader?.read())?.value), "first");
      await reader?.cancel();
      await until(
        () => [...one.seen, ...two.seen].includes("closed"),
        "the gateway never heard that the client has gone",
      );

      const handshake = request(`${url}/ws/chat`, { headers: { connection: "Upgrade", upgrade: "websocket" } });
      handshake.end();
      const [answer, socket, head] = await once(handshake, "upgrade") as [IncomingMessage, { destroy(): void }, Buffer];
      assert.equal(answer.statusCode, 101);
      socket.destroy();
      assert.ok(head.length >= 0 && [...one.seen, ...two.seen].includes("upgrade /ws/chat websocket"));

      // A drained gateway is asked once, and for requests that change nothing another one answers
      two.status = 503;
      for (let number = 0; number < 4; number++) assert.deepEqual(await get("/v1/runs"), [200, "gateway-1"]);
      one.seen.length = two.seen.length = 0;
      for (let number = 0; number < 4; number++) {
        const [status] = await get("/v1/runs", { method: "POST", body: "{}" });
        assert.ok(status === 200 || two.seen.length === 1, `POST ${number}: ${status}`);
      }
      assert.equal(one.seen.length + two.seen.length, 4, "a request that changes something was sent twice");

      one.server.closeAllConnections();
      one.server.close();
      two.status = 200;
      await until(async () => (await get("/v1/runs", { method: "POST", body: "{}" }))[1] === "gateway-2");
    }));
});
