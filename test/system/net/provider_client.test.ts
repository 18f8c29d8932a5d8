import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { type AddressInfo, connect, createServer } from "node:net";
import process from "node:process";
import { test, type TestContext } from "node:test";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import { createProviderClients } from "../../../lib/system/net/provider_client.ts";
import { chooseProxy, type ProxySettings } from "../../../lib/system/net/proxy_choice.ts";
import { until } from "../../support/until.ts";

const ON_DENO = "Deno" in globalThis;
const GET = { method: "GET", path: "/", headers: {}, signal: new AbortController().signal, timeoutMs: 60_000 } as const;

async function serve(t: TestContext, handle: Parameters<typeof startFakeServer>[0]) {
  const server = await startFakeServer(handle);
  t.after(() => server.close());
  return server;
}

function clientOf(t: TestContext, origin: string, proxy?: ProxySettings) {
  const client = createProviderClients({ clock: systemClock, proxy })({ provider: "up", origin });
  t.after(() => client.close());
  return client;
}

test(
  "of undici, the parts that connect are loaded, and not the whole",
  { skip: ON_DENO && "its cache is not Node's" },
  () => {
    // In a process of its own: other tests may have loaded the whole
    const client = new URL("../../../lib/system/net/provider_client.ts", import.meta.url);
    const script = `import { createRequire } from "node:module";
    await (await import(${JSON.stringify(client)})).loadHttpClient();
    console.log(Object.keys(createRequire(import.meta.url).cache).join("\\n"));`;
    const run = spawnSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" });
    const loaded = run.stdout.split("\n").filter((file) => file.includes("/node_modules/undici/"));
    assert.ok(loaded.some((file) => file.endsWith("/pool.js")), run.stderr);
    const whole = /\/undici\/(?:index\.js|lib\/(?:web|mock|cache|interceptor|api)\/)/;
    assert.deepEqual(loaded.filter((file) => whole.test(file)), []);
  },
);

test("a body above the limit of text() is cut, and its connection given up", async (t) => {
  const server = await serve(t, (_, response) => void response.write("x".repeat(3_000_000)));
  const exchange = await clientOf(t, server.origin).send(GET);
  const { text, cut } = await exchange.text(1000);
  assert.deepEqual([text.length, cut], [1000, true]);
  assert.equal((await server.requests[0]?.closed)?.complete, false);
});

