import assert from "node:assert/strict";
import { test } from "node:test";
import { toFetchHandler } from "../../handlers/fetch_handler.ts";
import { jsonOf } from "../support/json_of.ts";

/** A gateway that tells what reached it. */
function createEcho() {
  let closed = 0;
  return {
    fetch: (request: Request, { remoteAddress }: { readonly remoteAddress?: string | undefined }) =>
      Promise.resolve(Response.json([request.method, request.url, remoteAddress ?? null])),
    close: () => Promise.resolve(void closed++),
    closed: () => closed,
  };
}

const ADDRESS = "http://127.0.0.1:8080/agent/health";

test("the peer is the one that the server tells: Deno, Bun, srvx, or a caller of its own", async () => {
  const agent = toFetchHandler(createEcho());
  const peerOf = async (from?: unknown, more: object = {}) =>
    (await jsonOf(agent(Object.assign(new Request(ADDRESS), more), from)))[2];
  const bun = {
    address: "10.0.0.2",
    requestIP(request: Request) {
      return request.url === ADDRESS ? { address: this.address } : null;
    },
  };
  assert.equal(await peerOf({ remoteAddr: { hostname: "10.0.0.1" }, completed: Promise.resolve() }), "10.0.0.1");
  assert.equal(await peerOf(bun), "10.0.0.2");
  assert.equal(await peerOf({ remoteAddress: "10.0.0.3" }), "10.0.0.3");
  assert.equal(await peerOf(undefined, { ip: "10.0.0.4" }), "10.0.0.4");
  for (
    const unknown of [undefined, null, "10.0.0.5", { params: Promise.resolve({ path: [] }) }, { requestIP: () => null }]
  ) {
    assert.equal(await peerOf(unknown), null);
  }
  assert.equal(await peerOf({ remoteAddr: { transport: "unix", path: "/run/a.sock" } }), null);
});

test("the host is the one that the client named, and a Host header changes nothing else of the address", async () => {
  const agent = toFetchHandler(createEcho());
  const urlOf = async (host: string, init: RequestInit = {}) => {
    const request = new Request("http://localhost:3000/agent/health?x=1", { headers: { host }, ...init });
    return (await jsonOf(agent(request)))[1];
  };
  assert.equal(await urlOf("127.0.0.1:8080"), "http://127.0.0.1:8080/agent/health?x=1");
  assert.equal(await urlOf("shop.example"), "http://shop.example/agent/health?x=1");
  assert.equal(await urlOf("localhost:3000"), "http://localhost:3000/agent/health?x=1");
  for (const host of ["shop.example/v1/tokens", "shop.example?x", "shop.example#x"]) {
    assert.equal(await urlOf(host), "http://shop.example/agent/health?x=1", host);
  }
  assert.equal(await urlOf("a b"), "http://localhost/agent/health?x=1");
});

test("no reply is compressed: the server does that, and may leave the name of the coding out", async () => {
  const { promise: taken, resolve: take } = Promise.withResolvers<Request>();
  const agent = toFetchHandler({
    fetch: (request: Request) => Promise.resolve(take(request)).then(() => new Response()),
    close: () => Promise.resolve(),
  });
  const request = new Request(ADDRESS, { headers: { "accept-encoding": "gzip", "x-mine": "kept" } });
  await agent(request);
  const { headers, url } = await taken;
  assert.deepEqual([headers.get("accept-encoding"), headers.get("x-mine"), url], [null, "kept", ADDRESS]);
  assert.equal(request.headers.get("accept-encoding"), "gzip");
});

test("a request with a body reaches the gateway whole, and its signal aborts when the client leaves", async () => {
  const { promise: taken, resolve: take } = Promise.withResolvers<Request>();
  const agent = toFetchHandler({
    fetch: (request: Request) => Promise.resolve(take(request)).then(() => new Response()),
    close: () => Promise.resolve(),
  });
  const leaving = new AbortController();
  const headers = { host: "127.0.0.1:8080", "content-type": "text/plain" };
  await agent(
    new Request("http://localhost/agent", { method: "POST", headers, body: "Hello", signal: leaving.signal }),
  );
  const request = await taken;
  assert.deepEqual([request.method, await request.text(), request.signal.aborted], ["POST", "Hello", false]);
  leaving.abort();
  assert.equal(request.signal.aborted, true);
});

test("the gateway is made once, at the first request, and a failed start is forgotten", async () => {
  const echo = createEcho();
  const starts: ((gateway: typeof echo) => void)[] = [];
  const failures: ((error: Error) => void)[] = [];
  const agent = toFetchHandler(() => {
    const { promise, resolve, reject } = Promise.withResolvers<typeof echo>();
    starts.push(resolve);
    failures.push(reject);
    return promise;
  });
  assert.equal(starts.length, 0);
  const refused = assert.rejects(agent(new Request(ADDRESS)), /The folder is missing/);
  failures[0]?.(new Error("The folder is missing"));
  await refused;
  const replies = Promise.all([agent(new Request(ADDRESS)), agent(new Request(ADDRESS)), agent.gateway()]);
  assert.equal(starts.length, 2);
  starts[1]?.(echo);
  const [one, other, gateway] = await replies;
  assert.deepEqual([one.status, other.status, gateway], [200, 200, echo]);
  await agent.close();
  assert.equal(echo.closed(), 1);
});

test("close() closes a gateway that was given or is still starting, and nothing starts one afterwards", async () => {
  const given = createEcho();
  await toFetchHandler(given).close();
  assert.equal(given.closed(), 1);

  const starting = createEcho();
  const { promise, resolve } = Promise.withResolvers<typeof starting>();
  const late = toFetchHandler(() => promise);
  const reply = late(new Request(ADDRESS));
  const closing = late.close();
  resolve(starting);
  await Promise.all([reply, closing]);
  assert.equal(starting.closed(), 1);

  let starts = 0;
  const unused = toFetchHandler(() => Promise.resolve(createEcho()).finally(() => starts++));
  await unused.close();
  await assert.rejects(unused(new Request(ADDRESS)), /closed/);
  assert.equal(starts, 0);
});
