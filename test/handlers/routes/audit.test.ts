import assert from "node:assert/strict";
import { test } from "node:test";
import { auditedCall } from "../../support/audited_call.ts";
import { jsonOf } from "../../support/json_of.ts";
import { createTestRouter, errorOf } from "../../support/test_router.ts";

test("GET /v1/audit lists records, newest first, a page at a time", async () => {
  const { send, services } = createTestRouter();
  for (const tool of ["a", "b", "c"]) await services.audit.append(auditedCall(tool));
  const page = await jsonOf(send("GET", "/v1/audit?limit=2"));
  assert.deepEqual(page.data.map(({ tool, seq }: { tool: string; seq: number }) => [tool, seq]), [["c", 3], ["b", 2]]);
  assert.deepEqual([page.object, page.has_more, page.last_id], ["list", true, "2"]);
});

test("GET /v1/audit/verify gives the report", async () => {
  const { send } = createTestRouter();
  const report = await jsonOf(send("GET", `/v1/audit/verify?head=3:${"a".repeat(64)}`));
  assert.equal(report.ok, true);
  assert.deepEqual(report.problems, []);
});

test("the audit refuses a wrong query, naming the parameter", async () => {
  const { send } = createTestRouter();
  for (
    const [path, param] of [
      ["/v1/audit?limit=0", "limit"],
      ["/v1/audit?limit=1001", "limit"],
      ["/v1/audit?limit=ten", "limit"],
      ["/v1/audit?after=-1", "after"],
      ["/v1/audit?after=x", "after"],
      ["/v1/audit?type=nothing", "type"],
      ["/v1/audit/verify?head=1", "head"],
      ["/v1/audit/verify?head=0:00", "head"],
    ] as const
  ) {
    const reply = await send("GET", path);
    assert.equal(reply.status, 400, path);
    const error = await errorOf(reply);
    assert.deepEqual([error.code, error.param], ["invalid_request", param], path);
  }
});

test("the audit is for admin alone", async () => {
  const { send } = createTestRouter();
  for (const path of ["/v1/audit", "/v1/audit/verify"]) {
    assert.equal((await send("GET", path, { token: "token_approve" })).status, 403);
    assert.equal((await send("GET", path, { token: null })).status, 401);
  }
});

test("refused credentials of every kind reach the audit with the peer's address, other errors do not", async () => {
  const { send, services } = createTestRouter();
  const remoteAddress = "10.0.0.9";
  const { refused } = services.audit;
  await send("GET", "/v1/tools", { token: null, remoteAddress });
  await send("GET", "/v1/tools", { token: "wrong", remoteAddress });
  await send("GET", "/v1/tools", { token: "token_chat", remoteAddress });
  await send("POST", "/pair", { token: null, headers: { "x-pairing-code": "BAD" }, remoteAddress });
  await send("GET", "/v1/nothing", { token: null, remoteAddress });
  await send("GET", "/health", { token: null, remoteAddress });
  assert.deepEqual(refused, [
    "auth_required 10.0.0.9",
    "auth_invalid 10.0.0.9",
    "insufficient_scope 10.0.0.9",
    "pairing_code_invalid 10.0.0.9",
  ]);
});
