import * as v from "valibot";
import { isRecord } from "../../../lib/base/json.ts";
import { checkBody } from "../check_body.ts";
import { CLIENT_TOOL_NAME, MAX_WHOLE } from "../completion_body.ts";
import { MAX_IGNORED } from "../to_completion_input.ts";

/**
 * The body of POST /v1/responses: the contract and the source of its OpenAPI schema. Unknown fields are allowed and named in
 * `x-postern-ignored`; every optional field may be `null`, which equals absent.
 * Source: the Open Responses specification of 2026-04-24, and the types of OpenAI's client
 */

const ADDRESS = v.pipe(v.string(), v.regex(/^(?:https?|data):/i, "Expected an http, https or data URL"));
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

/** Items of tools that run at the vendor: they are left out and named. */
const HOSTED_ITEM =
  /^(?:(?:file_search|web_search|computer|image_generation|code_interpreter|local_shell|shell|mcp|apply_patch|tool_search|program)(?:_[a-z_]+)?|additional_tools|configuration_update|postern:tool_call)$/;

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
  typed("item_reference", { id: v.string() }),
  typed("compaction", { encrypted_content: text }),
  typed("compaction_trigger", {}),
  v.looseObject({ type: v.pipe(v.string(), v.regex(HOSTED_ITEM, "Expected the type of an item")) }),
]);
/** An item of the input. */
export type ResponseItem = v.InferOutput<typeof itemSchema>;

const name = v.pipe(v.string(), v.regex(CLIENT_TOOL_NAME, "Expected 1 to 64 letters, digits, _ or -"));
const functionTool = typed("function", {
  name,
  description: text,
  parameters: v.nullish(v.looseObject({})),
  strict: flag,
});
const customTool = typed("custom", {
  name,
  description: text,
  format: v.nullish(v.looseObject({ type: v.string(), syntax: text, definition: text })),
});
const namespaceTool = typed("namespace", {
  name,
  description: text,
  tools: v.array(v.variant("type", [functionTool, customTool])),
});
/** A tool of a request that the client runs. */
export type ResponseTool = v.InferOutput<typeof functionTool> | v.InferOutput<typeof customTool>;
const CLIENT_TOOLS: ReadonlySet<unknown> = new Set(["function", "custom", "namespace"]);
const hostedTool = v.looseObject({
  type: v.pipe(v.string(), v.check((type) => !CLIENT_TOOLS.has(type), "Expected a tool with its fields")),
});

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
  tools: v.nullish(v.array(v.union([functionTool, customTool, namespaceTool, hostedTool]))),
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
 *
 * Histories and tools of the usual forms are checked by hand, which is many times faster than the schema: a client sends all of them
 * with each request. Anything else goes to the schema, which names the field at fault.
 * @throws {HttpError} 400 invalid_request naming the field at fault
 */
export function readResponseBody(json: unknown): ResponseBody {
  if (!isRecord(json)) return checkBody(responseSchema, json, []);
  const few = withFewUnknown(json);
  const { input, tools } = few;
  if (Array.isArray(input)) { for (const item of input as readonly unknown[]) typeItem(item); }
  const isUsualInput = Array.isArray(input) && input.every(isUsualItem);
  const areUsualTools = Array.isArray(tools) && tools.every(isUsualTool);
  const rest = checkBody(responseSchema, {
    ...few,
    ...(isUsualInput ? { input: "" } : {}),
    ...(areUsualTools ? { tools: null } : {}),
  }, []);
  return {
    ...rest,
    // Both have passed the same checks by hand
    ...(isUsualInput ? { input: input as ResponseBody["input"] } : {}),
    ...(areUsualTools ? { tools: tools as ResponseBody["tools"] } : {}),
  };
}

/** Returns a body with as many unknown fields as are named: each copy of an object with some 100,000 of them takes a long time. */
function withFewUnknown(json: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const kept: [string, unknown][] = [];
  let unknown = 0;
  for (const name in json) {
    const value = json[name];
    const isKnown = name === "prompt" || Object.hasOwn(responseSchema.entries, name);
    if (isKnown || ((value ?? null) !== null && unknown++ < MAX_IGNORED)) kept.push([name, value]);
  }
  return Object.fromEntries(kept);
}

function typeItem(item: unknown): void {
  if (!isRecord(item) || (item.type ?? null) !== null) return;
  // The body is the gateway's own copy, and may be changed
  Object.assign(item, { type: "role" in item ? "message" : "item_reference" });
}

/** Tells whether an item is a message of texts, a call of a function or its output; the schema takes each of these. */
export function isUsualItem(item: unknown): boolean {
  if (!isRecord(item)) return false;
  switch (item.type) {
    case "message":
      return (ROLES as readonly unknown[]).includes(item.role) &&
        (typeof item.content === "string" || (Array.isArray(item.content) && item.content.every(isTextPart)));
    case "function_call":
      return typeof item.call_id === "string" && typeof item.name === "string" && typeof item.arguments === "string" &&
        isText(item.namespace);
    case "function_call_output":
      return typeof item.call_id === "string" && typeof item.output === "string";
    default:
      return false;
  }
}

function isTextPart(part: unknown): boolean {
  return isRecord(part) && (part.type === "input_text" || part.type === "output_text") && typeof part.text === "string";
}

/** Tells whether a tool is a function that the schema takes. */
export function isUsualTool(tool: unknown): boolean {
  return isRecord(tool) && tool.type === "function" && typeof tool.name === "string" &&
    CLIENT_TOOL_NAME.test(tool.name) && isText(tool.description) && isText(tool.strict, "boolean") &&
    ((tool.parameters ?? null) === null || isRecord(tool.parameters));
}

function isText(value: unknown, type = "string"): boolean {
  return value === undefined || value === null || typeof value === type;
}

/** Tells whether a declared tool is the client's own, and not one that runs at the vendor. */
export function isClientTool(
  tool: NonNullable<ResponseBody["tools"]>[number],
): tool is ResponseTool | v.InferOutput<typeof namespaceTool> {
  return isRecord(tool) && CLIENT_TOOLS.has(tool.type);
}
