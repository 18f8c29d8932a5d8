import assert from "node:assert/strict";
import * as v from "valibot";
import { readSse } from "./sse.ts";

/**
 * The schemas of the Open Responses specification of 2026-04-24, as far as replies and streams have them, and the order of the parts of a
 * stream. Extensions have a name of their own with a colon, and OpenAI's events of custom tools are those of its client's types.
 */

const whole = v.pipe(v.number(), v.integer());
const nullable = <S extends v.GenericSchema>(schema: S) => v.nullable(schema);
const typed = <const T extends string, E extends v.ObjectEntries>(type: T, entries: E) =>
  v.looseObject({ type: v.literal(type), ...entries });

const part = v.variant("type", [
  typed("output_text", {
    text: v.string(),
    annotations: v.array(v.looseObject({})),
    logprobs: v.array(v.looseObject({})),
  }),
  typed("refusal", { refusal: v.string() }),
  typed("summary_text", { text: v.string() }),
  typed("reasoning_text", { text: v.string() }),
]);
const status = v.picklist(["in_progress", "completed", "incomplete"]);
const call = { id: v.string(), call_id: v.string(), name: v.string() };
const item = v.variant("type", [
  typed("message", { id: v.string(), status, role: v.literal("assistant"), content: v.array(part) }),
  typed("function_call", { ...call, arguments: v.string(), status }),
  typed("custom_tool_call", { ...call, input: v.string() }),
  typed("tool_search_call", {
    id: v.string(),
    call_id: v.string(),
    execution: v.literal("client"),
    arguments: v.unknown(),
    status,
  }),
  typed("reasoning", {
    id: v.string(),
    summary: v.array(part),
    content: v.optional(v.array(part)),
    encrypted_content: v.optional(v.string()),
  }),
  typed("compaction", { id: v.string(), encrypted_content: v.string() }),
  typed("postern:tool_call", { ...call, arguments: v.string(), output: nullable(v.string()), status: v.string() }),
]);

