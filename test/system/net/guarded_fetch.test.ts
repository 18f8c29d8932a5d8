import assert from "node:assert/strict";
import { createServer } from "node:http";
import { connect, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { describe, test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { withEffectRight } from "../../../lib/base/effect_right.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import { createGuardedFetch } from "../../../lib/system/net/guarded_fetch.ts";
import { createUrlPolicy } from "../../../lib/system/net/url_policy.ts";
import { fetchSetUp, fetchSites, LOCAL, skipTls, STRICT, textOf, withCertificate } from "../../support/fetch_bench.ts";
import { freePort } from "../../support/free_port.ts";
import { until } from "../../support/until.ts";

const { open, site } = fetchSites();

describe("guarded_fetch", () => {
  test("sends method, headers and body, and gives status, headers and body", async () => {
    const place = await site((_request, response) => {
      response.writeHead(201, { "x-one": "1", "set-cookie": ["a=1", "b=2"] });
      response.end("Grüezi");
    });
    const { get } = fetchSetUp();
    const reply = await get(`${place.origin}/a?b=c`, {
      method: "POST",
      headers: () => ({ "X-Mine": "yes", "content-type": "text/plain" }),
      body: "Hällo",
    });
    assert.deepEqual([reply.status, reply.headers["x-one"], textOf(reply.body)], [201, "1", "Grüezi"]);
    assert.deepEqual([reply.truncated, reply.url], [false, `${place.origin}/a?b=c`]);
    const [seen] = place.seen;
    assert.deepEqual([seen?.method, seen?.path, seen?.body], ["POST", "/a?b=c", "Hällo"]);
    assert.equal(seen?.headers["x-mine"], "yes");
    assert.equal(seen?.headers["content-length"], "6");
    assert.equal(seen?.headers["user-agent"], "postern/test");
    assert.equal(seen?.headers.host, `127.0.0.1:${place.port}`);
  });

  test("a request that loses its right to effects sends nothing, and leaves no connection open", async () => {
    const closed = Promise.withResolvers<number>();
    const server = createServer();
    server.on("connection", (socket) => {
      let bytes = 0;
      socket.on("data", (part) => bytes += part.length);
      socket.on("close", () => closed.resolve(bytes));
    });
    const port = await freePort();
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    try {
      const right = { mayAct: () => Promise.reject(new CancelError("shutdown")), mayActNow: () => false };
      const asked = withEffectRight({ right }, () => fetchSetUp().get(`http://127.0.0.1:${port}/`, { method: "POST" }));
      await assert.rejects(asked, { name: "CancelError", reason: "shutdown" });
      assert.equal(await closed.promise, 0);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });

  test("a request whose server leaves while it waits for its right to effects fails, and gives its place at the host back", async () => {
    const server = createServer((_request, response) => response.end("reached"));
    const sockets: Socket[] = [];
    server.on("connection", (socket) => sockets.push(socket));
    const port = await freePort();
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    try {
      const { get } = fetchSetUp();
      const right = {
        async mayAct() {
          await until(() => sockets.length > 0);
          sockets.pop()?.destroy();
          // The client hears of it in the same moment or in the next
          await systemClock.sleep(50);
        },
        mayActNow: () => false,
      };
      const lost = () => withEffectRight({ right }, () => get(`http://127.0.0.1:${port}/`, { method: "POST" }));
      // Three requests, where two may be open at once to a host: none of them may keep its place
      for (let count = 0; count < 3; count++) {
        await assert.rejects(lost(), { name: "ToolError", code: "fetch_failed" });
      }
      assert.equal(textOf((await get(`http://127.0.0.1:${port}/`)).body), "reached");
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });

  test("connects to the address that was checked, whatever the name means a moment later", async () => {
    const port = await freePort();
    const checked = await site((_request, response) => response.end("checked"), { host: "127.0.0.2", port });
    const rebound = await site((_request, response) => response.end("rebound"), { port });
    const { get, lookups } = fetchSetUp({ names: { "rebind.test": [["127.0.0.2"], ["127.0.0.1"]] } });
    const reply = await get(`http://rebind.test:${checked.port}/`);
    assert.equal(textOf(reply.body), "checked");
    assert.deepEqual([lookups, rebound.seen.length], [["rebind.test"], 0]);
    assert.equal(checked.seen[0]?.headers.host, `rebind.test:${checked.port}`);
  });

  test("refuses a name one of whose addresses is private, and a redirect to one, before anything is sent", async () => {
    const inside = await site((_request, response) => response.end("secret"));
    const outside = await site((request, response) => {
      const to = request.url === "/name" ? `http://inside.test:${inside.port}/` : `http://10.0.0.1:${inside.port}/`;
      response.writeHead(302, { location: to }).end();
    });
    const { refusal } = fetchSetUp({
      names: { "mixed.test": [["93.184.216.34", "127.0.0.1"]], "inside.test": [["10.1.1.1"]] },
    });
    assert.equal(await refusal(`http://mixed.test:${inside.port}/`, { guard: { rules: STRICT } }), "url_private");
    assert.equal(await refusal(`${inside.origin}/`, { guard: { rules: STRICT } }), "url_private");
    assert.equal(await refusal(`${outside.origin}/name`), "url_private");
    assert.equal(await refusal(`${outside.origin}/address`), "url_private");
    assert.equal(inside.seen.length, 0);
  });

  test("checks lists at every redirect: the blocklist, the allowlist, the tool's own hosts", async () => {
    const target = await site((_request, response) => response.end("reached"));
    const start = await site((_request, response) =>
      response.writeHead(301, { location: `http://second.test:${target.port}/` }).end()
    );
    const names = { "first.test": [["127.0.0.1"]], "second.test": [["127.0.0.1"]] };
    const { refusal, get } = fetchSetUp({ names });
    const url = `http://first.test:${start.port}/`;
    assert.equal(textOf((await get(url)).body), "reached");
    const rules = { ...LOCAL, enforce_domain_allowlist: true, domain_allowlist: ["first.test"] };
    assert.equal(await refusal(url, { guard: { rules } }), "url_not_allowed");
    assert.equal(
      await refusal(url, { guard: { rules: { ...LOCAL, domain_blocklist: ["second.test"] } } }),
      "url_blocked",
    );
    const allowed = { entries: ["first.test"], key: "[http_request] allowed_domains" };
    assert.equal(await refusal(url, { guard: { allowed } }), "url_not_allowed");
    assert.equal(await refusal(url, { guard: { allowed: { ...allowed, entries: [] } } }), "url_not_allowed");
    assert.equal((await get(url, { guard: { allowed: { ...allowed, entries: ["*"] } } })).status, 200);
    assert.equal(target.seen.length, 2);
  });

  test("trusts the operator's own address, and not what it redirects to", async () => {
    const receiver = await site((request, response) => {
      if (request.url !== "/away") return void response.end("taken");
      response.writeHead(307, { location: `http://127.0.0.1:${receiver.port}/` }).end();
    });
    const { get, refusal } = fetchSetUp();
    const changes = { method: "POST", body: "{}", guard: { rules: STRICT, fromConfig: true } } as const;
    assert.equal(textOf((await get(`${receiver.origin}/`, changes)).body), "taken");
    assert.equal(await refusal(`${receiver.origin}/away`, changes), "url_private");
    const listed = { ...STRICT, enforce_domain_allowlist: true };
    assert.equal(
      textOf((await get(`${receiver.origin}/listed`, { ...changes, guard: { rules: listed, fromConfig: true } })).body),
      "taken",
    );
    const blocking = { ...STRICT, domain_blocklist: ["127.0.0.1"] };
    assert.equal(
      await refusal(`${receiver.origin}/`, { ...changes, guard: { rules: blocking, fromConfig: true } }),
      "url_blocked",
    );
    assert.deepEqual(receiver.seen.map((seen) => seen.path), ["/", "/away", "/listed"]);
  });

  test("asks for headers at each step, so that a credential does not follow a redirect to another host", async () => {
    const other = await site((_request, response) => response.end());
    const home = await site((_request, response) => response.writeHead(302, { location: `${other.origin}/` }).end());
    const { get } = fetchSetUp();
    const headers = (url: URL): Record<string, string> =>
      url.origin === home.origin ? { authorization: "Bearer key" } : {};
    await get(`http://me:pa%20ss@127.0.0.1:${home.port}/`, { headers: () => ({}) });
    await get(`${home.origin}/`, { headers });
    const sent = [...home.seen, ...other.seen].map((seen) => seen.headers.authorization);
    assert.deepEqual(sent, [`Basic ${btoa("me:pa ss")}`, "Bearer key", undefined, undefined]);
  });

  test("turns POST into GET where the standard says so, or hands the redirect back", async () => {
    const place = await site((request, response) => {
      const status = Number(request.url?.slice(1));
      if (status > 0) response.writeHead(status, { location: "/done" });
      response.end();
    });
    const { get } = fetchSetUp();
    const post = { method: "POST", body: "x" } as const;
    for (const status of [301, 302, 303, 307, 308]) await get(`${place.origin}/${status}`, post);
    const landed = place.seen.filter((seen) => seen.path === "/done").map((seen) => `${seen.method} ${seen.body}`);
    assert.deepEqual(landed, ["GET ", "GET ", "GET ", "POST x", "POST x"]);
    assert.equal((await get(`${place.origin}/302`, { ...post, redirects: "keep_method" })).status, 302);
    assert.equal((await get(`${place.origin}/308`, { ...post, redirects: "keep_method" })).status, 200);
  });

  test(
    "a body that was sent over TLS never follows a redirect to plain HTTP",
    { skip: skipTls },
    () =>
      withCertificate(async (tls) => {
        const plain = await site((_request, response) => response.end("plain"));
        const secure = await site((request, response) => {
          const [, status, to] = (request.url ?? "").split("/");
          if (status === "done") return void response.end("secure");
          response.writeHead(Number(status), { location: to === "plain" ? `${plain.origin}/` : "/done" }).end();
        }, { tls });
        const { get, refusal } = fetchSetUp({ names: { "secure.test": [["127.0.0.1"]] } });
        const at = (path: string) => `https://secure.test:${secure.port}/${path}`;
        const post = { method: "POST", body: "a secret" } as const;
        for (const status of [307, 308]) {
          assert.equal(await refusal(at(`${status}/plain`), post), "fetch_redirects");
          assert.equal(await refusal(at(`${status}/plain`), { ...post, body: "" }), "fetch_redirects");
          assert.equal(textOf((await get(at(`${status}/secure`), post)).body), "secure");
        }
        assert.equal(plain.seen.length, 0);
        // No body goes along with these
        assert.equal(textOf((await get(at("302/plain"), post)).body), "plain");
        assert.equal(textOf((await get(at("307/plain"))).body), "plain");
        assert.deepEqual(plain.seen.map(({ method, body }) => [method, body]), [["GET", ""], ["GET", ""]]);
      }),
  );

  test("gives up a circle of redirects, and one to another scheme or to nothing", async () => {
    const locations: Readonly<Record<string, string>> = { "/file": "file:///etc/passwd", "/bad": "http://[", "/": "/" };
    const place = await site((request, response) =>
      response.writeHead(302, { location: locations[request.url ?? ""] ?? "/" }).end()
    );
    const { refusal } = fetchSetUp();
    assert.equal(await refusal(`${place.origin}/`), "fetch_redirects");
    assert.equal(place.seen.length, 6);
    assert.equal(await refusal(`${place.origin}/file`), "url_scheme");
    assert.equal(await refusal(`${place.origin}/bad`), "fetch_redirects");
  });

  test("cuts a reply that is too long, also one that never ends, and leaves the connection", async () => {
    let left = () => {};
    const gone = new Promise<void>((resolve) => (left = resolve));
    const place = await site((_request, response) => {
      response.on("close", left);
      const write = () => {
        while (!response.destroyed && response.write("x".repeat(65_536)));
      };
      response.on("drain", write);
      write();
    });
    const { get } = fetchSetUp();
    const reply = await get(`${place.origin}/`, { maxBytes: 1000 });
    assert.deepEqual([reply.body.length, reply.truncated], [1000, true]);
    await gone;
  });

  test("ends a slow reply, a silent server and a hanging look-up at the time limit", async () => {
    const drip = await site((_request, response) => {
      const timer = setInterval(() => response.write("."), 10);
      response.on("close", () => clearInterval(timer));
    });
    const silent = await site(() => {});
    const { refusal } = fetchSetUp();
    for (const { origin } of [drip, silent]) assert.equal(await refusal(origin, { timeoutMs: 60 }), "fetch_timeout");
    const hanging = createGuardedFetch({
      policy: createUrlPolicy({ lookup: () => new Promise(() => {}) }),
      clock: systemClock,
      userAgent: "postern/test",
    });
    const { signal } = new AbortController();
    const request = {
      method: "GET",
      url: "http://slow.test/",
      guard: { rules: LOCAL },
      maxBytes: 1,
      timeoutMs: 30,
      signal,
    } as const;
    await assert.rejects(hanging(request), (error) => error instanceof ToolError && error.code === "fetch_timeout");
  });

  test("ends when its signal aborts, with the signal's reason", async () => {
    const silent = await site(() => controller.abort(new CancelError("client_gone")));
    const controller = new AbortController();
    const { get } = fetchSetUp();
    await assert.rejects(
      get(silent.origin, { signal: controller.signal }),
      (error) => error instanceof CancelError && error.reason === "client_gone",
    );
  });

  test("tells of a server that switches protocols unasked", async () => {
    const place = await site((request) => {
      request.socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    });
    const { refusal } = fetchSetUp();
    assert.equal(await refusal(`${place.origin}/`), "fetch_failed");
  });

  test("tells a broken connection and a refused one as what they are", async () => {
    const place = await site((_request, response) => {
      response.writeHead(200, { "content-length": "100" });
      response.write("half");
      setTimeout(() => response.destroy(), 5);
    });
    const { refusal } = fetchSetUp();
    assert.equal(await refusal(`${place.origin}/half`), "fetch_failed");
    assert.equal(await refusal("http://127.0.0.1:1/"), "fetch_failed");
  });

  test("refuses the gateway's own address in every spelling, save for what anyone may read", async () => {
    const gateway = await site((_request, response) => response.end("mine"));
    const other = await site((_request, response) =>
      response.writeHead(302, { location: `${gateway.origin}/v1/tokens` }).end()
    );
    const { refusal, get } = fetchSetUp({
      names: { "mine.test": [["127.0.0.1"]], "both.test": [["93.184.216.34", "127.0.0.1"]] },
      own: { port: gateway.port, publicPaths: ["/health"] },
    });
    const rules = { ...LOCAL, block_private_ip: false };
    const faces = Object.values(networkInterfaces()).flatMap((face) => face ?? []);
    const own = faces.map(({ address, family }) => family === "IPv6" ? `[${address.split("%")[0]}]` : address);
    const mapped = faces.filter(({ family }) => family === "IPv4").map(({ address }) => `[::ffff:${address}]`);
    const hosts = [
      ...["127.0.0.1", "mine.test", "127.0.0.2", "0x7f.1", "[::1]", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]"],
      ...[
        "[::127.0.0.1]",
        "[::ffff:0:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::1]",
        "both.test",
        ...own,
        ...mapped,
      ],
    ];
    for (const host of hosts) {
      assert.equal(
        await refusal(`http://${host}:${gateway.port}/v1/tokens`, { guard: { rules } }),
        "url_own_gateway",
        host,
      );
    }
    assert.equal(await refusal(`${gateway.origin}/health`, { method: "POST", body: "" }), "url_own_gateway");
    assert.equal(await refusal(`${gateway.origin}//health`), "url_own_gateway");
    assert.equal(await refusal(`${gateway.origin}/pair`, { guard: { fromConfig: true } }), "url_own_gateway");
    assert.equal(await refusal(`${other.origin}/`), "url_own_gateway");
    assert.equal(textOf((await get(`${gateway.origin}/health?x=1`)).body), "mine");
    assert.equal(gateway.seen.length, 1);
  });

  test("refuses the gateway's port in a public range, which the network may map to this machine", async () => {
    const { refusal } = fetchSetUp({
      names: { "mapped.test": [["198.18.0.9"]], "nat64.test": [["64:ff9b::7f00:1"]] },
      own: { port: 7, publicPaths: ["/health"] },
    });
    const rules = { ...STRICT, public_ranges: ["198.18.0.0/15", "64:ff9b::/96"] };
    for (const path of ["v1/tokens", "pair", "ws/chat", ""]) {
      assert.equal(await refusal(`http://mapped.test:7/${path}`, { guard: { rules } }), "url_own_gateway", path);
    }
    assert.equal(await refusal("http://nat64.test:7/pair", { guard: { rules } }), "url_private");
    assert.equal(await refusal("http://mapped.test:7/pair", { guard: { rules: STRICT } }), "url_private");
  });

  test("refuses headers that are the connection's own or would split a request in two", async () => {
    const place = await site((_request, response) => response.end());
    const { refusal } = fetchSetUp();
    const bad: readonly Record<string, string>[] = [
      ...["Host", "content-length", "Transfer-Encoding", "connection", "proxy-authorization"].map((name) => ({
        [name]: "1",
      })),
      { "x-a": "1\r\nx-b: 2" },
      { "x a": "1" },
      { "": "1" },
    ];
    for (const headers of bad) {
      assert.equal(
        await refusal(`${place.origin}/`, { headers: () => headers }),
        "fetch_failed",
        JSON.stringify(headers),
      );
    }
    assert.equal(place.seen.length, 0);
  });

  test("through a proxy, gives it the address that was checked, and keeps what is local from it", async () => {
    const place = await site((_request, response) => response.end("reached"), { host: "127.0.0.2" });
    const asked: string[] = [];
    const proxy = createServer((_request, response) => response.writeHead(400).end());
    proxy.on("connect", (request, socket, head) => {
      asked.push(`${request.url} ${request.headers["proxy-authorization"]}`);
      if (request.url?.startsWith("127.0.0.9")) return void socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
      const onward = connect(place.port, "127.0.0.2", () => {
        socket.write("HTTP/1.1 200 OK\r\n\r\n");
        onward.write(head);
        onward.pipe(socket);
        socket.pipe(onward);
      });
      for (const end of [onward, socket]) end.on("error", () => {});
    });
    const port = await open(proxy);
    const names = { "far.test": [["127.0.0.9", "127.0.0.2"]], "closed.test": [["127.0.0.9"]] };
    const { get, refusal } = fetchSetUp({
      names,
      proxy: { http: `http://me:pa%20ss@127.0.0.1:${port}`, https: "", no_proxy: ["near.test"] },
    });
    const reply = await get(`http://far.test:${place.port}/a`, { method: "POST", body: "hello" });
    assert.equal(textOf(reply.body), "reached");
    const pair = `Basic ${btoa("me:pa ss")}`;
    assert.deepEqual(asked, [`127.0.0.9:${place.port} ${pair}`, `127.0.0.2:${place.port} ${pair}`]);
    const [seen] = place.seen;
    assert.deepEqual([seen?.body, seen?.headers.host], ["hello", `far.test:${place.port}`]);
    assert.equal(seen?.headers["proxy-authorization"], undefined);
    assert.equal(await refusal(`http://closed.test:${place.port}/`), "fetch_failed");
    assert.equal(textOf((await get(`${place.origin}/`)).body), "reached");
    assert.equal(asked.length, 3);
  });

  test("with resolve = proxy the proxy gets the name, addresses are still checked, and the gateway's port stays closed", async () => {
    const place = await site((request, response) => {
      const to: Readonly<Record<string, string>> = { "/in": "http://10.0.0.1/", "/own": "http://other.test:7/pair" };
      const location = to[request.url ?? ""];
      response.writeHead(location === undefined ? 200 : 302, location === undefined ? {} : { location }).end("reached");
    });
    const asked: string[] = [];
    const proxy = createServer();
    proxy.on("connect", (request, socket) => {
      asked.push(request.url ?? "");
      const onward = connect(place.port, "127.0.0.1", () => {
        socket.write("HTTP/1.1 200 OK\r\n\r\n");
        onward.pipe(socket);
        socket.pipe(onward);
      });
      for (const end of [onward, socket]) end.on("error", () => {});
    });
    const settings = {
      http: `http://127.0.0.1:${await open(proxy)}`,
      https: "",
      no_proxy: ["near.test"],
      resolve: "proxy",
    } as const;
    const { get, refusal, lookups } = fetchSetUp({
      proxy: settings,
      names: { "near.test": [["10.0.0.1"]] },
      own: { port: 7, publicPaths: ["/health"] },
    });
    assert.equal(textOf((await get("http://far.test:81/", { guard: { rules: STRICT } })).body), "reached");
    assert.deepEqual([asked, lookups], [["far.test:81"], []]);
    assert.equal(await refusal("http://10.0.0.1/", { guard: { rules: STRICT } }), "url_private");
    assert.equal(await refusal("http://far.test:81/in", { guard: { rules: STRICT } }), "url_private");
    assert.equal(await refusal("http://near.test/", { guard: { rules: STRICT } }), "url_private");
    for (const path of ["pair", "v1/tokens", "ws/chat"]) {
      assert.equal(await refusal(`http://mine.test:7/${path}`, { guard: { rules: STRICT } }), "url_own_gateway");
    }
    assert.equal(await refusal("http://far.test:81/own", { guard: { rules: STRICT } }), "url_own_gateway");
    const blocked = { ...STRICT, enforce_domain_allowlist: true };
    assert.equal(await refusal("http://far.test:81/", { guard: { rules: blocked } }), "url_not_allowed");
    assert.deepEqual(asked, ["far.test:81", "far.test:81", "far.test:81"]);
  });

  test("through a proxy, TLS inside the tunnel is checked against the name, though the proxy gets an address", {
    skip: skipTls,
  }, () =>
    withCertificate(async (tls) => {
      const place = await site((_request, response) => response.end("secure"), { tls });
      const asked: string[] = [];
      const proxy = createServer();
      proxy.on("connect", (request, socket) => {
        asked.push(request.url ?? "");
        const onward = connect(place.port, "127.0.0.1", () => {
          socket.write("HTTP/1.1 200 OK\r\n\r\n");
          onward.pipe(socket);
          socket.pipe(onward);
        });
        for (const end of [onward, socket]) end.on("error", () => {});
      });
      const { get, failure } = fetchSetUp({
        names: { "secure.test": [["127.0.0.1"]], "other.test": [["127.0.0.1"]] },
        proxy: { http: "", https: `http://127.0.0.1:${await open(proxy)}`, no_proxy: [] },
      });
      assert.equal(textOf((await get("https://secure.test/")).body), "secure");
      assert.match((await failure("https://other.test/")).message, /"other\.test": the TLS connection failed/);
      assert.deepEqual(asked, ["127.0.0.1:443", "127.0.0.1:443"]);
    }));

  test("a proxy of an unknown kind is a failure that names the variable, and nothing goes out directly", async () => {
    const place = await site((_request, response) => response.end("direct"));
    const { failure } = fetchSetUp({
      names: { "far.test": [["127.0.0.1"]] },
      proxy: {
        http: "",
        https: "",
        no_proxy: [],
        environment: (name) => name === "HTTP_PROXY" ? "socks5://me:hunter2@p" : undefined,
      },
    });
    const { message } = await failure(`http://far.test:${place.port}/`);
    assert.match(message, /HTTP_PROXY names a proxy of the kind socks5:/);
    assert.doesNotMatch(message, /hunter2/);
    assert.equal(place.seen.length, 0);
  });

  test("names neither password nor query in a failure", async () => {
    const { get } = fetchSetUp();
    await assert.rejects(
      get("http://me:hunter2@127.0.0.1:1/?key=hunter2"),
      (error: Error) => !error.message.includes("hunter2"),
    );
  });
});
