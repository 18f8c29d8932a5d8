import assert from "node:assert/strict";
import { test } from "node:test";
import { chatCompletions } from "../../../handlers/handlers.ts";
import { CancelError } from "../../../lib/base/cancel.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { jsonOf } from "../../support/json_of.ts";
import { answer, createScriptedRuns, type ScriptStep } from "../../support/scripted_runs.ts";
import { readSse } from "../../support/sse.ts";
import { createTestRouter } from "../../support/test_router.ts";

const USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };

interface StreamOptions {
  readonly script: readonly ScriptStep[];
  readonly body?: Record<string, unknown>;
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal;
}

function stream(options: StreamOptions) {
  const clock = createFakeClock();
  const runs = createScriptedRuns({ clock, script: () => options.script });
  const request = new Request("http://gateway.test/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json", authorization: "Bearer token_chat", ...options.headers },
    signal: options.signal ?? null,
    body: JSON.stringify({ stream: true, messages: [{ role: "user", content: "hi" }], ...options.body }),
  });
  const agent = { runs, providers: undefined as never };
  // Repeats are the router's
  const complete = request.headers.has("idempotency-key") ? createTestRouter({ agent }).router.fetch : chatCompletions({
    agent,
    tools: {},
    identify: () => ({ identity: { tokenId: "tok_1", scopes: ["chat"] } }),
    kit: { clock, log: SILENT },
  });
  return { clock, runs, response: Promise.resolve(complete(request)) };
}

async function chunksOf(response: Promise<Response>) {
  const { data } = readSse(await (await response).text());
  assert.equal(data.at(-1), "[DONE]");
  return data.slice(0, -1).map((text) => JSON.parse(text));
}

async function readerOf(response: Promise<Response>) {
  const reader = ((await response).body ?? assert.fail("no body")).getReader();
  return { read: async () => Buffer.from((await reader.read()).value ?? "").toString(), cancel: () => reader.cancel() };
}

test("a stream is the role, the deltas, the reason and [DONE] under one id", async () => {
  const { response } = stream({ script: answer("Hello there") });
  const chunks = await chunksOf(response);
  assert.deepEqual(chunks.map((chunk) => chunk.choices[0].delta), [
    { role: "assistant", content: "" },
    { content: "Hello " },
    { content: "there" },
    {},
  ]);
  assert.deepEqual(chunks.map((chunk) => chunk.choices[0].finish_reason), [null, null, null, "stop"]);
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
  const { id, choices: _, ...rest } = chunks[0];
  assert.match(id, /^chatcmpl-/);
  assert.deepEqual(rest, {
    object: "chat.completion.chunk",
    created: Date.UTC(2026, 0, 1) / 1000,
    model: "test/model",
  });
});

test("a stream is never cached, transformed or buffered", async () => {
  const { headers } = await stream({ script: answer("x") }).response;
  assert.match(headers.get("content-type") ?? "", /^text\/event-stream/);
  assert.equal(headers.get("cache-control"), "no-cache, no-transform");
  assert.equal(headers.get("x-accel-buffering"), "no");
});

test("include_usage adds a last chunk without choices, and null in the others", async () => {
  const chunks = await chunksOf(
    stream({ script: answer("x"), body: { stream_options: { include_usage: true } } }).response,
  );
  const last = chunks.pop();
  assert.deepEqual(last.choices, []);
  assert.deepEqual(last.usage, USAGE);
  assert.ok(chunks.every((chunk) => chunk.usage === null));
});

test("a tool call streams its id, type and name once, then its arguments", async () => {
  const script: ScriptStep[] = [
    [{ type: "client_tool_call_delta", index: 0, call_id: "c1", name: "add", arguments_delta: "" }],
    [{ type: "client_tool_call_delta", index: 0, call_id: "c1", arguments_delta: '{"a":1}' }],
    [{ type: "done", finish_reason: "tool_calls", usage: USAGE }],
  ];
  const chunks = await chunksOf(stream({ script }).response);
  assert.deepEqual(chunks.slice(1).map((chunk) => chunk.choices[0].delta), [
    { tool_calls: [{ index: 0, id: "c1", type: "function", function: { name: "add", arguments: "" } }] },
    { tool_calls: [{ index: 0, function: { arguments: '{"a":1}' } }] },
    {},
  ]);
});

