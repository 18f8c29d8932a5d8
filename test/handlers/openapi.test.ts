import assert from "node:assert/strict";
import { test } from "node:test";
import { ROUTES } from "../../handlers/routes.ts";
import { createTestRouter } from "../support/test_router.ts";

interface Operation {
  readonly operationId: string;
  readonly security: readonly Record<string, readonly string[]>[];
  readonly parameters: readonly { name: string; in: string }[];
  readonly requestBody?: { required: boolean; content: Record<string, { schema: Record<string, unknown> }> };
  readonly responses: Record<string, unknown>;
}

async function description() {
  const reply = await createTestRouter().send("GET", "/openapi.json", { token: null });
  return await reply.json() as { openapi: string; paths: Record<string, Record<string, Operation>> };
}

test("every route is described once, with its access, parameters and body", async () => {
  const { openapi, paths } = await description();
  assert.equal(openapi, "3.1.0");
  const ids = new Set<string>();
  for (const route of ROUTES) {
    const operation = paths[route.path.replace(/:(\w+)\+?/g, "{$1}")]?.[route.method.toLowerCase()];
    assert.ok(operation, `${route.method} ${route.path}`);
    assert.deepEqual(operation.security.length === 0, route.access === "public");
    assert.equal(operation.requestBody !== undefined, route.body !== undefined);
    const inPath = operation.parameters.filter((parameter) => parameter.in === "path").map(({ name }) => `:${name}`);
    assert.deepEqual(inPath, route.path.match(/:\w+/g) ?? []);
    assert.ok(operation.responses["default"]);
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
  assert.doesNotMatch(text, /"\$schema"/);
  for (const [path, methods] of Object.entries(whole.paths)) {
    const schema = methods["post"]?.requestBody?.content["application/json"]?.schema;
    if (schema !== undefined) assert.ok(Object.keys(schema).length > 0, path);
  }
});
