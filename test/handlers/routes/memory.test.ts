import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonOf } from "../../support/json_of.ts";
import { createTestRouter } from "../../support/test_router.ts";

function setUp() {
  const { services, send } = createTestRouter();
  const json = async (method: string, path: string) => {
    const reply = await send(method, path, { token: "token_runs" });
    return { status: reply.status, ...await jsonOf(reply) };
  };
  const keep = (key: string, value: string, namespace?: string) =>
    services.memory.store({ key, value, ...(namespace === undefined ? {} : { namespace }) });
  const keys = async (query = "") =>
    (await json("GET", `/v1/memory${query}`)).data.map(({ key }: { key: string }) => key);
  return { services, json, keep, keys };
}

test("memory is listed newest first, of every namespace or one, a page at a time, or by words", async () => {
  const { json, keep, keys } = setUp();
  await keep("bean", "Water on Tuesday");
  await keep("pea", "They climb", "garden");
  await keep("a/b", "Tuesday is market day", "garden");
  assert.deepEqual(await keys(), ["a/b", "pea", "bean"]);
  assert.deepEqual(await keys("?namespace=garden"), ["a/b", "pea"]);
  const first = await json("GET", "/v1/memory?limit=2");
  assert.deepEqual([first.has_more, first.last_id], [true, "garden/pea"]);
  assert.deepEqual(await keys(`?after=${encodeURIComponent(first.last_id)}`), ["bean"]);
  assert.deepEqual((await keys("?query=tuesday")).sort(), ["a/b", "bean"]);
  assert.deepEqual((await json("GET", "/v1/memory?namespace=default")).data, [{
    object: "memory",
    namespace: "default",
    key: "bean",
    value: "Water on Tuesday",
    tags: [],
    created_at: "2026-01-01T00:00:00.000Z",
    updated_at: "2026-01-01T00:00:00.000Z",
  }]);
  assert.deepEqual((await json("GET", "/v1/memory?namespace=a%20b")).error.code, "invalid_request");
});

test("memory is forgotten by key, by namespace, or whole, and not by a misspelt parameter", async () => {
  const { json, keep, keys } = setUp();
  await keep("bean", "1");
  await keep("pea", "2", "garden");
  await keep("corn", "3", "garden");
  await keep("leek", "4");
  const misspelt = await json("DELETE", "/v1/memory?kee=bean");
  assert.deepEqual([misspelt.status, misspelt.error.param], [400, "kee"]);
  assert.equal((await json("DELETE", "/v1/memory?key=pea")).status, 404);
  assert.equal((await json("DELETE", "/v1/memory?key=pea&namespace=garden")).deleted, 1);
  assert.equal((await json("DELETE", "/v1/memory?key=bean")).deleted, 1);
  assert.deepEqual(await keys(), ["leek", "corn"]);
  assert.equal((await json("DELETE", "/v1/memory?namespace=garden")).deleted, 1);
  assert.deepEqual(await keys(), ["leek"]);
  assert.equal((await json("DELETE", "/v1/memory")).deleted, 1);
  assert.deepEqual(await keys(), []);
});
