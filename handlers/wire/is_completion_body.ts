import { CLIENT_TOOL_NAME, type CompletionBody, IMAGE_URL, MAX_WHOLE } from "./completion_schema.ts";

/**
 * Whether a parsed body satisfies `completionSchema`: the same check by hand, about twenty times faster. A refusal carries no
 * reason; the schema is then asked for it.
 */
export function isCompletionBody(body: unknown): body is CompletionBody {
  return isObject(body) && isMessages(body.messages) && areParameters(body) && areToolFields(body);
}

type Fields = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isMessages(value: unknown): boolean {
  if (!Array.isArray(value) || value.length === 0) return false;
  for (let i = 0; i < value.length; i++) if (!isMessage(value[i])) return false;
  return true;
}

function isMessage(value: unknown): boolean {
  if (!isObject(value)) return false;
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
  if (!isObject(value)) return false;
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
  if (!isObject(value) || typeof value.url !== "string" || !IMAGE_URL.test(value.url)) return false;
  return isText(value.detail);
}

function isToolCall(value: unknown): boolean {
  return isObject(value) && typeof value.id === "string" && value.type === "function" && isObject(value.function) &&
    typeof value.function.name === "string" && typeof value.function.arguments === "string";
}

function areParameters(body: Fields): boolean {
  return isText(body.model) && isFlag(body.stream) && isStreamOptions(body.stream_options) &&
    isNumber(body.temperature, 0, 2) && isNumber(body.top_p, 0, 1) &&
    isWhole(body.max_tokens, 1) && isWhole(body.max_completion_tokens, 1) && isStop(body.stop) &&
    isWhole(body.seed, -MAX_WHOLE) && isNumber(body.presence_penalty, -2, 2) &&
    isNumber(body.frequency_penalty, -2, 2) &&
    isResponseFormat(body.response_format) && isText(body.user) && isMetadata(body.metadata) &&
    isText(body.reasoning_effort) && isWhole(body.n, 1) && isFlag(body.logprobs);
}

function areToolFields(body: Fields): boolean {
  return isListOf(body.tools, isTool) && isToolChoice(body.tool_choice) && isFlag(body.parallel_tool_calls);
}

function isTool(value: unknown): boolean {
  if (!isObject(value) || value.type !== "function" || !isObject(value.function)) return false;
  const { name, description, parameters, strict } = value.function;
  return typeof name === "string" && CLIENT_TOOL_NAME.test(name) && isText(description) && isFlag(strict) &&
    (parameters === undefined || parameters === null || isObject(parameters));
}

function isToolChoice(value: unknown): boolean {
  if (value === undefined || value === null || value === "auto" || value === "none" || value === "required") {
    return true;
  }
  return isObject(value) && value.type === "function" && isObject(value.function) &&
    typeof value.function.name === "string";
}

function isStreamOptions(value: unknown): boolean {
  return value === undefined || value === null || (isObject(value) && isFlag(value.include_usage));
}

function isStop(value: unknown): boolean {
  return isText(value) || (Array.isArray(value) && value.every((item) => typeof item === "string"));
}

function isResponseFormat(value: unknown): boolean {
  return value === undefined || value === null || (isObject(value) && typeof value.type === "string");
}

function isMetadata(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return isObject(value) && Object.values(value).every((item) => typeof item === "string");
}

function isListOf(value: unknown, isItem: (item: unknown) => boolean): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.every(isItem));
}

function isText(value: unknown): boolean {
  return value === undefined || value === null || typeof value === "string";
}

function isFlag(value: unknown): boolean {
  return value === undefined || value === null || typeof value === "boolean";
}

function isNumber(value: unknown, min: number, max: number): boolean {
  return value === undefined || value === null || (typeof value === "number" && value >= min && value <= max);
}

function isWhole(value: unknown, min: number): boolean {
  return value === undefined || value === null ||
    (typeof value === "number" && Number.isInteger(value) && value >= min && value <= MAX_WHOLE);
}
