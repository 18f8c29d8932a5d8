import * as v from "valibot";
import { isRecord } from "../../../lib/base/json.ts";
import { checkBody, withoutUsual } from "../check_body.ts";
import { IMAGE_URL, isFlag, isListOf, isNumber, isText, isWhole, MAX_WHOLE } from "../completion_body.ts";

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

const ROLES = ["user", "assistant", "system"] as const;

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
      role: v.picklist(ROLES),
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

/**
 * Checks a parsed body of a message, or of the count of its tokens, and returns it as it came.
 * @throws {HttpError} 400 `invalid_request` naming the field at fault
 */
export function readMessagesBody(json: unknown): MessagesBody {
  if (!isRecord(json)) return checkBody(messagesSchema, json, []);
  const { messages, tools } = json;
  // No schema looks at an unknown field, of which a body may have many
  const asked: Record<string, unknown> = {};
  for (const name in messagesSchema.entries) {
    if (Object.hasOwn(json, name) && !USUAL.get(name)?.(json[name])) asked[name] = json[name];
  }
  if (messages === undefined || Object.keys(asked).length > 0) {
    const usual = { role: "user", content: "" };
    asked["messages"] = Array.isArray(messages) ? withoutUsual(messages, isUsualMessage, usual) : messages;
    if (Array.isArray(tools)) asked["tools"] = withoutUsual(tools, isUsualMessageTool, { name: "usual" });
    checkBody(messagesSchema, asked, []);
  }
  // Each entry has passed, by the schema, which changes nothing, or by the same check by hand
  return json as MessagesBody;
}

/** Checks by hand of fields that most bodies have. Where one fails, the schema decides, and names the field at fault. */
const USUAL: ReadonlyMap<string, (value: unknown) => boolean> = new Map(Object.entries(
  {
    model: isText,
    messages: (value) => Array.isArray(value) && value.length > 0 && value.every(isUsualMessage),
    system: (value) => typeof value === "string" || isListOf(value, isTextBlock),
    tools: (value) => isListOf(value, isUsualMessageTool),
    max_tokens: (value) => isWhole(value, 1),
    stream: isFlag,
    temperature: (value) => isNumber(value, 0, 1),
    metadata: (value) => value === null || (isRecord(value) && isText(value.user_id)),
  } satisfies Partial<Record<keyof typeof messagesSchema.entries, (value: unknown) => boolean>>,
));

function isTextBlock(block: unknown): boolean {
  return isRecord(block) && block.type === "text" && typeof block.text === "string";
}

/** Tells whether a message is one of those that a client sends by the hundred; the schema takes each of these. */
export function isUsualMessage(message: unknown): boolean {
  if (!isRecord(message) || !ROLES.some((role) => role === message.role)) return false;
  return typeof message.content === "string" ||
    (Array.isArray(message.content) && message.content.every(isUsualBlock));
}

function isUsualBlock(block: unknown): boolean {
  if (!isRecord(block)) return false;
  switch (block.type) {
    case "tool_use":
      return typeof block.id === "string" && typeof block.name === "string" && isRecord(block.input);
    case "tool_result":
      return typeof block.tool_use_id === "string" && isFlag(block.is_error) &&
        (isText(block.content) || (Array.isArray(block.content) && block.content.every(isSeen)));
    case "thinking":
      return typeof block.thinking === "string" && isText(block.signature);
    case "redacted_thinking":
      return typeof block.data === "string";
    default:
      return isSeen(block);
  }
}

/** Tells whether a block is a text, or a picture with its bytes. */
function isSeen(block: unknown): boolean {
  if (!isRecord(block)) return false;
  if (block.type === "text") return isTextBlock(block);
  const { source } = block;
  return block.type === "image" && isRecord(source) && source.type === "base64" &&
    typeof source.media_type === "string" && typeof source.data === "string";
}

/** Tells whether a tool is one that the schema takes. */
export function isUsualMessageTool(tool: unknown): boolean {
  return isRecord(tool) && typeof tool.name === "string" && TOOL_NAME.test(tool.name) && isText(tool.type) &&
    isText(tool.description) && isFlag(tool.strict) &&
    ((tool.input_schema ?? null) === null || isRecord(tool.input_schema));
}
