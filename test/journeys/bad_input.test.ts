import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { ENDPOINTS } from "../contract/endpoints.ts";
import { exchange, lastAnswer } from "../support/raw_socket.ts";
import { someOf } from "../support/seeded_random.ts";
import { readRefusal, type RunningGateway, type RunningGatewayOptions, until, withWorld } from "../support/world.ts";

const ON_NODE = !("Deno" in globalThis);
const HI = [{ role: "user", content: "Hi" }];

interface PostRoute {
  readonly path: string;
  /** A body it accepts; undefined: it reads none */
  readonly body?: unknown;
  /** True when the route works without a body */
  readonly optional?: boolean;
  /** Tells whether the thing that the request is about is missing: a good body is then 404, or 409 when that thing does not answer */
  readonly missing?: boolean;
  /** Tells whether the route refuses fields that it does not know */
  readonly strict?: boolean;
  /** Every JSON value is good */
  readonly any?: boolean;
  /** Bytes that it accepts. Default: `max_request_bytes` */
  readonly maxBytes?: number;
}

const LOGIN = {
  site: "example.com",
  hosts: ["example.com"],
  cookies: [],
  storage: [{ origin: "https://example.com", items: [{ name: "theme", value: "dark" }] }],
};

const POST_ROUTES: readonly PostRoute[] = [
  { path: "/pair" },
  { path: "/v1/ping", body: { message: "x" }, optional: true, any: true },
  { path: "/v1/webhook/default", body: { message: "Hi" } },
  { path: "/api/chat", body: { message: "Hi" } },
  { path: "/v1/chat/completions", body: { messages: HI } },
  { path: "/v1/responses", body: { input: "Hi" } },
  { path: "/v1/responses/compact", body: { input: "Hi" } },
  { path: "/v1/responses/input_tokens", body: { input: "Hi" } },
  { path: "/v1/responses/none/cancel" },
  { path: "/v1/messages", body: { max_tokens: 10, messages: HI } },
  { path: "/v1/messages/count_tokens", body: { messages: HI } },
  { path: "/webhook", body: { message: "Hi" } },
  { path: "/v1/tools/glob_search/call", body: { input: { pattern: "*" } }, optional: true },
  { path: "/v1/tools/glob_search/enable" },
  { path: "/mcp" },
  { path: "/v1/approvals/none", body: { decision: "approve" }, missing: true },
  { path: "/v1/halts", body: { kind: "run", name: "run_none" }, strict: true },
  { path: "/v1/conversations/none", body: { title: "x" }, missing: true },
  { path: "/v1/runs", body: { message: "Hi" } },
  { path: "/v1/runs/none/cancel" },
  { path: "/v1/runs/none/resolve", body: { action: "close" }, missing: true },
  { path: "/v1/schedules/none/run" },
  { path: "/v1/deliveries/none/resolve", body: { action: "drop" }, missing: true },
  { path: "/v1/notify/glob_search/test" },
  { path: "/answer", maxBytes: 2_048 },
  { path: "/v1/nodes/none/describe" },
  { path: "/v1/nodes/none/invoke" },
  { path: "/v1/cluster/nodes/none/call" },
  { path: "/v1/cluster/nodes/none/describe" },
  { path: "/v1/plugins", maxBytes: 67_108_864 },
  { path: "/v1/plugins/none/enable", body: { digest: "0".repeat(64) }, missing: true, strict: true },
  { path: "/v1/plugins/none/disable" },
  { path: "/v1/mcp-servers/glob_search/accept", body: { digests: ["0".repeat(64)] }, missing: true, strict: true },
  { path: "/v1/mcp-servers/glob_search/enable" },
  { path: "/v1/mcp-servers/glob_search/disable" },
  { path: "/v1/mcp-servers/glob_search/restart" },
  { path: "/v1/plugin-registry/install", body: { id: "none" }, missing: true, strict: true },
  { path: "/v1/skills", maxBytes: 67_108_864 },
  {
    path: "/v1/skill-installations",
    body: { name: "none", url: "http://127.0.0.1/none.git" },
    missing: true,
    strict: true,
  },
  { path: "/v1/skills/glob_search/trust", body: { digest: "0".repeat(64) }, missing: true, strict: true },
  { path: "/v1/plugin-registry/trust-key", body: { id: "none", key: btoa("k".repeat(32)) }, strict: true },
  { path: "/v1/workspace-instructions/trust", body: { digest: "0".repeat(64) }, missing: true, strict: true },
  { path: "/v1/workspace-instructions/untrust" },
  { path: "/v1/ws-ticket" },
  { path: "/v1/pairing-code" },
  { path: "/v1/storage/rekey" },
  { path: "/v1/storage/check" },
  { path: "/v1/tokens", body: { label: "x" }, optional: true, strict: true },
  { path: "/v1/embeddings", body: { model: "nobody/none", input: "x" }, missing: true },
  { path: "/v1/model-servers", body: { address: "127.0.0.1:1" }, missing: true },
  { path: "/v1/browser-logins", body: LOGIN, strict: true },
  { path: "/v1/cluster/gateways/none/drain", body: { force: true }, optional: true, missing: true, strict: true },
  { path: "/v1/cluster/workspaces/none/forget-folder" },
  {
    path: "/v1/mcp-servers/glob_search/login",
    body: { redirect_uri: "http://127.0.0.1:1/callback" },
    missing: true,
    strict: true,
  },
  { path: "/v1/mcp-servers/glob_search/login/complete", body: { state: "x" }, missing: true, strict: true },
  {
    path: "/v1/mcp-servers/glob_search/changes",
    body: { action: "added", source: null, integrity: null },
    strict: true,
  },
];
const WITH_BODY = POST_ROUTES.filter((route) => route.body !== undefined);