test("reasoning, refusals and text with quotes, newlines and half emoji arrive as they were", async () => {
  const script: ScriptStep[] = [
    [{ type: "reasoning_delta", delta: 'a "b"\n' }, { type: "refusal_delta", delta: "no" }],
    [{ type: "text_delta", delta: "x\r\n\u2028\ud83d" }, { type: "text_delta", delta: "\ude00" }],
    [{ type: "done", finish_reason: "stop", usage: USAGE }],
  ];
  const deltas = (await chunksOf(stream({ script }).response)).map((chunk) => chunk.choices[0].delta);
  assert.equal(deltas[1].reasoning_content, 'a "b"\n');
  assert.equal(deltas[2].refusal, "no");
  assert.equal(deltas[3].content + deltas[4].content, "x\r\n\u2028\u{1f600}");
});

test("the agent's own tool calls and notices leave no trace in the stream", async () => {
  const script: ScriptStep[] = [
    [{ type: "tool_start", call_id: "c", tool: "read_file", input: {} }],
    [{ type: "tool_end", call_id: "c", tool: "read_file", output: "x", is_error: false, duration_ms: 1 }],
    [{ type: "notice", code: "loop", message: "careful" }],
    ...answer("ok"),
  ];
  const chunks = await chunksOf(stream({ script }).response);
  assert.deepEqual(chunks.map((chunk) => chunk.choices[0].delta.content ?? ""), ["", "ok", ""]);
});

test("events of one read leave as one piece of bytes", async () => {
  const reader = await readerOf(stream({ script: answer("one two three") }).response);
  assert.equal(readSse(await reader.read()).data.length, 4);
  assert.equal(readSse(await reader.read()).data.length, 2);
  assert.equal(await reader.read(), "");
});

test("an error before the first byte has its own status", async () => {
  const thrown = stream({
    script: [{ throws: new ProviderError("model_not_found", "No such model", { provider: "p" }) }],
  });
  assert.equal((await thrown.response).status, 404);
  const told = stream({
    script: [[{ type: "turn_start", turn: 1 }], [{ type: "error", code: "provider_timeout", message: "Slow" }]],
  });
  const reply = await told.response;
  assert.equal(reply.status, 504);
  assert.equal((await jsonOf(reply)).error.code, "provider_timeout");
});

test("an error after the first byte is an error event and then [DONE], never a clean end", async () => {
  const script: ScriptStep[] = [[{ type: "text_delta", delta: "x" }], [{
    type: "error",
    code: "provider_error",
    message: "Broke",
  }]];
  const chunks = await chunksOf(stream({ script }).response);
  assert.deepEqual(chunks.at(-1), {
    error: { message: "Broke", type: "api_error", code: "provider_error", param: null },
  });
  assert.ok(chunks.slice(0, -1).every((chunk) => chunk.choices[0].finish_reason === null));
});

test("events that stop without an end, and a bug, are error events too", async () => {
  const silent = await chunksOf(stream({ script: [[{ type: "text_delta", delta: "x" }]] }).response);
  assert.equal(silent.at(-1).error.code, "internal_error");
  const bug = await chunksOf(
    stream({ script: [[{ type: "text_delta", delta: "x" }], { throws: new Error("secret") }] }).response,
  );
  assert.equal(bug.at(-1).error.code, "internal_error");
  assert.doesNotMatch(bug.at(-1).error.message, /secret/);
});

test("a turn asked again after a part of it was sent is an error, before that it is nothing", async () => {
  const again: ScriptStep[] = [
    [{ type: "text_delta", delta: "x" }],
    [{ type: "turn_restart", turn: 1, from_seq: 1 }],
    ...answer("x"),
  ];
  assert.equal((await chunksOf(stream({ script: again }).response)).at(-1).error.code, "run_interrupted");
  const before: ScriptStep[] = [
    [{ type: "turn_start", turn: 1 }],
    [{ type: "turn_restart", turn: 1, from_seq: 2 }],
    ...answer("x"),
  ];
  assert.equal((await chunksOf(stream({ script: before }).response)).at(-1).choices[0].finish_reason, "stop");
});

