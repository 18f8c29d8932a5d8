import * as v from "valibot";
import { isRecord } from "../../../lib/base/json.ts";
import { checkBody, withoutUsual } from "../check_body.ts";
import { CLIENT_TOOL_NAME, isFlag, isListOf, isNumber, isText, isWhole, MAX_WHOLE } from "../completion_body.ts";
import { MAX_IGNORED } from "../to_completion_input.ts";

/**
 * The body of POST /v1/responses: the contract and the source of its OpenAPI schema. Unknown fields are allowed and named in
 * `x-postern-ignored`; every optional field may be `null`, which equals absent.
 * Source: the Open Responses specification of 2026-04-24, and the types of OpenAI's client
 */

const ADDRESS_FORM = /^(?:https?|data):/i;
const ADDRESS = v.pipe(v.string(), v.regex(ADDRESS_FORM, "Expected an http, https or data URL"));
const text = v.nullish(v.string());
const flag = v.nullish(v.boolean());
const whole = (min: number) => v.nullish(v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(MAX_WHOLE)));
const between = (min: number, max: number) => v.nullish(v.pipe(v.number(), v.minValue(min), v.maxValue(max)));
const typed = <const T extends string, E extends v.ObjectEntries>(type: T, entries: E) =>
  v.looseObject({ type: v.literal(type), ...entries });

const partSchema = v.variant("type", [
  typed("input_text", { text: v.string() }),
  typed("output_text", { text: v.string() }),
  typed("text", { text: v.string() }),
  typed("summary_text", { text: v.string() }),
  typed("reasoning_text", { text: v.string() }),
  typed("refusal", { refusal: v.string() }),
  typed("input_image", { image_url: v.nullish(ADDRESS), detail: text, file_id: text }),
  typed("input_file", { filename: text, file_data: text, file_url: v.nullish(ADDRESS), file_id: text }),
]);
/** A part of a message, of an output or of reasoning. */
export type ResponsePart = v.InferOutput<typeof partSchema>;

const contentSchema = v.union([v.string(), v.array(partSchema)]);
const ROLES = ["user", "assistant", "system", "developer"] as const;
const called = { call_id: v.string(), name: v.string(), namespace: text };

const name = v.pipe(v.string(), v.regex(CLIENT_TOOL_NAME, "Expected 1 to 64 letters, digits, _ or -"));
const functionTool = typed("function", {
  name,
  description: text,
  parameters: v.nullish(v.looseObject({})),
  strict: flag,
  defer_loading: flag,
});
const customTool = typed("custom", {
  name,
  description: text,
  format: v.nullish(v.looseObject({ type: v.string(), syntax: text, definition: text })),
  defer_loading: flag,
});
const searchTool = typed("tool_search", {
  execution: v.nullish(v.picklist(["server", "client"])),
  description: text,
  parameters: v.nullish(v.looseObject({})),
});
const namespaceTool = typed("namespace", {
  name,
  description: text,
  tools: v.array(v.variant("type", [functionTool, customTool])),
});
/** A tool of a request that the client runs. */
export type ResponseTool =
  | v.InferOutput<typeof functionTool>
  | v.InferOutput<typeof customTool>
  | v.InferOutput<typeof searchTool>;
const CLIENT_TOOLS: ReadonlySet<unknown> = new Set(["function", "custom", "namespace", "tool_search"]);
const hostedTool = v.looseObject({
  type: v.pipe(v.string(), v.check((type) => !CLIENT_TOOLS.has(type), "Expected a tool with its fields")),
});
const toolsSchema = v.array(v.union([functionTool, customTool, namespaceTool, searchTool, hostedTool]));
/** Tools as a request and some of its items declare them. */
export type ToolsOfBody = v.InferOutput<typeof toolsSchema>;

/** Items of tools that run at the vendor: they are left out and named. */
const HOSTED_ITEM =
  /^(?:(?:file_search|web_search|computer|image_generation|code_interpreter|local_shell|shell|mcp|apply_patch|program)(?:_[a-z_]+)?|configuration_update|postern:tool_call)$/;

const itemSchema = v.variant("type", [
  typed("message", { role: v.picklist(ROLES), content: contentSchema }),
  typed("function_call", { ...called, arguments: v.string() }),
  typed("function_call_output", { call_id: v.string(), output: contentSchema }),
  typed("custom_tool_call", { ...called, input: v.string() }),
  typed("custom_tool_call_output", { call_id: v.string(), output: contentSchema }),
  typed("reasoning", {
    summary: v.nullish(v.array(partSchema)),
    content: v.nullish(v.array(partSchema)),
    encrypted_content: text,
  }),
  typed("tool_search_call", { call_id: text, execution: text, arguments: v.unknown() }),
  typed("tool_search_output", { call_id: text, execution: text, tools: toolsSchema }),
  typed("additional_tools", { tools: toolsSchema }),
  typed("item_reference", { id: v.string() }),
  typed("compaction", { encrypted_content: text }),
  typed("compaction_trigger", {}),
  v.looseObject({ type: v.pipe(v.string(), v.regex(HOSTED_ITEM, "Expected the type of an item")) }),
]);
/** An item of the input. */
export type ResponseItem = v.InferOutput<typeof itemSchema>;

