import assert from "node:assert/strict";
import { test } from "node:test";
import { ROUTES } from "../../handlers/routes.ts";
import { ENDPOINTS, SECRET_ENDPOINTS } from "./endpoints.ts";

const sorted = (rows: readonly (readonly string[])[]) => rows.map((row) => row.join(" ")).sort();

test("the routes are those of the endpoint table, with its access", () => {
  assert.deepEqual(sorted(ROUTES.map(({ method, path, access }) => [method, path, access])), sorted(ENDPOINTS));
});

test("every POST route says what it does with Idempotency-Key, and those that hand out secrets refuse it", () => {
  for (const { method, path, idempotency } of ROUTES) {
    const expected = method !== "POST" ? undefined : SECRET_ENDPOINTS.includes(path) ? "refused" : "honoured";
    assert.equal(idempotency, expected, `${method} ${path}`);
  }
});