/** A gateway without a rate limit, that ends each test alive, with no error in its log and no run at work. */
async function withGateway(use: (gateway: RunningGateway) => Promise<void>, options: RunningGatewayOptions = {}) {
  const config = { gateway: { rate_limit_max: 0 }, autonomy: { level: "full" }, ...options.config };
  await withWorld(async (world) => {
    const gateway = await world.gateway({ script: () => "ok", ...options, config });
    await use(gateway);
    await stillWorks(gateway);
    const { body } = await fetch(`${gateway.url}/metrics`);
    assert.ok(body);
    const metrics = await new Response(body).text();
    assert.doesNotMatch(metrics, /status="5\d\d"/);
    assert.deepEqual(gateway.log.filter(({ level }) => level === "error"), []);
  });
}

async function stillWorks(gateway: RunningGateway) {
  const reply = await gateway.call("/v1/chat/completions", { body: { messages: HI } });
  assert.equal(reply.status, 200);
  assert.match(await reply.text(), /"content":"ok"/);
}

interface RawRequest {
  readonly method?: string;
  readonly target: string;
  readonly host?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** As a browser or an attacker writes it: every header as given. */
async function raw({ port, token }: RunningGateway, request: RawRequest) {
  const { method = "GET", target, host = `127.0.0.1:${port}`, body } = request;
  const headers: Record<string, string> = {
    host,
    connection: "close",
    authorization: `Bearer ${token}`,
    ...(body === undefined
      ? {}
      : { "content-type": "application/json", "content-length": String(Buffer.byteLength(body)) }),
    ...request.headers,
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const text = await exchange(port, `${method} ${target} HTTP/1.1\r\n${lines}\r\n${body ?? ""}`);
  return { ...lastAnswer(text), text };
}

test("the table of POST routes is the contract's", () => {
  const concrete = (path: string) =>
    path.replace(":channel", "default").replace(":name", "glob_search").replace(":id", "none");
  const contract = ENDPOINTS.filter(([method]) => method === "POST").map(([, path]) => concrete(path));
  assert.deepEqual(POST_ROUTES.map(({ path }) => path).sort(), contract.sort());
});

test("bodies that are no JSON are 400 on every POST route, and the next request is fine", async () => {
  const bytes = (...values: number[]) => new Uint8Array(values);
  const broken: readonly (readonly [string, string | Uint8Array])[] = [
    ["an open object", "{"],
    ["a trailing comma", '{"message":"x",}'],
    ["two values", '{"message":"x"}{}'],
    ["JavaScript", "{message:'x'}"],
    ["NaN", '{"message":NaN}'],
    ["a form", "message=x"],
    ["NUL", "\u0000"],
    ["a raw line break in a string", '{"message":"a\nb"}'],
    ["a lone byte 0xff", bytes(0x22, 0xff, 0x22)],
    ["an overlong slash", bytes(0x22, 0xc0, 0xaf, 0x22)],
    ["an encoded surrogate", bytes(0x22, 0xed, 0xa0, 0x80, 0x22)],
    ["half a character", bytes(0x22, 0xf0, 0x9f, 0x22)],
    ["UTF-16", new Uint8Array(Buffer.from('{"message":"x"}', "utf16le"))],
    ["65 levels of arrays", "[".repeat(65) + "]".repeat(65)],
    ["65 levels of objects", '{"message":'.repeat(65) + "1" + "}".repeat(65)],
    ["100,000 open brackets", "[".repeat(100_000)],
  ];
  await withGateway(async (gateway) => {
    for (const [row, { path }] of WITH_BODY.entries()) {
      for (const [what, body] of someOf(broken, row)) {
        const reply = await fetch(gateway.url + path, {
          method: "POST",
          headers: { authorization: `Bearer ${gateway.token}`, "content-type": "application/json" },
          body: body as string | Uint8Array<ArrayBuffer>,
        });
        const { status, code } = await readRefusal(reply);
        assert.deepEqual([status, code], [400, "invalid_request"], `${path}: ${what}`);
      }
    }
  });
});

test("64 levels of nesting are accepted", async () => {
  await withGateway(async (gateway) => {
    const body = "[".repeat(64) + "]".repeat(64);
    assert.equal((await gateway.call("/v1/ping", { body })).status, 200);
  });
});

test("an empty body is 400 where one is needed, and fine where it is not", async () => {
  await withGateway(async (gateway) => {
    for (const { path, optional, missing } of WITH_BODY) {
      const reply = await gateway.call(path, { method: "POST" });
      if (optional && missing) assert.equal((await readRefusal(reply)).code, "not_found", path);
      else if (!optional) assert.equal((await readRefusal(reply)).code, "invalid_request", path);
      else assert.ok(reply.ok, `${path}: ${reply.status} ${await reply.text()}`);
    }
  });
});

test("a JSON value of the wrong kind is 400 on every route that takes an object", async () => {
  await withGateway(async (gateway) => {
    for (const [row, { path, any }] of WITH_BODY.entries()) {
      for (const body of someOf(["null", "1", "true", '"text"', "[]", "[{}]"], row)) {
        const reply = await gateway.call(path, { body });
        if (any) assert.equal(reply.status, 200, `${path}: ${body}`);
        else assert.equal((await readRefusal(reply)).code, "invalid_request", `${path}: ${body}`);
      }
    }
  });
});

test("a wrong type, an unknown role and an empty list name the field", async () => {
  const user = (content: unknown) => ({ messages: [{ role: "user", content }] });
  const cases: readonly (readonly [path: string, body: unknown, param: string])[] = [
    ["/v1/chat/completions", {}, "messages"],
    ["/v1/chat/completions", { messages: "Hi" }, "messages"],
    ["/v1/chat/completions", { messages: [] }, "messages"],
    ["/v1/chat/completions", { messages: [null] }, "messages[0]"],
    ["/v1/chat/completions", { messages: ["Hi"] }, "messages[0]"],
    ["/v1/chat/completions", { messages: [{ content: "Hi" }] }, "messages[0].role"],
    ["/v1/chat/completions", { messages: [...HI, { role: "wizard", content: "Hi" }] }, "messages[1].role"],
    ["/v1/chat/completions", { messages: [{ role: 7, content: "Hi" }] }, "messages[0].role"],
    ["/v1/chat/completions", { messages: [{ role: "__proto__", content: "Hi" }] }, "messages[0].role"],
    ["/v1/chat/completions", user(undefined), "messages[0].content"],
    ["/v1/chat/completions", user(7), "messages[0].content"],
    ["/v1/chat/completions", user([{ type: "text" }]), "messages[0].content[0].text"],
    ["/v1/chat/completions", user([{ type: "video" }]), "messages[0].content[0].type"],
    [
      "/v1/chat/completions",
      user([{ type: "image_url", image_url: { url: "file:///etc/passwd" } }]),
      "messages[0].content[0].image_url.url",
    ],
    ["/v1/chat/completions", { messages: [{ role: "tool", content: "x" }] }, "messages[0].tool_call_id"],
    ["/v1/chat/completions", { messages: HI, stream: "yes" }, "stream"],
    ["/v1/chat/completions", { messages: HI, temperature: "hot" }, "temperature"],
    ["/v1/chat/completions", { messages: HI, temperature: 3 }, "temperature"],
    ["/v1/chat/completions", { messages: HI, max_tokens: -2 }, "max_tokens"],
    ["/v1/chat/completions", { messages: HI, max_tokens: 1.5 }, "max_tokens"],
    ["/v1/chat/completions", { messages: HI, tools: {} }, "tools"],
    [
      "/v1/chat/completions",
      { messages: HI, tools: [{ type: "function", function: { name: "a b" } }] },
      "tools[0].function.name",
    ],
    ["/v1/chat/completions", { messages: HI, model: 7 }, "model"],
    ["/v1/chat/completions", { messages: HI, n: 2 }, "n"],
    ["/v1/chat/completions", { messages: HI, functions: [] }, "functions"],
    ["/v1/chat/completions", { messages: HI, metadata: { a: 1 } }, "metadata.a"],
    ["/api/chat", {}, "message"],
    ["/api/chat", { message: "" }, "message"],
    ["/api/chat", { message: ["Hi"] }, "message"],
    ["/api/chat", { message: "Hi", context: {} }, "context"],
    ["/api/chat", { message: "Hi", conversation_id: 7 }, "conversation_id"],
    ["/api/chat", { message: "Hi", conversation_id: "x".repeat(129) }, "conversation_id"],
    ["/api/chat", { message: "Hi", model: [] }, "model"],
    ["/webhook", { message: 7 }, "message"],
    ["/v1/webhook/default", {}, "message"],
    ["/v1/webhook/default", { text: 7 }, "text"],
    ["/v1/webhook/default", { message: "Hi", sender: {} }, "sender"],
    ["/v1/webhook/default", { message: "Hi", message_id: "" }, "message_id"],
    ["/v1/tools/glob_search/call", { input: 7 }, "input"],
    ["/v1/tools/glob_search/call", { input: [{ pattern: "*" }] }, "input"],
    ["/v1/tools/glob_search/call", { input: {}, approved: "yes" }, "approved"],
    ["/v1/tools/glob_search/call", { input: {}, approval_id: "" }, "approval_id"],
    ["/v1/conversations/c", {}, "title"],
    ["/v1/conversations/c", { title: "" }, "title"],
    ["/v1/conversations/c", { title: " \n" }, "title"],
    ["/v1/conversations/c", { title: "x".repeat(201) }, "title"],
    ["/v1/conversations/c", { title: null }, "title"],
    ["/v1/halts", {}, "kind"],
    ["/v1/halts", { kind: "everything" }, "kind"],
    ["/v1/halts", { kind: "tool" }, "name"],
    ["/v1/halts", { kind: "all", name: "shell" }, "name"],
    ["/v1/halts", { kind: "tool", name: "a b" }, "name"],
    ["/v1/approvals/apr_1", {}, "decision"],
    ["/v1/approvals/apr_1", { decision: "approve", remember: true }, "remember"],
    ["/v1/approvals/apr_1", { decision: "deny", note: 7 }, "note"],
    ["/v1/tokens", { scopes: "chat" }, "scopes"],
    ["/v1/tokens", { scopes: [] }, "scopes"],
    ["/v1/tokens", { scopes: ["chat", "root"] }, "scopes[1]"],
    ["/v1/tokens", { ttl_seconds: 0 }, "ttl_seconds"],
    ["/v1/tokens", { label: 7 }, "label"],
  ];
  await withGateway(async (gateway) => {
    for (const [path, body, param] of cases) {
      const refusal = await readRefusal(await gateway.call(path, { body }));
      const said = `${path} ${JSON.stringify(body)}: ${refusal.message}`;
      assert.deepEqual([refusal.status, refusal.param], [400, param], said);
      assert.equal(refusal.type, "invalid_request_error", said);
    }
    assert.equal((await gateway.services.tokens.list()).length, 0);
  });
});

test("fields with names of JavaScript's own change nothing", async () => {
  await withGateway(async (gateway) => {
    const poisoned = (said: string) => `{"__proto__":{"admin":true},"constructor":{"prototype":{"x":1}},${said}}`;
    const messages = poisoned('"messages":[{"role":"user","content":"Hi","__proto__":{"a":1}}]');
    for (const { path, body, strict } of WITH_BODY.filter(({ missing }) => missing !== true)) {
      const takes = (field: string) => typeof body === "object" && body !== null && field in body;
      const said = takes("messages") ? messages : poisoned(takes("input") ? '"input":"Hi"' : '"message":"Hi"');
      const reply = await gateway.call(path, { body: said });
      if (strict === true) assert.equal((await readRefusal(reply)).param, "__proto__");
      else assert.ok(reply.status < 300, `${path}: ${reply.status} ${await reply.text()}`);
    }
    assert.equal(({} as Record<string, unknown>)["admin"], undefined);
  });
});

test("a content type that is not JSON in UTF-8 is 415 on every POST route that reads a body", async () => {
  const types = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/jsonx",
    "application/json; charset=latin1",
    "application/json, text/plain",
    "*/*",
    "x",
  ];
  await withGateway(async (gateway) => {
    for (const [row, { path, body, missing = false }] of WITH_BODY.entries()) {
      for (const type of someOf(types, row)) {
        const { status, code } = await readRefusal(
          await gateway.call(path, { body, headers: { "content-type": type } }),
        );
        assert.deepEqual([status, code], [415, "unsupported_media_type"], `${path}: ${type}`);
      }
      const good = await gateway.call(path, { body, headers: { "content-type": "Application/JSON; charset=UTF-8" } });
      assert.equal(missing ? [404, 409].includes(good.status) : good.ok, true, `${path}: ${good.status}`);
    }
  });
});

test("one byte more than a POST route takes, 10 MiB or its own limit, is 413, by its length and by counting", async () => {
  const bytes = 10 * 1024 * 1024 + 1;
  const half = new Uint8Array((bytes - 1) / 2).fill(0x20);
  await withGateway(async (gateway) => {
    const head = (path: string, more: string) =>
      `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n${more}\r\n\r\n`;
    for (const { path, body, maxBytes } of POST_ROUTES) {
      const declared = await gateway.rawSocket();
      const type = maxBytes === undefined ? "" : "Content-Type: application/x-tar\r\n";
      declared.write(head(path, `${type}Content-Length: ${maxBytes === undefined ? bytes : maxBytes + 1}`));
      const answer = lastAnswer(await declared.read(/\}\}/));
      declared.destroy();
      assert.deepEqual([answer.status, answer.code], [413, "payload_too_large"], path);
      if (body === undefined) continue;
      const reply = await fetch(gateway.url + path, {
        method: "POST",
        headers: { authorization: `Bearer ${gateway.token}`, "content-type": "application/json" },
        body: ReadableStream.from([half, half, half.subarray(0, 1)]),
        duplex: "half",
      } as RequestInit);
      const { status, code } = await readRefusal(reply);
      assert.deepEqual([status, code], [413, "payload_too_large"], path);
    }
  });
});

