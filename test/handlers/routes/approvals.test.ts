import assert from "node:assert/strict";
import { test } from "node:test";
import type { NewApproval } from "../../../lib/guard/approvals.ts";
import { loadNeeded } from "../../../lib/runs/supervisor/approval_events.ts";
import { newApproval } from "../../support/new_approval.ts";
import { createTestRouter, type SendInit } from "../../support/test_router.ts";

function setUp() {
  const { services, send } = createTestRouter();
  const ask = async (more: Partial<NewApproval> = {}) => {
    const files = [{ path: "a.txt", sha256: null }];
    const asked = await services.approvals.ask(newApproval({ files, ...more }));
    return asked?.id ?? assert.fail("not asked");
  };
  // deno-lint-ignore no-explicit-any -- replies are asserted, not used
  const json = async (method: string, path: string, init?: SendInit): Promise<any> => {
    const reply = await send(method, path, init);
    return { status: reply.status, ...JSON.parse(await reply.text()) };
  };
  return { services, ask, json };
}

test("a question is listed and shown with its exact input, and answered once", async () => {
  const { ask, json } = setUp();
  const id = await ask();
  const shown = await json("GET", `/v1/approvals/${id}`, { token: "token_approve" });
  assert.deepEqual([shown.status, shown.tool, shown.input, shown.files, shown.always_rule], [
    "pending",
    "shell",
    { command: "ls" },
    [{ path: "a.txt", sha256: null }],
    'Allow "shell" in "/work" with exactly the input {"command":"ls"}',
  ]);
  const list = await json("GET", "/v1/approvals?status=pending");
  assert.deepEqual([list.data.length, list.data[0].id, list.has_more, list.last_id], [1, id, false, id]);
  const answered = await json("POST", `/v1/approvals/${id}`, { body: { decision: "approve", note: "fine" } });
  assert.deepEqual([answered.status, answered.note, answered.stored_rule], ["approved", "fine", null]);
  const again = await json("POST", `/v1/approvals/${id}`, { body: { decision: "deny" } });
  assert.deepEqual([again.status, again.error.code], [409, "conflict"]);
  assert.equal((await json("GET", "/v1/approvals?status=pending")).data.length, 0);
  assert.equal((await json("GET", "/v1/approvals?status=approved")).data.length, 1);
});

test("a question says how the call is contained; one about a call that starts no program says null", async () => {
  const { ask, json } = setUp();
  const containment = { kind: "uncontained", text: "Commands are not contained: bubblewrap is not installed" } as const;
  const [shell, write] = [await ask({ containment }), await ask({ tool: "write_file" })];
  assert.deepEqual((await json("GET", `/v1/approvals/${shell}`)).containment, containment);
  assert.equal((await json("GET", `/v1/approvals/${write}`)).containment, null);
});

