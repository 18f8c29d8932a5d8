import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { ENDPOINTS } from "../contract/endpoints.ts";
import { exchange, lastAnswer } from "../support/raw_socket.ts";
import { jsonOf, readRefusal, readSse, withWorld } from "../support/world.ts";

const HI = [{ role: "user", content: "Hi" }];
const isSocket = (path: string) => path.startsWith("/ws/");
const hasPromtool = spawnSync("promtool", ["--version"]).status === 0;

test("HEAD answers as GET does, without a body, and the connection stays in step", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => "ok" });
    const paths = ENDPOINTS.filter(([method, path]) => method === "GET" && !path.includes(":") && !isSocket(path));
    for (const [, path] of paths) {
      const get = await gateway.call(path);
      const bytes = (await get.arrayBuffer()).byteLength;
      const head = await gateway.call(path, { method: "HEAD" });
      assert.equal(await head.text(), "");
      assert.deepEqual(
        [head.status, head.headers.get("content-type")],
        [get.status, get.headers.get("content-type")],
        path,
      );
      assert.ok(bytes > 0);
    }
    const request = (method: string, more = "") =>
      `${method} /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n${more}\r\n`;
    const answer = await exchange(
      gateway.port,
      request("HEAD") + request("HEAD") + request("GET", "Connection: close\r\n"),
    );
    assert.equal(answer.match(/HTTP\/1\.1 200/g)?.length, 3);
    assert.equal(answer.match(/"ok":true/g)?.length, 1);
  }));

test("metrics of a closed set of labels stand at 0 from the start", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => "ok" });
    const text = await (await gateway.call("/metrics")).text();
    const atZero = [
      ...["completed", "failed", "cancelled", "needs_review"].map((status) => `runs_total{status="${status}"}`),
      ...["approved", "denied", "expired", "cancelled"].map((status) => `approvals_total{decision="${status}"}`),
    ];
    for (const series of atZero) assert.ok(text.includes(`\npostern_${series} 0\n`), series);
  }));

test("every route answers without a token as its access says", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => "ok", config: { gateway: { rate_limit_max: 0 } } });
    for (const [method, template, access] of ENDPOINTS) {
      const path = template.replace(/:\w+\+?/, "default");
      if (isSocket(path)) continue;
      const reply = await fetch(gateway.url + path, { method });
      if (access === "public") {
        // Answer links are off where nobody turned them on, and their page sends a form
        const status = path === "/answer" ? 415 : path.startsWith("/answer/") ? 404 : 200;
        assert.equal(reply.status, status, path);
        await reply.body?.cancel();
        continue;
      }
      const refusal = await readRefusal(reply);
      assert.deepEqual([refusal.status, refusal.type], [401, "authentication_error"], `${method} ${path}`);
      assert.equal(refusal.code, access === "pairing_code" ? "pairing_code_required" : "auth_required");
      assert.match(refusal.headers.get("www-authenticate") ?? "", /^Bearer/);
    }
  }));

test("a token reaches the routes of its scopes and no other", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => "ok", config: { gateway: { rate_limit_max: 0 } } });
    for (const scope of ["chat", "runs", "tools", "approve"]) {
      const { token } = await jsonOf(gateway.call("/v1/tokens", { body: { scopes: [scope] } }));
      for (const [method, template, access] of ENDPOINTS) {
        const path = template.replace(/:\w+\+?/, "default");
        if (access === "public" || access === "pairing_code" || isSocket(path)) continue;
        const headers = { authorization: `Bearer ${token}` };
        const reply = await gateway.call(path, { method, headers });
        if (access === scope) {
          assert.notEqual(reply.status, 403, `${scope}: ${method} ${path}`);
          await reply.text();
        } else assert.equal((await readRefusal(reply)).code, "insufficient_scope", `${scope}: ${method} ${path}`);
      }
    }
    const { token } = await jsonOf(gateway.call("/v1/tokens", { body: { scopes: ["chat"] } }));
    const [{ id }] = (await jsonOf(gateway.call("/v1/tokens"))).data;
    assert.equal((await gateway.call(`/v1/tokens/${id}`, { method: "DELETE" })).status, 200);
    const headers = { authorization: `Bearer ${token}` };
    assert.equal((await readRefusal(await gateway.call("/v1/models", { headers }))).code, "auth_invalid");
  }));