test("a reply that nobody reads is not buffered without bound", async (t) => {
  let written = 0;
  const server = await serve(t, (_, response) => {
    const part = Buffer.alloc(65_536, "x");
    const write = () => {
      while (written < 64 * 1024 * 1024 && response.write(part)) written += part.length;
    };
    response.on("drain", write);
    write();
  });
  const exchange = await clientOf(t, server.origin).send(GET);
  let before = -1;
  for (let still = 0; still < 200; still = written === before ? still + 1 : 0) {
    before = written;
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(written < 32 * 1024 * 1024, `${written} bytes went out`);
  assert.ok((await exchange.read() ?? []).length > 0);
  exchange.release();
});

test("replies that break off give what came before, also those that wait for their turn", async (t) => {
  const server = await serve(t, (_, response) => {
    response.write("part", () => setImmediate(() => response.destroy()));
  });
  const client = clientOf(t, server.origin);
  await Promise.all(Array.from({ length: 60 }, async () => {
    const exchange = await client.send(GET);
    assert.equal(Buffer.from(await exchange.read() ?? []).toString(), "part");
    await assert.rejects(exchange.read(), ProviderError);
  }));
});

test("a server that closes its idle connections costs no request", async (t) => {
  let closed = 0;
  const server = await serve(t, (_, response) => {
    // After the reply the socket is not the response's any more
    const { socket } = response;
    // It closes once the client has closed too, and so has seen the end
    socket?.on("close", () => closed++);
    response.on("close", () => socket?.end());
    response.end("ok");
  });
  const client = clientOf(t, server.origin);
  for (let i = 1; i <= 5; i++) {
    const exchange = await client.send(GET);
    assert.equal((await exchange.text(10)).text, "ok");
    await until(() => closed === i);
    assert.equal(server.connections, i);
  }
});

test("a head that is too large is refused", async (t) => {
  const server = await serve(t, (_, response) => void response.setHeader("x-big", "y".repeat(100_000)).end("ok"));
  await assert.rejects(clientOf(t, server.origin).send(GET), (error) => error instanceof ProviderError);
});

test("an unknown host is named with the reason", async (t) => {
  const client = clientOf(t, "http://no-such-host.invalid");
  await assert.rejects(client.send(GET), (error) => {
    assert.ok(error instanceof ProviderError);
    assert.equal(error.code, "provider_error");
    assert.match(
      error.message,
      /^Cannot read from "http:\/\/no-such-host\.invalid": the (host name|network|connection)/,
    );
    return true;
  });
});

test("close() ends requests that are under way", async (t) => {
  const server = await serve(t, () => {});
  const client = clientOf(t, server.origin);
  const work = client.send(GET);
  const failed = assert.rejects(work, ProviderError);
  await until(() => server.requests.length > 0);
  await client.close();
  await failed;
});

const NO_PROXY: ProxySettings = { http: "", https: "", no_proxy: [] };

test("the proxy is chosen by protocol, never for loopback, and not for hosts of no_proxy", () => {
  const proxyOf = (settings: ProxySettings, origin: string) => chooseProxy(settings, new URL(origin)).proxy;
  const no_proxy = ["direct.test", "*.wild.test", ".dot.test"];
  const chosen = (origin: string) =>
    proxyOf({ http: "http://proxy:1", https: "http://proxy:2", no_proxy }, origin) ?? "direct";
  assert.equal(chosen("http://a.test"), "http://proxy:1");
  assert.equal(chosen("https://a.test"), "http://proxy:2");
  assert.equal(chosen("http://127.example"), "http://proxy:1", "a name is no address of this machine");
  for (const origin of ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "https://x.localhost"]) {
    assert.equal(chosen(origin), "direct", origin);
  }
  assert.equal(chosen("https://direct.test"), "direct");
  assert.equal(chosen("https://sub.direct.test"), "http://proxy:2");
  assert.equal(chosen("https://sub.wild.test"), "direct");
  assert.equal(chosen("https://wild.test"), "http://proxy:2");
  assert.equal(chosen("https://sub.dot.test"), "direct");
  assert.equal(proxyOf({ ...NO_PROXY, http: "http://proxy:1", no_proxy: ["*"] }, "http://a.test"), undefined);
  assert.equal(proxyOf(NO_PROXY, "https://a.test"), undefined);
});

test("requests go through the configured proxy", async (t) => {
  const upstream = await serve(t, (_, response) => void response.end("through the proxy"));
  const seen: string[] = [];
  // A proxy that sends every tunnel and every forwarded request to the upstream
  const proxy = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (head) => {
      const line = head.toString("latin1").split("\r\n")[0] ?? "";
      seen.push(line);
      const target = connect(Number(new URL(upstream.origin).port), "127.0.0.1", () => {
        if (line.startsWith("CONNECT")) socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
        else target.write(head);
        socket.pipe(target).pipe(socket);
      });
      target.on("error", () => socket.destroy());
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  t.after(() => proxy.close());
  // A listening TCP server has an address object
  const { port } = proxy.address() as AddressInfo;
  const client = clientOf(t, "http://api.example.test", { ...NO_PROXY, http: `http://127.0.0.1:${port}` });
  const exchange = await client.send(GET);
  assert.equal((await exchange.text(100)).text, "through the proxy");
  assert.match(seen[0] ?? "", /api\.example\.test/);

  const environment = (name: string) => name === "http_proxy" ? `127.0.0.1:${port}` : undefined;
  const byVariable = clientOf(t, "http://other.example.test", { ...NO_PROXY, environment });
  assert.equal((await (await byVariable.send(GET)).text(100)).text, "through the proxy");
  assert.match(seen[1] ?? "", /other\.example\.test/);
});

test("a proxy of an unknown kind is an error, never a direct way", async (t) => {
  const environment = (name: string) => name === "https_proxy" ? "socks5://127.0.0.1:1" : undefined;
  const client = clientOf(t, "https://api.example.test", { ...NO_PROXY, environment });
  await assert.rejects(client.send(GET), {
    code: "provider_error",
    message: /Cannot reach "up": https_proxy names a proxy of the kind socks5:/,
  });
});