test("a body that stops half-way ends its own request and nothing else, on every POST route", async () => {
  await withGateway(async (gateway) => {
    const inFlight = () => /in_flight (\d+)/.exec(gateway.services.metrics.render())?.[1];
    const frames = [
      'Content-Length: 100\r\n\r\n{"mess',
      'Transfer-Encoding: chunked\r\n\r\n6\r\n{"mess\r\n',
      'Transfer-Encoding: chunked\r\n\r\n50\r\n{"m',
    ];
    for (const [row, { path }] of WITH_BODY.entries()) {
      for (const frame of someOf(frames, row)) {
        const socket = await gateway.rawSocket();
        socket.write(`POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n${frame}`);
        await until(() => inFlight() !== "0");
        socket.destroy();
        await until(() => inFlight() === "0");
      }
    }
    assert.equal(gateway.provider.requests.length, 0);
  });
});

test("chunks that lie about their length are refused, with nothing smuggled behind them", async () => {
  await withGateway(async (gateway) => {
    const head = `POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${gateway.token}\r\n`;
    const smuggled = "GET /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    const requests = [
      `${head}Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n`,
      `${head}Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n`,
      `${head}Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n`,
      `${head}Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}${smuggled}`,
      `${head}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`,
      `${head}Transfer-Encoding: chunked, gzip\r\n\r\n2\r\n{}\r\n0\r\n\r\n${smuggled}`,
      `${head}Content-Length: +2\r\n\r\n{}`,
      `${head}Content-Length: 0x2\r\n\r\n{}`,
    ];
    for (const bytes of requests) {
      const socket = await gateway.rawSocket();
      socket.write(bytes);
      // Deno leaves some of them open
      const open = ON_NODE ? [] : [systemClock.sleep(2000).then(() => "open")];
      const text = await Promise.race([socket.closed(), ...open]);
      socket.destroy();
      assert.doesNotMatch(text, /"object":"list"/, bytes);
      if (ON_NODE) assert.equal(lastAnswer(text).status, bytes.includes("gzip") ? 501 : 400, bytes);
      else assert.doesNotMatch(text, /HTTP\/1\.1 5/, bytes);
    }
  });
});

