/**
 * Measures the cost of the wire beside the run: microseconds of one core: `node test/bench/wire.bench.ts`. Lower is better; the first
 * round only warms up, and the median of the others is printed.
 */
import { performance } from "node:perf_hooks";
import * as v from "valibot";
import { chatCompletions } from "../../handlers/handlers.ts";
import { CompletionChunks } from "../../handlers/wire/completion_reply.ts";
import { completionSchema, isCompletionBody } from "../../handlers/wire/completion_body.ts";
import { eventStream } from "../../handlers/wire/event_stream.ts";
import { toCompletionInput } from "../../handlers/wire/to_completion_input.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { HttpError, refuse } from "../../lib/base/errors.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { RunHandle, RunSupervisor } from "../../lib/runs/run_request.ts";
import { median } from "./median.ts";

const ROUNDS = 6;
const CHUNKS = 100;
const USAGE = { prompt_tokens: 10, completion_tokens: 100, total_tokens: 110 };
const TIME = "2026-01-01T00:00:00.000Z";

async function measure(name: string, times: number, work: () => unknown): Promise<void> {
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const started = performance.now();
    for (let i = 0; i < times; i++) await work();
    if (round > 0) rounds.push(((performance.now() - started) * 1000) / times);
  }
  console.log(`${name.padEnd(64)}${median(rounds).toFixed(2).padStart(10)} us`);
}

/** `count` deltas in arrays of `each`, then the end. */
function arraysOf(count: number, each: number): readonly (readonly AgentEvent[])[] {
  const events: AgentEvent[] = Array.from(
    { length: count },
    (_, i) => ({ type: "text_delta", seq: i + 1, time: TIME, delta: " word" }),
  );
  events.push({ type: "done", seq: count + 1, time: TIME, finish_reason: "stop", usage: USAGE });
  return Array.from({ length: Math.ceil(events.length / each) }, (_, i) => events.slice(i * each, (i + 1) * each));
}

async function* play(arrays: readonly (readonly AgentEvent[])[]) {
  for (const events of arrays) yield events;
}

const encoder = () =>
  new CompletionChunks({
    id: "chatcmpl-0123456789abcdefghijklmn",
    created: 1,
    model: "test/model",
    includeUsage: true,
    toError: ({ code, message }) => new HttpError(code, message, { status: 500, type: "api_error" }),
  });

async function drain(stream: ReadableStream<Uint8Array>): Promise<number> {
  const reader = stream.getReader();
  let bytes = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) bytes += next.value.length;
  return bytes;
}

const ours = (arrays: readonly (readonly AgentEvent[])[]) =>
  drain(eventStream({
    opening: { iterator: play(arrays), held: [], pending: undefined },
    encoder: encoder(),
    clock: systemClock,
    toError: () => refuse("internal_error", ""),
    onLeave: () => {},
  }));

/** The other way to build it: an async generator over the events, made a stream by the runtime. */
const generated = (arrays: readonly (readonly AgentEvent[])[]) => {
  const chunks = encoder();
  async function* encode() {
    yield Buffer.from(chunks.start());
    for await (const events of play(arrays)) yield Buffer.from(chunks.encode(events));
  }
  return drain(ReadableStream.from(encode()) as ReadableStream<Uint8Array>);
};

const body = (messages: number) => ({
  model: "test/model",
  temperature: 0.5,
  max_tokens: 100,
  messages: Array.from(
    { length: messages },
    (_, i) => ({ role: i % 2 ? "assistant" : "user", content: "A question of some length. ".repeat(4) }),
  ),
});

for (const messages of [1, 40]) {
  const value = body(messages);
  await measure(`body of ${messages} messages: valibot`, 5_000, () => v.is(completionSchema, value));
  await measure(`body of ${messages} messages: by hand`, 50_000, () => isCompletionBody(value));
  await measure(`body of ${messages} messages: translated`, 50_000, () => toCompletionInput(value as never));
}
for (const each of [1, 10, 100]) {
  const arrays = arraysOf(CHUNKS, each);
  await measure(`${CHUNKS} chunks in arrays of ${each}: encoded`, 5_000, () => {
    const chunks = encoder();
    let bytes = 0;
    for (const events of arrays) bytes += Buffer.from(chunks.encode(events)).length;
    return bytes;
  });
  await measure(`${CHUNKS} chunks in arrays of ${each}: pull-driven stream, read`, 1_000, () => ours(arrays));
  await measure(`${CHUNKS} chunks in arrays of ${each}: generator and from(), read`, 1_000, () => generated(arrays));
}

const arrays = arraysOf(CHUNKS, 10);
const handle: RunHandle = {
  id: "run_1",
  model: "test/model",
  conversationId: null,
  durable: false,
  events: () => play(arrays),
  cancel: () => {},
  leave: () => {},
  hadEffect: () => false,
};
const runs = { start: () => Promise.resolve(handle) } as unknown as RunSupervisor; // the handler calls nothing else
for (const stream of [false, true]) {
  const bytes = Buffer.from(JSON.stringify({ ...body(1), stream }));
  const identify = () => ({ identity: { tokenId: "tok_1", scopes: ["chat"] as const } });
  const complete = chatCompletions({ agent: { runs }, tools: {}, identify });
  const init = { method: "POST", headers: { "content-type": "application/json" }, body: bytes };
  await measure(`the handler, ${CHUNKS} chunks in arrays of 10, ${stream ? "SSE" : "JSON"}, read`, 1_000, async () => {
    const reply = await complete(new Request("http://gateway.test/v1/chat/completions", init));
    return reply.body === null ? 0 : await drain(reply.body);
  });
}
