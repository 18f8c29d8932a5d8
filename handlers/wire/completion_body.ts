import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { isRecord } from "../../lib/base/json.ts";
import { OTHER_PART_TYPE } from "../../lib/base/records/message.ts";
import { checkBody } from "./check_body.ts";

/**
 * The body of POST /v1/chat/completions: the contract and the source of its OpenAPI schema.
 *
 * The schema uses plain validations, which convert to JSON Schema. Every optional field may be `null`, which equals absent. Unknown
 * fields are allowed and named in `x-postern-ignored`. `isCompletionBody` is the same check written by hand for the hot
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
/** Tokens of the output; -1 is no limit, as llama.cpp and its clients say it */
const limit = v.nullish(v.union([
  v.literal(-1),
  v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(MAX_WHOLE)),
], "Expected a whole number from 1, or -1 for no limit"));
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

/** Schema of the body of POST /v1/chat/completions. */
export const completionSchema = v.looseObject({
  model: v.nullish(v.string()),
  messages: v.pipe(v.array(messageSchema), v.minLength(1, "Expected at least one message")),
  stream: v.nullish(v.boolean()),
  stream_options: v.nullish(v.object({ include_usage: v.nullish(v.boolean()) })),
  temperature: between(0, 2),
  top_p: between(0, 1),
  max_tokens: limit,
  max_completion_tokens: limit,
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

/** A body of POST /v1/chat/completions that has passed the check. */
export type CompletionBody = v.InferOutput<typeof completionSchema>;
/** A message of a completions body. */
export type CompletionMessage = CompletionBody["messages"][number];
/** A client tool that a completions body declares. */
export type CompletionTool = NonNullable<CompletionBody["tools"]>[number];

/**
 * Checks a parsed completions body and returns it unchanged. The check by hand decides. The schema runs only after a failure, to name
 * the field at fault.
 * @throws {HttpError} 400 `invalid_request` naming the field at fault
 */
export function readCompletionBody(body: unknown): CompletionBody {
  return isCompletionBody(body) ? body : checkBody(completionSchema, body, []);
}

/**
 * Tells whether a parsed body satisfies `completionSchema`. This is the same check by hand, about twenty times faster, without a reason
 * for a refusal.
 */
export function isCompletionBody(body: unknown): body is CompletionBody {
  if (!isRecord(body) || !isMessages(body.messages)) return false;
  for (const name in body) if (CHECKS.get(name)?.(body[name]) === false) return false;
  return true;
}

function isMessages(value: unknown): boolean {
  if (!Array.isArray(value) || value.length === 0) return false;
  for (let i = 0; i < value.length; i++) if (!isMessage(value[i])) return false;
  return true;
}

function isMessage(value: unknown): boolean {
  if (!isRecord(value)) return false;
  switch (value.role) {
    case "user":
    case "system":
    case "developer":
      return isContent(value.content) && isText(value.name);
    case "assistant":
      return (value.content === null || value.content === undefined || isContent(value.content)) &&
        isText(value.refusal) && isText(value.name) && isListOf(value.tool_calls, isToolCall);
    case "tool":
      return isContent(value.content) && typeof value.tool_call_id === "string";
    default:
      return false;
  }
}

function isContent(value: unknown): boolean {
  return typeof value === "string" || (Array.isArray(value) && value.every(isPart));
}

function isPart(value: unknown): boolean {
  if (!isRecord(value)) return false;
  switch (value.type) {
    case "text":
      return typeof value.text === "string";
    case "image_url":
      return isImage(value.image_url);
    default:
      return typeof value.type === "string";
  }
}

function isImage(value: unknown): boolean {
  if (!isRecord(value) || typeof value.url !== "string" || !IMAGE_URL.test(value.url)) return false;
  return isText(value.detail);
}

function isToolCall(value: unknown): boolean {
  return isRecord(value) && typeof value.id === "string" && value.type === "function" && isRecord(value.function) &&
    typeof value.function.name === "string" && typeof value.function.arguments === "string";
}

/** Check of each optional field, which is made where the body has the field. */
const CHECKS: ReadonlyMap<string, (value: unknown) => boolean> = new Map(Object.entries(
  {
    model: isText,
    stream: isFlag,
    stream_options: isStreamOptions,
    temperature: (value) => isNumber(value, 0, 2),
    top_p: (value) => isNumber(value, 0, 1),
    max_tokens: isLimit,
    max_completion_tokens: isLimit,
    stop: isStop,
    seed: (value) => isWhole(value, -MAX_WHOLE),
    presence_penalty: (value) => isNumber(value, -2, 2),
    frequency_penalty: (value) => isNumber(value, -2, 2),
    response_format: isResponseFormat,
    tools: (value) => isListOf(value, isTool),
    tool_choice: isToolChoice,
    parallel_tool_calls: isFlag,
    user: isText,
    metadata: isMetadata,
    reasoning_effort: isText,
    n: (value) => isWhole(value, 1),
    logprobs: isFlag,
  } satisfies Record<Exclude<keyof typeof completionSchema.entries, "messages">, (value: unknown) => boolean>,
));

function isTool(value: unknown): boolean {
  if (!isRecord(value) || value.type !== "function" || !isRecord(value.function)) return false;
  const { name, description, parameters, strict } = value.function;
  return typeof name === "string" && CLIENT_TOOL_NAME.test(name) && isText(description) && isFlag(strict) &&
    (parameters === undefined || parameters === null || isRecord(parameters));
}

function isToolChoice(value: unknown): boolean {
  if (value === undefined || value === null || value === "auto" || value === "none" || value === "required") {
    return true;
  }
  return isRecord(value) && value.type === "function" && isRecord(value.function) &&
    typeof value.function.name === "string";
}

function isStreamOptions(value: unknown): boolean {
  return value === undefined || value === null || (isRecord(value) && isFlag(value.include_usage));
}

function isStop(value: unknown): boolean {
  return isText(value) || (Array.isArray(value) && value.every((item) => typeof item === "string"));
}

function isResponseFormat(value: unknown): boolean {
  return value === undefined || value === null || (isRecord(value) && typeof value.type === "string");
}

function isMetadata(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return isRecord(value) && Object.values(value).every((item) => typeof item === "string");
}

/** Tells whether an optional field is absent or a list of such items. */
export function isListOf(value: unknown, isItem: (item: unknown) => boolean): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.every(isItem));
}