const chosen = v.looseObject({
  type: v.pipe(v.string(), v.check((type) => type !== "allowed_tools", "Expected a choice with its fields")),
  name: text,
  namespace: text,
});
const choiceSchema = v.union([
  v.picklist(["auto", "none", "required"]),
  typed("allowed_tools", { mode: v.picklist(["auto", "required", "none"]), tools: v.array(chosen) }),
  chosen,
]);

const formatSchema = v.looseObject({
  type: v.picklist(["text", "json_object", "json_schema"]),
  name: text,
  description: text,
  schema: v.nullish(v.looseObject({})),
  strict: flag,
});

/** Schema of the body of POST /v1/responses. */
export const responseSchema = v.looseObject({
  model: text,
  /** A text, or items: messages, calls of functions and their outputs, reasoning */
  input: v.optional(v.union([v.string(), v.array(itemSchema)])),
  instructions: text,
  stream: flag,
  stream_options: v.nullish(v.looseObject({ include_obfuscation: flag })),
  tools: v.nullish(toolsSchema),
  tool_choice: v.nullish(choiceSchema),
  parallel_tool_calls: flag,
  max_output_tokens: whole(1),
  max_tool_calls: whole(1),
  temperature: between(0, 2),
  top_p: between(0, 1),
  presence_penalty: between(-2, 2),
  frequency_penalty: between(-2, 2),
  top_logprobs: between(0, 20),
  text: v.nullish(v.looseObject({ format: v.nullish(formatSchema), verbosity: text })),
  reasoning: v.nullish(v.looseObject({ effort: text, summary: text })),
  metadata: v.nullish(v.record(v.string(), v.string())),
  include: v.nullish(v.array(v.string())),
  truncation: v.nullish(v.picklist(["auto", "disabled"])),
  store: flag,
  background: flag,
  previous_response_id: text,
  conversation: v.nullish(v.union([v.string(), v.looseObject({ id: v.string() })])),
  user: text,
  safety_identifier: text,
  prompt_cache_key: text,
  service_tier: text,
});
/** A body of POST /v1/responses that has passed the check. */
export type ResponseBody = v.InferOutput<typeof responseSchema>;

/**
 * Checks a parsed body. An item without a type is a message where it has a role, else a reference.
 * @throws {HttpError} 400 invalid_request naming the field at fault
 */
export function readResponseBody(json: unknown): ResponseBody {
  if (!isRecord(json)) return checkBody(responseSchema, json, []);
  if (Array.isArray(json.input)) json.input.forEach(typeItem);
  const { usual, known, unknown } = sortFields(json);
  const { input, tools } = known ?? {};
  if (Array.isArray(input)) usual["input"] = input;
  if (Array.isArray(tools)) usual["tools"] = tools;
  let body = usual;
  if (known !== undefined) {
    if (Array.isArray(input)) known["input"] = withoutUsual(input, isUsualItem, { type: "item_reference", id: "" });
    if (Array.isArray(tools)) known["tools"] = withoutUsual(tools, isUsualTool, { type: "function", name: "usual" });
    body = Object.assign(checkBody(responseSchema, known, []), usual);
  }
  // Attack: an assignment to "__proto__" would give the body fields that no schema has checked
  if (unknown.length > 0) Object.defineProperties(body, Object.getOwnPropertyDescriptors(Object.fromEntries(unknown)));
  // Each field, and each entry of a list, has passed: by the schema, or by the same check by hand
  return body as ResponseBody;
}

/** Returns the fields of a body, as many unknown ones as are named: each copy of an object with some 100,000 of them takes a long time. */
function sortFields(json: Readonly<Record<string, unknown>>) {
  const usual: Record<string, unknown> = {};
  let known: Record<string, unknown> | undefined;
  const unknown: [string, unknown][] = [];
  for (const name in json) {
    const value = json[name];
    if (USUAL.get(name)?.(value)) usual[name] = value;
    else if (Object.hasOwn(responseSchema.entries, name)) (known ??= {})[name] = value;
    // Prompts are refused, however many fields come before
    else if (name === "prompt" || ((value ?? null) !== null && unknown.length < MAX_IGNORED)) {
      unknown.push([name, value]);
    }
  }
  return { usual, known, unknown };
}

