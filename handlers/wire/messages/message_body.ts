import * as v from "valibot";
import { IMAGE_URL, MAX_WHOLE } from "../completion_body.ts";

/**
 * The body of POST /v1/messages: the contract and the source of its OpenAPI schema. Optional fields may be `null`, which equals absent, and
 * unknown ones are allowed anywhere. Nothing of a body is changed, since a provider of the same format gets it as it came.
 * Source: https://docs.anthropic.com/en/api/messages
 */

const whole = (min: number) => v.nullish(v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(MAX_WHOLE)));
const fraction = v.nullish(v.pipe(v.number(), v.minValue(0), v.maxValue(1)));

const textBlock = v.looseObject({ type: v.literal("text"), text: v.string() });
const address = v.pipe(v.string(), v.regex(IMAGE_URL, "Expected an http, https or data URL"));
const base64Source = v.looseObject({ type: v.literal("base64"), media_type: v.string(), data: v.string() });
const urlSource = v.looseObject({ type: v.literal("url"), url: address });

const imageBlock = v.looseObject({
  type: v.literal("image"),
  source: v.variant("type", [base64Source, urlSource, v.looseObject({ type: v.literal("file") })]),
});

const documentBlock = v.looseObject({
  type: v.literal("document"),
  title: v.nullish(v.string()),
  context: v.nullish(v.string()),
  source: v.variant("type", [
    base64Source,
    urlSource,
    v.looseObject({ type: v.literal("text"), data: v.string() }),
    v.looseObject({
      type: v.literal("content"),
      content: v.union([v.string(), v.array(v.variant("type", [textBlock, imageBlock]))]),
    }),
    v.looseObject({ type: v.literal("file") }),
  ]),
});

const OTHER_BLOCK = /^(?!(?:text|image|document|tool_use|tool_result|thinking|redacted_thinking)$)/;
const otherBlock = v.looseObject({ type: v.pipe(v.string(), v.regex(OTHER_BLOCK)) });

const resultContent = v.union([
  v.string(),
  v.array(v.variant("type", [textBlock, imageBlock, documentBlock, otherBlock])),
]);

const blockSchema = v.variant("type", [
  textBlock,
  imageBlock,
  documentBlock,
  v.looseObject({ type: v.literal("tool_use"), id: v.string(), name: v.string(), input: v.looseObject({}) }),
  v.looseObject({
    type: v.literal("tool_result"),
    tool_use_id: v.string(),
    content: v.nullish(resultContent),
    is_error: v.nullish(v.boolean()),
  }),
  v.looseObject({ type: v.literal("thinking"), thinking: v.string(), signature: v.nullish(v.string()) }),
  v.looseObject({ type: v.literal("redacted_thinking"), data: v.string() }),
  otherBlock,
]);

/** Names of the client's tools, as the vendor accepts them. */
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,128}$/;

const toolSchema = v.looseObject({
  name: v.pipe(v.string(), v.regex(TOOL_NAME, "Expected 1 to 128 letters, digits, _ or -")),
  /** Absent or `custom`: a tool of the client's own. Any other: one that the vendor has defined */
  type: v.nullish(v.string()),
  description: v.nullish(v.string()),
  input_schema: v.nullish(v.looseObject({})),
  strict: v.nullish(v.boolean()),
});

const choiceSchema = v.variant("type", [
  v.looseObject({ type: v.literal("auto"), disable_parallel_tool_use: v.nullish(v.boolean()) }),
  v.looseObject({ type: v.literal("any"), disable_parallel_tool_use: v.nullish(v.boolean()) }),
  v.looseObject({ type: v.literal("tool"), name: v.string(), disable_parallel_tool_use: v.nullish(v.boolean()) }),
  v.looseObject({ type: v.literal("none") }),
]);

/** Fields by which a message is counted. */
const counted = {
  model: v.nullish(v.string()),
  messages: v.pipe(
    v.array(v.looseObject({
      role: v.picklist(["user", "assistant", "system"]),
      content: v.union([v.string(), v.array(blockSchema)]),
    })),
    v.minLength(1, "Expected at least one message"),
  ),
  system: v.nullish(v.union([v.string(), v.array(textBlock)])),
  tools: v.nullish(v.array(toolSchema)),
  tool_choice: v.nullish(choiceSchema),
  thinking: v.nullish(v.looseObject({
    type: v.picklist(["enabled", "disabled", "adaptive"]),
    budget_tokens: whole(1),
  })),
  output_config: v.nullish(v.looseObject({
    effort: v.nullish(v.string()),
    format: v.nullish(v.looseObject({ type: v.string() })),
  })),
};

/** Schema of the body of POST /v1/messages/count_tokens. */
export const countTokensSchema = v.looseObject(counted);

/** Schema of the body of POST /v1/messages. */
export const messagesSchema = v.looseObject({
  ...counted,
  max_tokens: whole(1),
  stream: v.nullish(v.boolean()),
  stop_sequences: v.nullish(v.array(v.string())),
  temperature: fraction,
  top_p: fraction,
  top_k: whole(0),
  metadata: v.nullish(v.looseObject({ user_id: v.nullish(v.string()) })),
});

/** A body of POST /v1/messages that has passed the check. */
export type MessagesBody = v.InferOutput<typeof messagesSchema>;
/** A content block of a request. */
export type MessageBlock = v.InferOutput<typeof blockSchema>;
/** A tool that a request declares. */
export type MessageTool = v.InferOutput<typeof toolSchema>;
