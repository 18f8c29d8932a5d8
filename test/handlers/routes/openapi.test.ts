import assert from "node:assert/strict";
import { test } from "node:test";
import { errorStatusesOf } from "../../../handlers/routes/openapi.ts";
import { ROUTES } from "../../../handlers/routes.ts";
import { createTestRouter } from "../../support/test_router.ts";

interface Operation {
  readonly operationId: string;
  readonly security: readonly Record<string, readonly string[]>[];
  readonly parameters: readonly {
    name: string;
    in: string;
    required?: boolean;
    description?: string;
    schema: Record<string, unknown>;
  }[];
  readonly requestBody?: { required: boolean; content: Record<string, { schema: Record<string, unknown> }> };
  readonly responses: Record<string, { readonly content?: Record<string, unknown> }>;
}

async function description(options: Parameters<typeof createTestRouter>[0] & { readonly path?: string } = {}) {
  const reply = await createTestRouter(options).send("GET", options.path ?? "/openapi.json", { token: null });
  return await reply.json() as {
    openapi: string;
    servers: readonly { url: string }[];
    paths: Record<string, Record<string, Operation>>;
  };
}

test("a parameter is marked as required where a request without it is refused", async () => {
  const { paths } = await description();
  const required = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { parameters }]) =>
      parameters.filter((one) => one.in !== "path" && one.required).map(({ name }) => `${method} ${path} ${name}`)
    )
  );
  assert.deepEqual(required.sort(), ["delete /v1/tainted-files path", "get /ws/node id", "post /v1/skills name"]);
  const { send } = createTestRouter();
  const headers = { "content-type": "application/octet-stream" };
  for (
    const [method, path, param] of [["DELETE", "/v1/tainted-files", "path"], ["POST", "/v1/skills", "name"]] as const
  ) {
    const reply = await send(method, path, method === "POST" ? { headers, body: "x" } : {});
    const { error } = await reply.json() as { error: { param: string } };
    assert.deepEqual([reply.status, error.param], [400, param]);
  }
});

test("every route is described once, with its access, parameters and body", async () => {
  const { openapi, paths } = await description();
  assert.equal(openapi, "3.1.0");
  const ids = new Set<string>();
  for (const route of ROUTES) {
    const operation = paths[route.path.replace(/:(\w+)\+?/g, "{$1}")]?.[route.method.toLowerCase()];
    assert.ok(operation, `${route.method} ${route.path}`);
    assert.deepEqual(operation.security.length === 0, route.access === "public");
    assert.equal(operation.requestBody !== undefined, (route.body ?? route.rawBody) !== undefined);
    const inPath = operation.parameters.filter((parameter) => parameter.in === "path").map(({ name }) => `:${name}`);
    assert.deepEqual(inPath, route.path.match(/:\w+/g) ?? []);
    const successes = [route.reply, ...route.otherReplies ?? []].map(({ status }) => status);
    const statuses = new Set([...successes, ...errorStatusesOf(route)]);
    assert.deepEqual(Object.keys(operation.responses).map(Number), [...statuses].sort((a, b) => a - b));
    ids.add(operation.operationId);
  }
  assert.equal(ids.size, ROUTES.length);
  assert.equal(Object.values(paths).flatMap((methods) => Object.keys(methods)).length, ROUTES.length);
});

test("all references resolve, and no body is described as anything at all", async () => {
  const whole = await description();
  const follow = (pointer: string) =>
    pointer.slice(2).split("/").reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], whole);
  const text = JSON.stringify(whole);
  for (const [, pointer] of text.matchAll(/"\$ref":"([^"]+)"/g)) {
    assert.match(pointer ?? "", /^#\//);
    assert.ok(follow(pointer ?? ""), pointer);
  }
  assert.doesNotMatch(text, /"\$schema"|"prefixItems"/);
  for (const [path, methods] of Object.entries(whole.paths)) {
    const schema = methods["post"]?.requestBody?.content["application/json"]?.schema;
    if (schema !== undefined) assert.ok(Object.keys(schema).length > 0, path);
  }
});

test("the server is where the client reached the gateway, under the path it is mounted at", async () => {
  assert.deepEqual((await description()).servers, [{ url: "http://gateway.test" }]);
  const mounted = await description({ basePath: "/gateway", path: "/gateway/openapi.json?x=1" });
  assert.deepEqual(mounted.servers, [{ url: "http://gateway.test/gateway" }]);
});

test("each parameter has a description and a type, and a completion has both media types", async () => {
  const { paths } = await description();
  for (const [path, methods] of Object.entries(paths)) {
    for (const { parameters } of Object.values(methods)) {
      for (const { name, in: place, description: text, schema } of parameters) {
        assert.ok(schema["type"] !== undefined, `${path} ${name}`);
        if (place !== "path") assert.ok(text, `${path} ${name}`);
      }
    }
  }
  const answers = paths["/v1/chat/completions"]?.["post"]?.responses["200"]?.content ?? {};
  assert.deepEqual(Object.keys(answers), ["application/json", "text/event-stream"]);
});

test("a path parameter outside its pattern is refused", async () => {
  const { send } = createTestRouter();
  for (const { method, path, access, params = {} } of ROUTES) {
    const token = access === "cluster" ? "token_cluster" : "token_admin";
    for (const [name, { pattern }] of Object.entries(params)) {
      const value = "No,such.id!";
      assert.doesNotMatch(value, new RegExp(String(pattern)));
      const reply = await send(method, path.replace(`:${name}`, encodeURIComponent(value)), { token });
      assert.ok([400, 404, 503].includes(reply.status), `${method} ${path}: ${reply.status}`);
    }
  }
});

test("the replies of a model are the ones that may name a fallback", async () => {
  const { paths } = await description();
  const named = Object.entries(paths).filter(([, methods]) =>
    Object.values(methods).some(({ responses }) =>
      Object.values(responses).some((reply) => "x-postern-fallback" in ((reply as { headers?: object }).headers ?? {}))
    )
  ).map(([path]) => path);
  assert.deepEqual(named.sort(), [
    "/api/chat",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/webhook/{channel}",
    "/webhook",
  ]);
});