test("a model silent for 10 s gets a started stream, kept alive by a comment every 10 s", async () => {
  const { clock, response } = stream({ script: [{ waitMs: 25_000 }, ...answer("late")] });
  await clock.advance(10_000);
  const reader = await readerOf(response);
  assert.equal(readSse(await reader.read()).data.length, 1);
  const first = reader.read();
  await clock.advance(10_000);
  assert.equal(await first, ": keep-alive\n\n");
  const second = reader.read();
  await clock.advance(5_000);
  assert.match(await second, /"content":"late"/);
  assert.match(await reader.read(), /\[DONE\]/);
  assert.equal(await reader.read(), "");
  assert.equal(clock.pending(), 0);
});

test("a failure after a silent start is told inside the stream", async () => {
  const { clock, response } = stream({
    script: [{ waitMs: 12_000 }, { throws: new ProviderError("provider_timeout", "Slow", { provider: "p" }) }],
  });
  await clock.advance(12_000);
  const reply = await response;
  assert.equal(reply.status, 200);
  const chunks = await chunksOf(Promise.resolve(reply));
  assert.equal(chunks.at(-1).error.code, "provider_timeout");
});

test("a client that leaves in the middle stops the run, also while the model is silent", async () => {
  const { clock, runs, response } = stream({ script: [[{ type: "text_delta", delta: "x" }], "hang"] });
  const reader = await readerOf(response);
  await reader.read();
  const waiting = reader.read();
  await clock.advance(1);
  await reader.cancel();
  await waiting;
  await clock.advance(1);
  assert.deepEqual(runs.started[0]?.cancelled, ["client_gone"]);
  assert.equal(runs.active(), 0);
  assert.equal(clock.pending(), 0);
});

test("a client that leaves between two reads ends the iteration", async () => {
  const { clock, runs, response } = stream({
    script: [[{ type: "text_delta", delta: "x" }], [{ type: "text_delta", delta: "y" }], "hang"],
  });
  const reader = await readerOf(response);
  await reader.read();
  await reader.cancel();
  await clock.advance(1);
  assert.equal(runs.started[0]?.left, true);
  assert.equal(runs.active(), 0);
});

test("a client that leaves before the reply starts cancels the run", async () => {
  const gone = new AbortController();
  const { clock, runs, response } = stream({ script: ["hang"], signal: gone.signal });
  await clock.advance(1);
  gone.abort(new CancelError("client_gone"));
  await response;
  assert.deepEqual(runs.started[0]?.cancelled, ["client_gone"]);
});

test("a durable run goes on when its client leaves", async () => {
  const { clock, runs, response } = stream({
    script: [[{ type: "text_delta", delta: "x" }], "hang"],
    headers: { "idempotency-key": "k" },
  });
  const reader = await readerOf(response);
  await reader.read();
  await reader.cancel();
  await clock.advance(1);
  assert.deepEqual(runs.started[0]?.cancelled, []);
});

test("a reader that does not read stops the run's events, and no comments pile up", async () => {
  const steps: ScriptStep[] = Array.from({ length: 50 }, () => [{ type: "text_delta", delta: "x" } as const]);
  const { clock, runs, response } = stream({ script: [...steps, ...answer("end")] });
  const reader = await readerOf(response);
  await reader.read();
  await clock.advance(60_000);
  assert.equal(runs.started[0]?.arraysRead, 1);
  assert.equal(await reader.read(), ": keep-alive\n\n");
  const next = await reader.read();
  assert.match(next, /"content":"x"/);
});

test("a reader that takes nothing for 300 s is given up: its run ends and it finds an error, not a clean end", async () => {
  const { clock, runs, response } = stream({ script: [[{ type: "text_delta", delta: "x" }], "hang"] });
  const reader = await readerOf(response);
  await clock.advance(299_000);
  assert.deepEqual(runs.started[0]?.cancelled, []);
  await clock.advance(20_000);
  assert.deepEqual(runs.started[0]?.cancelled, ["client_gone"]);
  assert.equal(clock.pending(), 0);
  const { data } = readSse(await readAllOf(reader));
  assert.equal(JSON.parse(data.at(-2) ?? "").error.code, "request_timeout");
  assert.equal(data.at(-1), "[DONE]");
});

async function readAllOf(reader: { read(): Promise<string> }): Promise<string> {
  let all = "";
  for (let text = await reader.read(); text !== ""; text = await reader.read()) all += text;
  return all;
}