test("100,000 headers' worth of bytes are refused by the parser", async () => {
  await withGateway(async (gateway) => {
    const socket = await gateway.rawSocket();
    socket.write(`POST /v1/ping HTTP/1.1\r\nHost: 127.0.0.1\r\n${"x: y\r\n".repeat(100_000)}\r\n`);
    const text = await socket.closed();
    socket.destroy();
    if (ON_NODE) assert.deepEqual([lastAnswer(text).status, lastAnswer(text).code], [431, "headers_too_large"]);
    else assert.doesNotMatch(text, /HTTP\/1\.1 [25]/);
  });
});

test("a wrong method is 405 with Allow on every route, and an unknown path 404 with any method", async () => {
  const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "PROPFIND", "BREW"];
  const rows = new Map<string, Set<string>>();
  for (const [method, path] of ENDPOINTS) {
    if (path === "/ws/chat") continue;
    rows.set(path, (rows.get(path) ?? new Set()).add(method));
  }
  await withGateway(async (gateway) => {
    for (const [row, [template, served]] of [...rows].entries()) {
      const path = template.replace(/:\w+\+?/, "default");
      for (const method of someOf(methods, row)) {
        const asked = method === "HEAD" ? "GET" : method;
        if (served.has(asked) || takesAsId(path, asked)) continue;
        const answer = await raw(gateway, { method, target: path });
        // A method the parser does not know never becomes a request
        if (method === "BREW" && [400, 405, 501].includes(answer.status)) continue;
        assert.equal(answer.status, 405, `${method} ${path}: ${answer.text}`);
        for (const name of served) assert.match(answer.headers, new RegExp(`allow: .*${name.toLowerCase()}`), path);
        if (method !== "HEAD") assert.equal(answer.code, "method_not_allowed", path);
      }
    }
    for (const method of ["GET", "POST", "PUT", "DELETE"]) {
      const answer = await raw(gateway, { method, target: "/v1/nothing" });
      assert.deepEqual([answer.status, answer.code], [404, "not_found"]);
    }
  });
});