test("a preflight of an allowed origin is answered, and its replies may be read, errors and streams too", () =>
  withWorld(async (world) => {
    const origin = "https://app.example";
    const gateway = await world.gateway({ script: () => "ok", config: { gateway: { cors_origins: [origin] } } });
    const ask = (method: string, target: string, more: string, body = "") =>
      exchange(
        gateway.port,
        `${method} ${target} HTTP/1.1\r\nHost: 127.0.0.1:${gateway.port}\r\nOrigin: ${origin}\r\nSec-Fetch-Site: cross-site\r\nConnection: close\r\n${more}\r\n${body}`,
      );
    const preflight = lastAnswer(
      await ask("OPTIONS", "/v1/chat/completions", "Access-Control-Request-Method: POST\r\n"),
    );
    assert.equal(preflight.status, 204);
    assert.match(preflight.headers, /access-control-allow-origin: https:\/\/app\.example\r\n/);
    for (
      const name of [
        "authorization",
        "content-type",
        "x-pairing-code",
        "idempotency-key",
        "last-event-id",
        "x-request-id",
      ]
    ) {
      assert.match(preflight.headers, new RegExp(`access-control-allow-headers: .*${name}`));
    }
    const body = JSON.stringify({ messages: HI, stream: true });
    const post = (token: string) =>
      ask("POST", "/v1/chat/completions", `Authorization: Bearer ${token}\r\nContent-Length: ${body.length}\r\n`, body);
    for (const [token, status] of [[gateway.token, 200], ["wrong", 401]] as const) {
      const answer = lastAnswer(await post(token));
      assert.equal(answer.status, status);
      assert.match(answer.headers, /access-control-allow-origin: https:\/\/app\.example\r\n/);
      assert.match(answer.headers, /vary: .*origin/);
    }
    const missing = lastAnswer(await ask("GET", "/nothing", ""));
    assert.equal(missing.status, 404);
    assert.match(missing.headers, /access-control-allow-origin/);
  }));

test("a request id of safe characters is echoed, any other replaced, and no header is injected", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => "ok" });
    for (
      const [given, echoed] of [["abc-1.2:3_x", true], ["x".repeat(128), true], ["x".repeat(129), false], [
        "a b",
        false,
      ], ["<script>", false]] as const
    ) {
      const { headers } = await gateway.call("/health", { headers: { "x-request-id": given } });
      const id = headers.get("x-request-id") ?? "";
      if (echoed) assert.equal(id, given);
      else assert.match(id, /^req_[0-9a-z]+$/);
    }
    const raw = await gateway.rawSocket();
    raw.write(
      "GET /health?x=%0d%0aSet-Cookie:a HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: a%0d%0aSet-Cookie: b\r\nConnection: close\r\n\r\n",
    );
    assert.doesNotMatch(await raw.closed(), /set-cookie/i);
    raw.destroy();
  }));

test("over the limit is 429 with Retry-After, and probes have a window of their own", () =>
  withWorld(async (world) => {
    const config = { gateway: { rate_limit_max: 5, rate_limit_window_secs: 60 } };
    const gateway = await world.gateway({ script: () => "ok", config });
    for (let i = 4; i >= 0; i--) {
      const reply = await gateway.call("/v1/models");
      assert.equal(reply.headers.get("x-ratelimit-remaining-requests"), String(i));
      await reply.text();
    }
    const refusal = await readRefusal(await gateway.call("/v1/models"));
    assert.deepEqual([refusal.status, refusal.code, refusal.type], [429, "rate_limited", "rate_limit_error"]);
    const seconds = Number(refusal.headers.get("retry-after"));
    assert.ok(seconds >= 1 && seconds <= 120);
    assert.equal((await gateway.call("/health")).status, 200);
    assert.match(await (await gateway.call("/metrics")).text(), /postern_rate_limited_total 1\n/);
  }));

test("an event stream has its headers, its order and its end", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => ({ text: ["a", "b", "c"] }) });
    const reply = await gateway.call("/v1/chat/completions", {
      body: { messages: HI, stream: true, stream_options: { include_usage: true }, top_k: 3 },
    });
    assert.match(reply.headers.get("content-type") ?? "", /^text\/event-stream/);
    assert.equal(reply.headers.get("cache-control"), "no-cache, no-transform");
    assert.equal(reply.headers.get("x-accel-buffering"), "no");
    assert.equal(reply.headers.get("x-postern-ignored"), "top_k");
    const { data } = readSse(await reply.text());
    assert.equal(data.at(-1), "[DONE]");
    const chunks = data.slice(0, -1).map((event) => JSON.parse(event));
    assert.deepEqual(chunks[0].choices[0].delta, { role: "assistant", content: "" });
    assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
    assert.deepEqual(chunks.map(({ choices }) => choices[0]?.finish_reason ?? null), [
      null,
      null,
      null,
      null,
      "stop",
      null,
    ]);
    assert.deepEqual(chunks.at(-1).choices, []);
  }));

test("/metrics passes promtool after traffic of every kind", {
  skip: hasPromtool ? false : "promtool is not on this machine; it comes with the package prometheus",
}, () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      files: { "a.txt": "x" },
      script: (_request, turn) =>
        turn % 2 === 0 ? { toolCalls: [{ name: "read_file", arguments: { path: "a.txt" } }] } : "ok",
    });
    await (await gateway.call("/v1/chat/completions", { body: { messages: HI } })).text();
    await (await gateway.call("/v1/chat/completions", { body: "{" })).text();
    await (await gateway.call("/no/such/path")).text();
    const socket = await gateway.chat();
    socket.send("Hi");
    await socket.readReply();
    const reply = await gateway.call("/metrics");
    assert.equal(reply.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    const text = await reply.text();
    const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], { input: text, encoding: "utf8" });
    assert.deepEqual([status, stdout, stderr], [0, "", ""]);
    for (const name of ["http_requests_total", "ws_connections 1", "runs_total", "tool_calls_total", "build_info"]) {
      assert.ok(text.includes(`postern_${name}`), name);
    }
    assert.doesNotMatch(text, /no\/such\/path/);
    await socket.leave();
  }));
