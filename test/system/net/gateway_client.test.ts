import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import { test } from "node:test";
import { type Clock, systemClock } from "../../../lib/base/clock.ts";
import { createGatewayClient, type GatewayClient } from "../../../lib/system/net/gateway_client.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { until } from "../../support/until.ts";

async function withServer(
  listener: RequestListener,
  use: (client: GatewayClient) => Promise<void>,
  { timeoutMs = 30_000, clock = systemClock }: { readonly timeoutMs?: number; readonly clock?: Clock } = {},
): Promise<void> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // A server that listens on TCP has an address of this shape
  const { port } = server.address() as { port: number };
  try {
    await use(
      createGatewayClient({ address: `http://127.0.0.1:${port}/`, token: "secret", clock, timeoutMs }),
    );
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test("a request carries the token and its body, and gives status and JSON", () =>
  withServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      response.statusCode = 201;
      response.end(
        JSON.stringify({
          method: request.method,
          url: request.url,
          token: request.headers.authorization,
          body: JSON.parse(body),
        }),
      );
    });
  }, async (client) => {
    assert.deepEqual(await client.request({ method: "POST", path: "/v1/x?y=1", body: { a: "ü" } }), {
      status: 201,
      body: { method: "POST", url: "/v1/x?y=1", token: "Bearer secret", body: { a: "ü" } },
    });
  }));

test("an empty reply has no body", () =>
  withServer((_request, response) => void response.end(), async (client) => {
    assert.deepEqual(await client.request({ method: "GET", path: "/" }), { status: 200, body: undefined });
  }));

test("garbage, a reply cut short, and a refused connection are errors of the client", async () => {
  await withServer((_request, response) => void response.end("<html>"), async (client) => {
    await assert.rejects(client.request({ method: "GET", path: "/" }), {
      name: "GatewayClientError",
      message: /not JSON/,
    });
  });
  await withServer((_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("{", () => response.destroy());
  }, async (client) => {
    await assert.rejects(client.request({ method: "GET", path: "/" }), { name: "GatewayClientError" });
  });
  const client = createGatewayClient({ address: "http://127.0.0.1:1/", token: "t", clock: systemClock });
  await assert.rejects(client.request({ method: "GET", path: "/" }), {
    name: "GatewayClientError",
    message: /http:\/\/127\.0\.0\.1:1\//,
  });
  await assert.rejects(client.openSocket("/ws/chat"), { name: "GatewayClientError" });
});

test("a server that does not answer is given up after the time limit, and at once on abort", () =>
  withServer(() => {}, async (client) => {
    const message =
      /^Cannot reach the gateway at http:\/\/127\.0\.0\.1:\d+\/: it gave no answer in 0\.05 s; try again$/;
    const late = { name: "CancelError", reason: "timeout", message };
    await assert.rejects(client.request({ method: "GET", path: "/" }), late);
    await assert.rejects(client.stream({ method: "GET", path: "/" }), late);
    const stop = new AbortController();
    stop.abort();
    await assert.rejects(client.request({ method: "GET", path: "/", signal: stop.signal }), {
      name: "CancelError",
      reason: "cancelled",
    });
  }, { timeoutMs: 50 }));

test("a stream that has begun has no time limit", async () => {
  const clock = createFakeClock();
  await withServer((_request, response) => void response.write("one"), async (client) => {
    const { body } = await client.stream({ method: "GET", path: "/" });
    assert.equal(clock.pending(), 0);
    await clock.advance(1_000_000);
    for await (const part of body) {
      assert.equal(Buffer.from(part).toString(), "one");
      break;
    }
  }, { clock });
});

test("a stream gives its reply piece by piece, is left by its reader, and breaks as an error", () => {
  let left = 0;
  return withServer((request, response) => {
    response.on("close", () => left++);
    response.writeHead(request.url === "/refused" ? 404 : 200);
    response.write("one");
    if (request.url === "/broken") setImmediate(() => response.destroy());
    if (request.url === "/refused") response.end();
  }, async (client) => {
    const refused = await client.stream({ method: "GET", path: "/refused" });
    assert.deepEqual([refused.status, Buffer.concat(await Array.fromAsync(refused.body)).toString()], [404, "one"]);
    const { body } = await client.stream({ method: "GET", path: "/endless" });
    for await (const part of body) {
      assert.equal(Buffer.from(part).toString(), "one");
      break;
    }
    await until(() => left >= 2);
    const broken = await client.stream({ method: "GET", path: "/broken" });
    await assert.rejects(Array.fromAsync(broken.body), { name: "GatewayClientError" });
    const controller = new AbortController();
    const aborted = await client.stream({ method: "GET", path: "/endless", signal: controller.signal });
    setImmediate(() => controller.abort());
    await assert.rejects(Array.fromAsync(aborted.body), { name: "CancelError" });
  });
});
