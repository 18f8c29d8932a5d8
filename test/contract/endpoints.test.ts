import assert from "node:assert/strict";
import { test } from "node:test";
import type { Door } from "../../handlers/door.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { MCP_METHODS } from "../../handlers/mcp/mcp_methods.ts";
import { FRAMES } from "../../handlers/websocket/frames.ts";
import { ENDPOINTS, FRAME_TYPES, MCP_DOORS, SECRET_ENDPOINTS } from "./endpoints.ts";

const sorted = (rows: readonly (readonly (string | undefined)[])[]) => rows.map((row) => row.join(" ")).sort();
const row = (...cells: readonly (string | undefined)[]) => cells.filter((cell) => cell !== undefined);

test("the routes are those of the endpoint table, with its access", () => {
  const rows = ROUTES.map(({ method, path, access, continues }) => row(method, path, access, continues));
  assert.deepEqual(sorted(rows), sorted(ENDPOINTS));
});

test("the frames of the WebSocket are those of the frame table, with their access", () => {
  const doors: readonly (readonly [string, Door])[] = Object.entries(FRAMES);
  const rows = doors.map(([type, { access, continues }]) => row(type, access, continues));
  assert.deepEqual(sorted(rows), sorted(FRAME_TYPES));
});

test("the methods of MCP and their scopes are those of the table", () => {
  const rows = Object.entries(MCP_METHODS).map(([method, { access }]) => [method, access] as const);
  assert.deepEqual(sorted(rows), sorted(MCP_DOORS));
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
