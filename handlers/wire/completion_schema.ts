import * as v from "valibot";
import { OTHER_PART_TYPE } from "../../lib/base/records/message.ts";

/**
 * The body of POST /v1/chat/completions: the contract and the source of its OpenAPI schema.
 *
 * It keeps to plain validations, which convert to JSON Schema. Every optional field may be `null`, which equals absent. Unknown
 * fields are allowed and named in `x-postern-ignored`. `is_completion_body.ts` is the same check written by hand for the hot
 * path, and a property test holds the two together.
 * Source: the chat-completions format
 * Source: docs/design/completions.md "Requests"
 */

/** Schemes a model may be given for an image; `file:` would make a local model server read its own disk. */
export const IMAGE_URL = /^([hH][tT][tT][pP][sS]?:\/\/|[dD][aA][tT][aA]:)/;
/** Names of the client's tools, as the vendors accept them. */
export const CLIENT_TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
/** Upper bound of token counts and other whole numbers. */
export const MAX_WHOLE = Number.MAX_SAFE_INTEGER;

const whole = (min: number) => v.nullish(v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(MAX_WHOLE)));
const between = (min: number, max: number) => v.nullish(v.pipe(v.number(), v.minValue(min), v.maxValue(max)));

const partSchema = v.variant("type", [
  v.object({ type: v.literal("text"), text: v.string() }),
  v.object({
    type: v.literal("image_url"),
    image_url: v.object({
      url: v.pipe(v.string(), v.regex(IMAGE_URL, "Expected an http, https or data URL")),
      detail: v.nullish(v.string()),
    }),
  }),
  v.looseObject({ type: OTHER_PART_TYPE }),
]);
const contentSchema = v.union([v.string(), v.array(partSchema)]);

const toolCallSchema = v.object({
  id: v.string(),
  type: v.literal("function"),
  function: v.object({ name: v.string(), arguments: v.string() }),
});

const messageSchema = v.variant("role", [
  v.object({ role: v.literal("system"), content: contentSchema, name: v.nullish(v.string()) }),
  v.object({ role: v.literal("developer"), content: contentSchema, name: v.nullish(v.string()) }),
  v.object({ role: v.literal("user"), content: contentSchema, name: v.nullish(v.string()) }),
  v.object({
    role: v.literal("assistant"),
    content: v.nullish(contentSchema),
    refusal: v.nullish(v.string()),
    tool_calls: v.nullish(v.array(toolCallSchema)),
    name: v.nullish(v.string()),
  }),
  v.object({ role: v.literal("tool"), content: contentSchema, tool_call_id: v.string() }),
]);

const toolSchema = v.object({
  type: v.literal("function"),
  function: v.object({
    name: v.pipe(v.string(), v.regex(CLIENT_TOOL_NAME, "Expected 1 to 64 letters, digits, _ or -")),
    description: v.nullish(v.string()),
    parameters: v.nullish(v.looseObject({})),
    strict: v.nullish(v.boolean()),
  }),
});

const toolChoiceSchema = v.union([
  v.picklist(["auto", "none", "required"]),
  v.object({ type: v.literal("function"), function: v.object({ name: v.string() }) }),
]);

export const completionSchema = v.looseObject({
  model: v.nullish(v.string()),
  messages: v.pipe(v.array(messageSchema), v.minLength(1, "Expected at least one message")),
  stream: v.nullish(v.boolean()),
  stream_options: v.nullish(v.object({ include_usage: v.nullish(v.boolean()) })),
  temperature: between(0, 2),
  top_p: between(0, 1),
  max_tokens: whole(1),
  max_completion_tokens: whole(1),
  stop: v.nullish(v.union([v.string(), v.array(v.string())])),
  seed: whole(-MAX_WHOLE),
  presence_penalty: between(-2, 2),
  frequency_penalty: between(-2, 2),
  response_format: v.nullish(v.looseObject({ type: v.string() })),
  tools: v.nullish(v.array(toolSchema)),
  tool_choice: v.nullish(toolChoiceSchema),
  parallel_tool_calls: v.nullish(v.boolean()),
  user: v.nullish(v.string()),
  metadata: v.nullish(v.record(v.string(), v.string())),
  reasoning_effort: v.nullish(v.string()),
  n: whole(1),
  logprobs: v.nullish(v.boolean()),
});

export type CompletionBody = v.InferOutput<typeof completionSchema>;
export type CompletionMessage = CompletionBody["messages"][number];
export type CompletionTool = NonNullable<CompletionBody["tools"]>[number];