const choice = v.looseObject({ type: v.literal("function"), name: v.optional(v.string()) });
const response = v.looseObject({
  id: v.pipe(v.string(), v.startsWith("resp_")),
  object: v.literal("response"),
  created_at: whole,
  completed_at: nullable(whole),
  status: v.picklist(["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]),
  incomplete_details: nullable(v.object({ reason: v.string() })),
  model: v.string(),
  previous_response_id: nullable(v.string()),
  instructions: nullable(v.string()),
  output: v.array(item),
  error: nullable(v.object({ code: v.string(), message: v.string() })),
  tools: v.array(v.union([
    typed("function", {
      name: v.string(),
      description: nullable(v.string()),
      parameters: nullable(v.looseObject({})),
      strict: nullable(v.boolean()),
    }),
    v.looseObject({ type: v.pipe(v.string(), v.notValue("function")) }),
  ])),
  tool_choice: v.union([
    choice,
    v.picklist(["none", "auto", "required"]),
    v.looseObject({ type: v.literal("allowed_tools"), mode: v.string(), tools: v.array(choice) }),
  ]),
  truncation: v.picklist(["auto", "disabled"]),
  parallel_tool_calls: v.boolean(),
  text: v.looseObject({ format: v.looseObject({ type: v.picklist(["text", "json_object", "json_schema"]) }) }),
  top_p: v.number(),
  presence_penalty: v.number(),
  frequency_penalty: v.number(),
  top_logprobs: whole,
  temperature: v.number(),
  reasoning: nullable(v.looseObject({ effort: nullable(v.string()), summary: nullable(v.string()) })),
  usage: nullable(v.object({
    input_tokens: whole,
    output_tokens: whole,
    total_tokens: whole,
    input_tokens_details: v.object({ cached_tokens: whole }),
    output_tokens_details: v.object({ reasoning_tokens: whole }),
  })),
  max_output_tokens: nullable(whole),
  max_tool_calls: nullable(whole),
  store: v.boolean(),
  background: v.boolean(),
  service_tier: v.string(),
  metadata: v.looseObject({}),
  safety_identifier: nullable(v.string()),
  prompt_cache_key: nullable(v.string()),
});

const event = <const T extends string, E extends v.ObjectEntries>(type: T, entries: E) =>
  v.strictObject({ type: v.literal(type), sequence_number: whole, ...entries });
const inItem = { item_id: v.string(), output_index: whole };
const inContent = { ...inItem, content_index: whole };
const inSummary = { ...inItem, summary_index: whole };
const logprobs = v.array(v.looseObject({}));
const streamed = v.variant("type", [
  event("response.created", { response }),
  event("response.queued", { response }),
  event("response.in_progress", { response }),
  event("response.completed", { response }),
  event("response.incomplete", { response }),
  event("response.failed", { response }),
  event("response.output_item.added", { output_index: whole, item }),
  event("response.output_item.done", { output_index: whole, item }),
  event("response.content_part.added", { ...inContent, part }),
  event("response.content_part.done", { ...inContent, part }),
  event("response.output_text.delta", { ...inContent, delta: v.string(), logprobs }),
  event("response.output_text.done", { ...inContent, text: v.string(), logprobs }),
  event("response.refusal.delta", { ...inContent, delta: v.string() }),
  event("response.refusal.done", { ...inContent, refusal: v.string() }),
  event("response.reasoning_summary_part.added", { ...inSummary, part }),
  event("response.reasoning_summary_part.done", { ...inSummary, part }),
  event("response.reasoning_summary_text.delta", { ...inSummary, delta: v.string() }),
  event("response.reasoning_summary_text.done", { ...inSummary, text: v.string() }),
  event("response.function_call_arguments.delta", { ...inItem, delta: v.string() }),
  event("response.function_call_arguments.done", { ...inItem, name: v.string(), arguments: v.string() }),
  event("response.custom_tool_call_input.delta", { ...inItem, delta: v.string() }),
  event("response.custom_tool_call_input.done", { ...inItem, input: v.string() }),
]);

/** A reply that has passed the schema. */
export type CheckedResponse = v.InferOutput<typeof response>;
/** A streaming event that has passed the schema. */
export type CheckedEvent = v.InferOutput<typeof streamed>;

/** Checks a JSON reply by the schema of the specification. */
export function checkResponse(value: unknown): CheckedResponse {
  return v.parse(response, value);
}

/** Checks a stream: each event by its schema, its number, and that all that is begun is ended and is the reply of the last event. */
export function checkEvents(
  text: string,
): { readonly events: readonly CheckedEvent[]; readonly response: CheckedResponse } {
  const { data } = readSse(text);
  assert.equal(data.at(-1), "[DONE]");
  const events = data.slice(0, -1).map((line) => {
    const parsed = v.safeParse(streamed, JSON.parse(line));
    assert.ok(parsed.success, `${line}: ${parsed.issues?.map(({ message }) => message).join("; ")}`);
    return parsed.output;
  });
  assert.deepEqual(text.match(/^event: .*$/gm), events.map(({ type }) => `event: ${type}`));
  assert.deepEqual(events.slice(0, 2).map(({ type }) => type), ["response.created", "response.in_progress"]);
  const numbers = events.map((one) => one.sequence_number);
  assert.ok(numbers.every((number, at) => at === 0 || number > (numbers[at - 1] ?? 0)), `numbers: ${numbers.join()}`);
  const last = events.at(-1);
  assert.ok(last !== undefined && "response" in last && last.response.status !== "in_progress");
  checkLifecycles(events, last.response);
  return { events, response: last.response };
}

function checkLifecycles(events: readonly CheckedEvent[], last: CheckedResponse): void {
  const open = new Map<number, string>();
  const parts = new Map<string, string>();
  const whole: unknown[] = [];
  for (const one of events) {
    switch (one.type) {
      case "response.output_item.added":
        assert.ok(!open.has(one.output_index) && whole[one.output_index] === undefined, "an item is added once");
        open.set(one.output_index, one.item.id);
        break;
      case "response.output_item.done":
        assert.equal(open.get(one.output_index), one.item.id);
        open.delete(one.output_index);
        assert.ok([...parts.keys()].every((key) => !key.startsWith(`${one.item.id} `)), "an item ends after its parts");
        whole[one.output_index] = one.item;
        break;
      case "response.content_part.added":
      case "response.reasoning_summary_part.added":
        assert.equal(open.get(one.output_index), one.item_id);
        parts.set(keyOf(one), "");
        break;
      case "response.content_part.done":
      case "response.reasoning_summary_part.done":
        assert.equal("refusal" in one.part ? one.part.refusal : one.part.text, parts.get(keyOf(one)));
        parts.delete(keyOf(one));
        break;
      case "response.output_text.delta":
      case "response.refusal.delta":
      case "response.reasoning_summary_text.delta":
        assert.ok(parts.has(keyOf(one)), "a delta comes in a part that was added");
        parts.set(keyOf(one), parts.get(keyOf(one)) + one.delta);
        break;
    }
  }
  assert.deepEqual([...open], [], "every item is ended");
  assert.deepEqual([...parts], [], "every part is ended");
  assert.deepEqual(whole, last.output);
}

function keyOf(one: { readonly item_id: string; readonly content_index?: number; readonly summary_index?: number }) {
  return `${one.item_id} ${one.content_index ?? `s${one.summary_index}`}`;
}
