import assert from "node:assert/strict";
import { test } from "node:test";
import * as handlers from "../../../handlers/handlers.ts";
import { CancelError } from "../../../lib/base/cancel.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { accepted, jsonOf } from "../../support/json_of.ts";
import { answer, createScriptedRuns, type ScriptStep } from "../../support/scripted_runs.ts";
import { createTestRouter } from "../../support/test_router.ts";

interface ChatOptions {
  /** false: no agent is configured */
  readonly agent?: boolean;
  readonly signal?: AbortSignal;
  readonly script?: readonly ScriptStep[];
  readonly headers?: Record<string, string>;
  readonly path?: string;
}

function chat(body: unknown, options: ChatOptions = {}) {
  const clock = createFakeClock();
  const runs = createScriptedRuns({
    clock,
    script: () => options.script ?? answer("Hello there"),
    conversations: ["c1"],
  });
  const request = new Request(`http://gateway.test${options.path ?? "/api/chat"}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: "Bearer token_chat", ...options.headers },
    signal: options.signal ?? null,
    body: JSON.stringify(body),
  });
  const agent = { runs, providers: undefined as never };
  // Repeats are the router's
  const isKeyed = request.headers.has("idempotency-key");
  const answerChat = isKeyed
    ? createTestRouter({ agent }).router.fetch
    : handlers[options.path ? "legacyWebhook" : "chat"]({
      agent: options.agent === false ? undefined : agent,
      tools: {},
      identify: () => ({ identity: { tokenId: "tok_1", scopes: ["chat"] } }),
    });
  return { clock, runs, response: Promise.resolve(answerChat(request)) };
}

for (const path of ["/api/chat", "/webhook"]) {
  test(`POST ${path} answers with text, tokens, run and conversation`, async () => {
    const { runs, response } = chat({ message: "hi" }, path === "/webhook" ? { path } : {});
    assert.deepEqual(await jsonOf(response), {
      message: "Hello there",
      tokens_used_estimate: 5,
      usage_source: "provider",
      run_id: "run_1",
      conversation_id: "conv_2",
    });
    const request = runs.started[0]?.request;
    assert.deepEqual(request?.messages, [{ role: "user", content: "hi" }]);
    assert.equal(request?.conversationId, "new");
    assert.equal(request?.kind, "chat");
    assert.equal(request?.agentTools, "configured");
    assert.equal(request?.durable, false);
  });
}

test("a named conversation goes on, with the model of the request", async () => {
  const { runs, response } = chat({ message: "hi", conversation_id: "c1", model: "test/x", context: null });
  assert.equal((await jsonOf(response)).conversation_id, "c1");
  assert.equal(runs.started[0]?.request.model, "test/x");
});

test("context goes before the message as a part of its own", async () => {
  const { runs, response } = chat({ message: "what is it?", context: "It rains" });
  await response;
  assert.deepEqual(runs.started[0]?.request.messages, [
    { role: "user", content: [{ type: "text", text: "It rains" }, { type: "text", text: "what is it?" }] },
  ]);
});

test("bad bodies name the field", async () => {
  const bad: readonly [unknown, string | null][] = [
    [{}, "message"],
    [{ message: "" }, "message"],
    [{ message: " \n\u00a0" }, "message"],
    [{ message: 5 }, "message"],
    [{ message: "x", context: {} }, "context"],
    [{ message: "x", conversation_id: "c".repeat(129) }, "conversation_id"],
    ["hi", null],
  ];
  for (const [body, param] of bad) {
    await assert.rejects(accepted(chat(body).response), { status: 400, code: "invalid_request", param });
  }
});

test("a message of blanks alone is refused with the reason", async () => {
  await assert.rejects(
    accepted(chat({ message: "\n\n" }).response),
    /^HttpError: Cannot accept "message": expected a text with more than blanks$/,
  );
});

test("unknown fields are named, not refused", async () => {
  assert.equal((await chat({ message: "x", temperature: 1 }).response).headers.get("x-postern-ignored"), "temperature");
});

test("an unknown conversation is what the supervisor says of it", async () => {
  await assert.rejects(accepted(chat({ message: "x", conversation_id: "nobody" }).response), {
    status: 404,
    code: "not_found",
  });
});

test("a run that fails gives the error shape", async () => {
  const script: ScriptStep[] = [[{ type: "text_delta", delta: "x" }], [{
    type: "error",
    code: "provider_timeout",
    message: "Slow",
  }]];
  const reply = await chat({ message: "x" }, { script }).response;
  assert.equal(reply.status, 504);
  assert.deepEqual((await jsonOf(reply)).error, {
    message: "Slow",
    type: "api_error",
    code: "provider_timeout",
    param: null,
  });
});

test("without an agent it is 503 agent_unavailable", async () => {
  await assert.rejects(accepted(chat({ message: "x" }, { agent: false }).response), {
    status: 503,
    code: "agent_unavailable",
  });
});

test("a client that goes away cancels the run, with an Idempotency-Key it does not", async () => {
  const gone = new AbortController();
  const attached = chat({ message: "x" }, { script: ["hang"], signal: gone.signal });
  await attached.clock.advance(1);
  gone.abort(new CancelError("client_gone"));
  await attached.response;
  assert.deepEqual(attached.runs.started[0]?.cancelled, ["client_gone"]);
  const durable = chat({ message: "x" }, { signal: gone.signal, headers: { "idempotency-key": "k" } });
  assert.equal((await durable.response).status, 200);
  assert.equal(durable.runs.started[0]?.request.durable, true);
});
