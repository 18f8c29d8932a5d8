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
    assert.equal(idempotency !== undefined, method === "POST", `${method} ${path}`);
    if (method === "POST") assert.equal(idempotency === "refused", SECRET_ENDPOINTS.includes(path), path);
  }
});

test("a run that answers under an Idempotency-Key is found again by its repeats", () => {
  const lost = ROUTES.filter(({ idempotency, repeat }) => idempotency === "by_run" && repeat === undefined);
  assert.deepEqual(lost.map(({ path }) => path), []);
});