test("a name in a path that is longer than any record's is 400 with any method, and nothing fails inside", async () => {
  const rows = ENDPOINTS.filter(([, path]) => path.includes(":"));
  await withGateway(async (gateway) => {
    for (const [method, template] of rows) {
      const target = template.replace(/:\w+\+?/, "a".repeat(3000));
      const answer = await raw(gateway, { method, target, ...(method === "POST" ? { body: "{}" } : {}) });
      assert.deepEqual([answer.status, answer.code], [400, "invalid_request"], `${method} ${template}`);
    }
  });
});

/** Tells whether the last part of a path is an id to a route of this method, as in `DELETE /v1/responses/:id`. */
function takesAsId(path: string, method: string): boolean {
  const template = path.replace(/[^/]+$/, ":id");
  return ENDPOINTS.some(([known, route]) => known === method && route === template);
}

test("percent-encoding tricks, empty and dot segments reach no route", async () => {
  const disguises = (path: string) => [
    `/${path}`,
    `${path}/`,
    `${path}//`,
    path.replace(/\/(?=[^/]*$)/, "//"),
    `/.${path}`,
    `/x/..${path}`,
    `/%2e${path}`,
    `/x/%2E%2e${path}`,
    `/%2f${path.slice(1)}`,
    `/%${path.charCodeAt(1).toString(16)}${path.slice(2)}`,
    path.toUpperCase(),
    `${path}%00`,
    `${path}%20`,
    `${path};x=1`,
    `${path}.json`,
    path.replace(/\/(?=[^/]*$)/, "\\"),
    path.replace(/\/(?=[^/]*$)/, "%5c"),
    path.replace(/\/(?=[^/]*$)/, "%252f"),
  ];
  await withGateway(async (gateway) => {
    for (const [row, { path, body }] of POST_ROUTES.entries()) {
      for (const target of someOf(disguises(path), row)) {
        const answer = await raw(gateway, { method: "POST", target, body: JSON.stringify(body ?? {}) });
        // 405: a tool of such a name could be asked for
        assert.ok([400, 404, 405].includes(answer.status), `${target}: ${answer.text}`);
      }
    }
    assert.equal(gateway.provider.requests.length, 0);
    // The query is no part of the path
    assert.equal((await raw(gateway, { target: "/v1/tools?api-version=/../x\\y" })).status, 200);
    for (const target of ["/v1/tools/%ff/call", "/v1/tools/%/call", "/v1/tools/%zz/call", "/v1/webhook/%c0%af"]) {
      const answer = await raw(gateway, { method: "POST", target, body: "{}" });
      assert.deepEqual([answer.status, answer.code], [400, "invalid_request"], target);
    }
    for (
      const target of [
        "/v1/webhook/a%2fb",
        "/v1/webhook/constructor",
        "/v1/webhook/__proto__",
        "/v1/webhook/DEFAULT",
        "/v1/tools/toString/call",
      ]
    ) {
      const answer = await raw(gateway, { method: "POST", target, body: '{"message":"Hi"}' });
      assert.deepEqual([answer.status, answer.code], [404, "not_found"], target);
    }
  });
});

