import assert from "node:assert/strict";
import { test } from "node:test";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import type { Services } from "../../lib/services.ts";
import type { ToolExecutor } from "../../lib/tools/runtime/tool_executor.ts";
import { createTestRouter, errorOf } from "../support/test_router.ts";

const json = async (reply: Response) => await reply.json() as Record<string, unknown>;

test("/health/live, /metrics and / answer without a token", async () => {
  const { send } = createTestRouter();
  assert.deepEqual(await json(await send("GET", "/health/live", { token: null })), { ok: true });
  const metrics = await send("GET", "/metrics", { token: null });
  assert.equal(metrics.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const page = await send("GET", "/", { token: null });
  assert.equal(page.headers.get("content-type"), "text/html; charset=utf-8");
  assert.match(page.headers.get("content-security-policy") ?? "", /default-src 'none'/);
  for (const header of ["cross-origin-opener-policy", "cross-origin-resource-policy"]) {
    assert.equal(page.headers.get(header), "same-origin", header);
  }
  assert.doesNotMatch(await page.text(), /pst_[A-Za-z0-9]{20}/);
});

test("the page is compressed for those who take it so, and the same to everybody", async () => {
  const { send } = createTestRouter();
  const get = (accepted: string) => send("GET", "/", { token: null, headers: { "accept-encoding": accepted } });
  const plain = await (await get("identity")).text();
  const cases = [
    ["gzip, deflate, br, zstd", "br"],
    ["gzip", "gzip"],
    ["GZIP;q=0.5, br;q=0", "gzip"],
    ["br;q=0.000, gzip; q=0", null],
    ["", null],
    ["*", null],
  ] as const;
  for (const [accepted, coding] of cases) {
    const page = await get(accepted);
    assert.equal(page.headers.get("content-encoding"), coding, accepted);
    assert.match(page.headers.get("vary") ?? "", /Origin.*Accept-Encoding/);
    const bytes = new Uint8Array(await page.arrayBuffer());
    const unpack = coding === "br" ? brotliDecompressSync : coding === "gzip" ? gunzipSync : Buffer.from;
    assert.equal(Buffer.from(unpack(bytes)).toString(), plain, accepted);
    if (coding !== null) assert.ok(bytes.length < plain.length / 3, `${bytes.length} of ${plain.length} bytes`);
  }
});

test("/pair gives a token for the right code and hands the refusals of pairing on", async () => {
  const { send } = createTestRouter();
  const reply = await send("POST", "/pair", { token: null, headers: { "x-pairing-code": "GOOD-CODE" } });
  assert.equal(reply.status, 200);
  assert.equal(reply.headers.get("cache-control"), "no-store");
  assert.deepEqual(await json(reply), {
    paired: true,
    token: "pst_paired",
    token_id: "id_pst_paired",
    scopes: ["admin"],
    expires_at: null,
    idle_ttl_seconds: null,
  });
  assert.equal((await send("POST", "/pair", { token: null })).status, 401);
  assert.equal((await send("POST", "/pair", { token: null, headers: { "x-pairing-code": "x" } })).status, 403);
});

test("/v1/ping echoes the message, else the body, else null", async () => {
  const { send } = createTestRouter();
  const cases = [
    [undefined, null],
    [{ message: "x" }, "x"],
    [{ message: { a: 1 } }, { a: 1 }],
    [{ other: 1 }, { other: 1 }],
    [[1, 2], [1, 2]],
    ["5", 5],
    ["null", null],
    [{ message: null }, { message: null }],
  ];
  for (const [body, echo] of cases) {
    const reply = await send("POST", "/v1/ping", body === undefined ? {} : { body });
    assert.deepEqual(await json(reply), { ok: true, echo }, JSON.stringify(body));
    assert.equal(reply.headers.get("x-postern-ignored"), null);
  }
});

test("/v1/models lists what the providers serve, finds ids with slashes, and is empty without an agent", async () => {
  const models = [{ id: "openai/gpt", object: "model", created: 1, owned_by: "openai" }] as const;
  const agent = { providers: { listModels: () => Promise.resolve(models) } } as unknown as NonNullable<
    Services["agent"]
  >;
  const { send } = createTestRouter({ agent });
  assert.deepEqual(await json(await send("GET", "/v1/models")), { object: "list", data: models });
  for (const path of ["/v1/models/openai/gpt", "/v1/models/openai%2Fgpt"]) {
    assert.deepEqual(await json(await send("GET", path)), models[0]);
  }
  const missing = await send("GET", "/v1/models/none");
  assert.deepEqual([missing.status, (await errorOf(missing)).code], [404, "model_not_found"]);
  assert.deepEqual(await json(await createTestRouter().send("GET", "/v1/models")), { object: "list", data: [] });
});

test("tokens are made, shown without themselves, and revoked", async () => {
  const { send } = createTestRouter();
  const made = await json(
    await send("POST", "/v1/tokens", { body: { scopes: ["chat", "tools"], label: "laptop", ttl_seconds: 60 } }),
  );
  assert.match(String(made["token"]), /^pst_/);
  assert.deepEqual(made["scopes"], ["chat", "tools"]);
  const { token, ...record } = made;
  assert.deepEqual(await json(await send("GET", "/v1/tokens")), {
    object: "list",
    data: [record],
    has_more: false,
    last_id: record["id"],
  });
  assert.deepEqual(await json(await send("GET", `/v1/tokens/${record["id"]}`)), record);
  assert.equal((await send("POST", "/v1/ping", { token: String(token) })).status, 200);
  assert.deepEqual(await json(await send("DELETE", `/v1/tokens/${record["id"]}`)), { id: record["id"], deleted: true });
  assert.equal((await send("DELETE", `/v1/tokens/${record["id"]}`)).status, 404);
  assert.equal((await send("GET", `/v1/tokens/${record["id"]}`)).status, 404);
  assert.deepEqual((await json(await send("POST", "/v1/tokens")))["scopes"], ["chat"]);
  assert.deepEqual(await json(await send("DELETE", "/v1/tokens")), { deleted: 1 });
});

test("a token asks for known scopes, a bounded label and a whole lifetime", async () => {
  const { send } = createTestRouter();
  const cases = [
    [{ scopes: ["root"] }, "scopes[0]"],
    [{ scopes: [] }, "scopes"],
    [{ scopes: "chat" }, "scopes"],
    [{ label: "x".repeat(101) }, "label"],
    [{ ttl_seconds: 0 }, "ttl_seconds"],
    [{ ttl_seconds: 1.5 }, "ttl_seconds"],
  ] as const;
  for (const [body, param] of cases) {
    const reply = await send("POST", "/v1/tokens", { body });
    assert.deepEqual([reply.status, (await errorOf(reply)).param], [400, param]);
  }
});

test("tools are listed and called through the door; an unknown one is 404", async () => {
  const { send } = createTestRouter();
  const list = await json(await send("GET", "/v1/tools", { token: "token_tools" }));
  const [tool] = list["data"] as { name: string }[];
  assert.equal(tool?.name, "read_file");
  assert.deepEqual(await json(await send("GET", "/v1/tools/read_file")), tool);
  assert.equal((await send("GET", "/v1/tools/nothing")).status, 404);
  assert.equal((await send("POST", "/v1/tools/nothing/call", { body: {} })).status, 404);
  const call = async (body?: unknown, token = "token_tools") =>
    await json(await send("POST", "/v1/tools/read_file/call", body === undefined ? { token } : { body, token }));
  assert.deepEqual(await call({ input: { path: "a" } }), {
    output: '{"path":"a"}',
    is_error: false,
    data: { length: 12 },
  });
  assert.deepEqual((await call({ input: "plain" }))["output"], "plain");
  assert.deepEqual((await call())["output"], "{}");
  assert.equal((await send("POST", "/v1/tools/read_file/call", { body: { input: 5 } })).status, 400);
  const bare = await send("POST", "/v1/tools/read_file/call", { body: { path: "a" } });
  assert.equal(bare.status, 400);
  const { param, message } = await errorOf(bare);
  assert.deepEqual([param, message], [
    "path",
    'Cannot accept "path": the tool\'s input goes into "input", as {"input": {...}}',
  ]);
});

test("a call that must be asked for is denied with an approval_id, unless a token with approve brings the approval", async () => {
  const { send, services } = createTestRouter();
  const { token } = await services.tokens.issue({ scopes: ["tools", "approve"], label: "" });
  const call = async (token: string, approved?: boolean) =>
    await json(await send("POST", "/v1/tools/read_file/call", { token, body: { input: { ask: true }, approved } }));
  for (
    const [as, approved] of [["token_tools", undefined], ["token_tools", true], [token, undefined], [
      token,
      false,
    ]] as const
  ) {
    const result = await call(as, approved);
    assert.deepEqual([result["is_error"], result["approval_id"]], [true, "apr_1"]);
    assert.match(String(result["output"]), /"approved": true/);
  }
  assert.equal((await call(token, true))["is_error"], false);
});

test("pairing codes and tickets come without being stored by caches", async () => {
  const { send } = createTestRouter();
  const code = await send("POST", "/v1/pairing-code");
  assert.deepEqual(await json(code), { code: "ABCD-EFGH", expires_in: 3600 });
  const ticket = await send("POST", "/v1/ws-ticket", { token: "token_chat" });
  assert.deepEqual(await json(ticket), { ticket: "ticket_0", expires_in: 30 });
  for (const reply of [code, ticket]) assert.equal(reply.headers.get("cache-control"), "no-store");
});

test("a call that fails after it began says not to retry, unless it only reads", async () => {
  for (const [access, retry] of [["write", "false"], ["read", null]] as const) {
    const { services } = createTestRouter();
    const tools: ToolExecutor = {
      ...services.tools,
      async call({ onStart }) {
        await onStart?.({ input: {}, digest: "", access, effects: {}, run: () => Promise.reject(new Error("unused")) });
        throw new Error("a bug after the effect");
      },
    };
    const { send } = createTestRouter({ tools });
    const reply = await send("POST", "/v1/tools/read_file/call", { body: { input: {} } });
    assert.deepEqual([reply.status, reply.headers.get("x-should-retry")], [500, retry]);
  }
});