test("every door describes a call in the same words, with what nobody sees spelled out and a cut said", async () => {
  const { ask, json, services } = setUp();
  const hidden = "a\u202etxt";
  const id = await ask({
    input: { path: hidden, content: "x".repeat(300_000) },
    inputDigest: "d".repeat(64),
    reason: `Because of ${hidden}`,
    files: [{ path: hidden, sha256: "f".repeat(64) }],
    bound: [{ kind: "head", name: hidden, sha256: null }],
    containment: { kind: "uncontained", text: "Nothing is contained" },
  });
  const { description } = await json("GET", `/v1/approvals/${id}`);
  const { input, ...rest } = description;
  assert.deepEqual(rest, {
    title: "The agent wants to call shell",
    asker: [],
    call: "shell (write) in /work",
    reason: "Because of a\\u202etxt",
    containment: "Nothing is contained",
    files: [`"a\\u202etxt" sha256:${"f".repeat(64)}`],
    bound: ['head "a\\u202etxt" (none)'],
  });
  assert.match(
    input,
    /^\{\n {2}"path": "a\\u202etxt",\n {2}"content": "x+ \[cut: 200000 of 300\d{3} characters are shown; SHA/,
  );
  assert.ok(input.endsWith(`SHA-256 of the whole ${"d".repeat(64)}]\npostern approval show ${id} shows it whole`));
  assert.deepEqual((await json("GET", "/v1/approvals")).data[0].description, description);
  const event = (await loadNeeded())(await services.approvals.get(id) ?? assert.fail("it is gone"));
  assert.deepEqual("description" in event && event.description, description);
  const answered = await json("POST", `/v1/approvals/${id}`, { body: { decision: "deny" } });
  assert.deepEqual(answered.description, description);
});

test("a rule comes back word for word, is listed, and revoked it is gone", async () => {
  const { ask, json } = setUp();
  const id = await ask();
  const { always_rule } = await json("GET", `/v1/approvals/${id}`);
  const { stored_rule: rule } = await json("POST", `/v1/approvals/${id}`, {
    body: { decision: "approve", remember: "always" },
  });
  assert.deepEqual([rule.text, rule.decision, rule.scope, rule.approval_id], [always_rule, "approve", "always", id]);
  assert.deepEqual((await json("GET", "/v1/approval-rules")).data, [rule]);
  assert.equal((await json("DELETE", `/v1/approval-rules/${rule.id}`)).deleted, true);
  assert.equal((await json("DELETE", `/v1/approval-rules/${rule.id}`)).status, 404);
  assert.deepEqual((await json("GET", "/v1/approval-rules")).data, []);
});

test("remembering what always_ask names is refused, and the question stays", async () => {
  const { ask, json } = setUp();
  const id = await ask({ rule: "always_ask:shell" });
  const refused = await json("POST", `/v1/approvals/${id}`, { body: { decision: "approve", remember: "always" } });
  assert.deepEqual([refused.status, refused.error.param], [400, "remember"]);
  assert.equal((await json("GET", `/v1/approvals/${id}`)).status, "pending");
});

test("bad questions and answers name the field", async () => {
  const { ask, json } = setUp();
  const id = await ask();
  const rows:
    readonly (readonly [method: string, path: string, body: unknown, status: number, param: string | null])[] = [
      ["POST", `/v1/approvals/${id}`, {}, 400, "decision"],
      ["POST", `/v1/approvals/${id}`, { decision: "maybe" }, 400, "decision"],
      ["POST", `/v1/approvals/${id}`, { decision: "approve", remember: "ever" }, 400, "remember"],
      ["POST", `/v1/approvals/${id}`, { decision: "approve", note: "x".repeat(1001) }, 400, "note"],
      ["POST", "/v1/approvals/apr_unknown", { decision: "approve" }, 404, null],
      ["GET", "/v1/approvals/apr_unknown", undefined, 404, null],
      ["GET", "/v1/approvals?status=open", undefined, 400, "status"],
      ["GET", "/v1/approvals?limit=0", undefined, 400, "limit"],
      ["GET", "/v1/approvals?limit=1001", undefined, 400, "limit"],
      ["GET", "/v1/approvals?limit=x", undefined, 400, "limit"],
    ];
  for (const [method, path, body, status, param] of rows) {
    const reply = await json(method, path, body === undefined ? {} : { body });
    assert.deepEqual([reply.status, reply.error?.param], [status, param], `${method} ${path} ${JSON.stringify(body)}`);
  }
  assert.equal((await json("GET", `/v1/approvals/${id}`)).status, "pending");
});

test("only the scope approve sees and answers", async () => {
  const { ask, json } = setUp();
  const id = await ask();
  for (const token of ["token_chat", "token_tools", "token_runs"]) {
    for (const path of ["/v1/approvals", `/v1/approvals/${id}`, "/v1/approval-rules"]) {
      assert.equal((await json("GET", path, { token })).error.code, "insufficient_scope");
    }
    const body = { decision: "approve" };
    assert.equal((await json("POST", `/v1/approvals/${id}`, { token, body })).error.code, "insufficient_scope");
  }
});

test("pages go on after the last id", async () => {
  const { ask, json } = setUp();
  const ids = [await ask(), await ask(), await ask()].reverse();
  const first = await json("GET", "/v1/approvals?limit=2");
  assert.deepEqual([first.data.map(({ id }: { id: string }) => id), first.has_more], [ids.slice(0, 2), true]);
  const second = await json("GET", `/v1/approvals?limit=2&after=${first.last_id}`);
  assert.deepEqual([second.data.map(({ id }: { id: string }) => id), second.has_more], [ids.slice(2), false]);
});

test("what a server asks is answered with content that fits its form, by the scope approve alone", async () => {
  const { services, ask, json } = setUp();
  const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] } as const;
  const elicitation = { server: "crm", message: "Who?", schema: { ...schema, required: ["name"] }, url: null };
  const id = await ask({ elicitation, rule: "elicitation:crm" });
  const waiting = services.approvals.elicited(id, new AbortController().signal);
  const shown = await json("GET", `/v1/approvals/${id}`);
  assert.deepEqual([shown.kind, shown.server, shown.message, shown.schema], ["elicitation", "crm", "Who?", schema]);
  const answer = (content: unknown, token?: string) =>
    json("POST", `/v1/approvals/${id}`, {
      body: { decision: "approve", content },
      ...token === undefined ? {} : { token },
    });
  assert.equal((await answer({ name: "Ada" }, "token_runs")).error.code, "insufficient_scope");
  for (
    const [content, param] of [
      [{ name: 1 }, "content.name"],
      [{}, "content.name"],
      [{ name: "Ada", x: 1 }, "content.x"],
      ["Ada", "content"],
      [[], "content"],
    ]
  ) {
    const { status, error } = await answer(content);
    assert.deepEqual([status, error?.param], [400, param], JSON.stringify(content));
  }
  const answered = await answer({ name: "Ada" });
  assert.deepEqual([answered.status, "content" in answered], ["approved", false]);
  assert.deepEqual((await waiting).content, { name: "Ada" });
  const call = await ask();
  const refused = await json("POST", `/v1/approvals/${call}`, {
    body: { decision: "approve", content: { name: "Ada" } },
  });
  assert.deepEqual([refused.status, refused.error.param], [400, "content"]);
});