/** Tells whether an optional field is absent or a text. */
export function isText(value: unknown): boolean {
  return value === undefined || value === null || typeof value === "string";
}

/** Tells whether an optional field is absent or a flag. */
export function isFlag(value: unknown): boolean {
  return value === undefined || value === null || typeof value === "boolean";
}

/** Tells whether an optional field is absent or a number between two others. */
export function isNumber(value: unknown, min: number, max: number): boolean {
  return value === undefined || value === null || (typeof value === "number" && value >= min && value <= max);
}

/** Tells whether an optional field is absent or a whole number of `min` or more. */
export function isWhole(value: unknown, min: number): boolean {
  return value === undefined || value === null ||
    (typeof value === "number" && Number.isInteger(value) && value >= min && value <= MAX_WHOLE);
}

function isLimit(value: unknown): boolean {
  return value === -1 || isWhole(value, 1);
}

/** Types of content parts that the gateway knows in either mode. */
const KNOWN_PARTS: ReadonlySet<string> = new Set(["text", "image_url", "input_audio", "file", "refusal"]);
/** Names of fields with an address in a part: `url`, `image_url`, `fileUrl`. */
const ADDRESS_FIELD = /(?:^|_)url$|Url$/;

/**
 * Checks content parts of types that the gateway does not know. In plain mode they go to the model as they came, except one with an
 * address that a model server would read from its own disk. Where the agent's tools are on, they are refused.
 * @throws {HttpError} 400 `invalid_request` naming the part
 */
export function checkParts(messages: readonly CompletionMessage[], { plain }: { readonly plain: boolean }): void {
  for (let i = 0; i < messages.length; i++) {
    const content = messages[i]?.content;
    if (typeof content === "string" || !content) continue;
    for (let j = 0; j < content.length; j++) {
      const part = content[j];
      if (part === undefined || KNOWN_PARTS.has(part.type)) continue;
      const place = `messages[${i}].content[${j}]`;
      if (!plain) throw unknownPart(`${place}.type`, part.type);
      checkAddresses(part, place);
    }
  }
}

/** Checks the address fields of a part and of all objects in it. A body's depth is bounded, and so is the recursion. */
export function checkAddresses(value: object, place: string): void {
  for (const [key, member] of Object.entries(value)) {
    const at = Array.isArray(value) ? `${place}[${key}]` : `${place}.${key.slice(0, MAX_SHOWN)}`;
    if (typeof member === "object" && member !== null) checkAddresses(member, at);
    else if (typeof member === "string" && ADDRESS_FIELD.test(key) && !IMAGE_URL.test(member)) {
      throw refuse("invalid_request", `Cannot accept "${at}": expected an http, https or data URL`, { param: at });
    }
  }
}

function unknownPart(param: string, type: string) {
  const shown = JSON.stringify(type.slice(0, MAX_SHOWN));
  return refuse(
    "invalid_request",
    `Cannot accept "${param}" ${shown}: with the agent's tools on, the types are ${
      [...KNOWN_PARTS].join(", ")
    }; the header ` +
      '"x-postern-tools: none" or the model "plain/<id>" passes other parts on to the model',
    { param },
  );
}

const MAX_SHOWN = 64;