/** Checks by hand of fields that most bodies have. Where one fails, the schema decides, and names the field at fault. */
const USUAL: ReadonlyMap<string, (value: unknown) => boolean> = new Map(Object.entries(
  {
    model: isText,
    input: (value) => typeof value === "string" || (value !== null && isListOf(value, isUsualItem)),
    instructions: isText,
    stream: isFlag,
    tools: (value) => isListOf(value, isUsualTool),
    tool_choice: (value) => value === "auto" || value === "none" || value === "required" || value === null,
    parallel_tool_calls: isFlag,
    max_output_tokens: (value) => isWhole(value, 1),
    temperature: (value) => isNumber(value, 0, 2),
    reasoning: (value) => value === null || (isRecord(value) && isText(value.effort) && isText(value.summary)),
    include: (value) => isListOf(value, (name) => typeof name === "string"),
    store: isFlag,
    previous_response_id: isText,
    prompt_cache_key: isText,
  } satisfies Partial<Record<keyof typeof responseSchema.entries, (value: unknown) => boolean>>,
));

function typeItem(item: unknown): void {
  if (!isRecord(item) || (item.type ?? null) !== null) return;
  // The body is the gateway's own copy, and may be changed
  Object.assign(item, { type: "role" in item ? "message" : "item_reference" });
}

/** Tells whether an item is one of those that a client sends by the hundred; the schema takes each of these. */
export function isUsualItem(item: unknown): boolean {
  if (!isRecord(item)) return false;
  switch (item.type) {
    case "message":
      return ROLES.some((role) => role === item.role) && isContent(item.content);
    case "function_call":
      return isCalled(item) && typeof item.arguments === "string";
    case "custom_tool_call":
      return isCalled(item) && typeof item.input === "string";
    case "function_call_output":
    case "custom_tool_call_output":
      return typeof item.call_id === "string" && isContent(item.output);
    case "reasoning":
      return isListOfParts(item.summary) && isListOfParts(item.content) && isText(item.encrypted_content);
    case "tool_search_output":
    case "additional_tools":
      return isText(item.call_id) && isText(item.execution) && Array.isArray(item.tools) &&
        item.tools.every(isUsualTool);
    default:
      return false;
  }
}

function isCalled({ call_id, name, namespace }: Readonly<Record<string, unknown>>): boolean {
  return typeof call_id === "string" && typeof name === "string" && isText(namespace);
}

function isContent(content: unknown): boolean {
  return typeof content === "string" || (Array.isArray(content) && content.every(isUsualPart));
}

function isListOfParts(parts: unknown): boolean {
  return (parts ?? null) === null || (Array.isArray(parts) && parts.every(isUsualPart));
}

const TEXT_PARTS: ReadonlySet<unknown> = new Set([
  "input_text",
  "output_text",
  "text",
  "summary_text",
  "reasoning_text",
]);

function isUsualPart(part: unknown): boolean {
  if (!isRecord(part)) return false;
  if (part.type !== "input_image") return TEXT_PARTS.has(part.type) && typeof part.text === "string";
  return typeof part.image_url === "string" && ADDRESS_FORM.test(part.image_url) && isText(part.detail) &&
    isText(part.file_id);
}

/** Tells whether a tool is a function, or a namespace of functions, that the schema takes. */
export function isUsualTool(tool: unknown): boolean {
  return isUsualFunction(tool) || (isRecord(tool) && tool.type === "namespace" && isNamed(tool) &&
    Array.isArray(tool.tools) && tool.tools.every(isUsualFunction));
}

function isUsualFunction(tool: unknown): boolean {
  return isRecord(tool) && tool.type === "function" && isNamed(tool) && isFlag(tool.strict) &&
    isFlag(tool.defer_loading) && ((tool.parameters ?? null) === null || isRecord(tool.parameters));
}

function isNamed({ name, description }: Readonly<Record<string, unknown>>): boolean {
  return typeof name === "string" && CLIENT_TOOL_NAME.test(name) && isText(description);
}

/** Tools of the client as a list declares them: one, or a namespace of some. */
export type ClientToolOfBody = ResponseTool | v.InferOutput<typeof namespaceTool>;

/** Tells whether a declared tool is the client's own, and not one that runs at the vendor, as a search does unless it says otherwise. */
export function isClientTool(tool: ToolsOfBody[number]): tool is ClientToolOfBody {
  return isRecord(tool) && CLIENT_TOOLS.has(tool.type) && (tool.type !== "tool_search" || tool.execution === "client");
}

/** Tells whether the tools of an item are the model's from then on. */
export function bringsTools(item: ResponseItem): item is ResponseItem & { readonly tools: ToolsOfBody } {
  return item.type === "tool_search_output" || item.type === "additional_tools";
}
