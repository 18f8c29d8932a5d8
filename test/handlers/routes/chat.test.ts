import assert from "node:assert/strict";
import { test } from "node:test";
import type { Route } from "../../../handlers/route.ts";
import { chatRoute, legacyWebhookRoute } from "../../../handlers/routes/chat.ts";
import { CancelError } from "../../../lib/base/cancel.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { jsonOf } from "../../support/json_of.ts";
import { answer, createScriptedRuns, type ScriptStep } from "../../support/scripted_runs.ts";
import { createWireContext, type WireContextOptions } from "../../support/wire_context.ts";

interface ChatOptions extends Partial<WireContextOptions> {
  readonly script?: readonly ScriptStep[];
  readonly headers?: Record<string, string>;
  readonly route?: Route;
}

function chat(body: unknown, options: ChatOptions = {}) {
  const clock = createFakeClock();
  const runs = createScriptedRuns({
    clock,
    script: () => options.script ?? answer("Hello there"),
    conversations: ["c1"],
  });
  const request = new Request("http://gateway.test/api/chat", {
    method: "POST",
    headers: { "content-type": "application/json", ...options.headers },
    body: JSON.stringify(body),
  });
  const context = createWireContext(request, { runs, clock, ...options });
  return { clock, runs, context, response: Promise.resolve((options.route ?? chatRoute).handler(request, context)) };
}

for (const route of [chatRoute, legacyWebhookRoute]) {
  test(`POST ${route.path} answers with text, tokens, run and conversation`, async () => {
    const { runs, response } = chat({ message: "hi" }, { route });
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
    await assert.rejects(chat(body).response, { status: 400, code: "invalid_request", param });
  }
});

test("a message of blanks alone is refused with the reason", async () => {
  await assert.rejects(
    chat({ message: "\n\n" }).response,
    /^HttpError: Cannot accept "message": expected a text with more than blanks$/,
  );
});

test("unknown fields are named, not refused", async () => {
  assert.equal((await chat({ message: "x", temperature: 1 }).response).headers.get("x-postern-ignored"), "temperature");
});

test("an unknown conversation is what the supervisor says of it", async () => {
  await assert.rejects(chat({ message: "x", conversation_id: "nobody" }).response, { status: 404, code: "not_found" });
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
  await assert.rejects(chat({ message: "x" }, { runs: undefined }).response, {
    status: 503,
    code: "agent_unavailable",
  });
});

test("a client that goes away cancels the run, with an Idempotency-Key it does not", async () => {
  const gone = new AbortController();
  const attached = chat({ message: "x" }, { script: ["hang"], controller: gone });
  await attached.clock.advance(1);
  gone.abort(new CancelError("client_gone"));
  await attached.response;
  assert.deepEqual(attached.runs.started[0]?.cancelled, ["client_gone"]);
  const durable = chat({ message: "x" }, { controller: gone, headers: { "idempotency-key": "k" } });
  assert.equal((await durable.response).status, 200);
  assert.equal(durable.runs.started[0]?.request.durable, true);
});