test("a page of another site can post to no route, and reads no reply", async () => {
  await withGateway(async (gateway) => {
    const { port } = gateway;
    const pages: readonly Readonly<Record<string, string>>[] = [
      { origin: "https://evil.example" },
      { origin: "null" },
      { origin: "" },
      { origin: `http://127.0.0.1:${port + 1}` },
      { origin: `http://127.0.0.1:${port}.evil.example` },
      { origin: `http://evil.example:${port}` },
      { origin: `http://evil.example/http://127.0.0.1:${port}` },
      { origin: `http://user@127.0.0.1:${port}` },
      { origin: "file://" },
      { origin: "chrome-extension://abcdefghijklmnop" },
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "cross-site", origin: `http://127.0.0.1:${port}` },
      { origin: "https://evil.example", "sec-fetch-site": "same-origin" },
      { origin: "https://evil.example", "content-type": "text/plain" },
      { origin: "https://evil.example", host: `localhost:${port}` },
    ];
    for (const [row, headers] of pages.entries()) {
      for (const { path, body } of someOf(POST_ROUTES, row)) {
        const answer = await raw(gateway, { method: "POST", target: path, headers, body: JSON.stringify(body ?? {}) });
        assert.deepEqual([answer.status, answer.code], [403, "origin_forbidden"], `${path} ${JSON.stringify(headers)}`);
        assert.doesNotMatch(answer.headers, /access-control-/);
      }
      const removal = await raw(gateway, { method: "DELETE", target: "/v1/tokens", headers });
      assert.deepEqual([removal.status, removal.code], [403, "origin_forbidden"]);
      for (const target of ["/health", "/v1/models", "/openapi.json"]) {
        const answer = await raw(gateway, { target, headers });
        assert.equal(answer.status, 200, `${target} ${JSON.stringify(headers)}`);
        assert.doesNotMatch(answer.headers, /access-control-/);
      }
      const preflight = await raw(gateway, {
        method: "OPTIONS",
        target: "/v1/chat/completions",
        headers: {
          ...headers,
          "access-control-request-method": "POST",
          "access-control-request-headers": "authorization",
        },
      });
      assert.equal(preflight.status, 204);
      assert.doesNotMatch(preflight.headers, /access-control-/);
    }
    assert.equal(gateway.provider.requests.length, 0);
  });
});

test("a rebound or foreign host is refused on every route, in the header and in the target", async () => {
  await withGateway(async (gateway) => {
    const own = `127.0.0.1:${gateway.port}`;
    const hosts = [
      "evil.example",
      `evil.example:${gateway.port}`,
      "127.0.0.1.evil.example",
      "localhost.evil.example",
      "0.0.0.0",
      "192.168.0.1",
    ];
    for (const [row, [method, template]] of ENDPOINTS.entries()) {
      if (template === "/ws/chat") continue;
      const path = template.replace(/:\w+\+?/, "default");
      for (const host of someOf(hosts, row)) {
        const answer = await raw(gateway, { method, target: path, host });
        assert.deepEqual([answer.status, answer.code], [403, "host_forbidden"], `${method} ${path} ${host}`);
      }
      for (
        const [target, host] of [[`http://evil.example${path}`, own], [`http://evil.example${path}`, "evil.example"], [
          `http://${own}${path}`,
          "evil.example",
        ]] as const
      ) {
        const answer = await raw(gateway, { method, target, host });
        assert.ok([400, 403].includes(answer.status), `${method} ${target} ${host}: ${answer.text}`);
      }
    }
  });
});
