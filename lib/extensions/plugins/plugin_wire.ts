import * as v from "valibot";
import { isShallow, type JsonValue } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import type { PluginAnswer, PluginCall } from "./plugin_host.ts";

/** Deepest nesting of an answer. */
const MAX_DEPTH = 64;

const answerSchema = v.strictObject({
  id: v.exactOptional(v.number()),
  output: v.string(),
  is_error: v.exactOptional(v.boolean()),
  data: v.exactOptional(v.unknown()),
});

/**
 * Writes a call as the JSON that every kind of plugin gets, in one line without its end.
 * @param id number of the call, which the answer must repeat. Default: none, for a plugin that gets no other call meanwhile
 */
export function writeCall({ tool, input, context, config }: PluginCall, id?: number): string {
  const { workspace_root, allow_sensitive_file_reads, allow_sensitive_file_writes } = context;
  const shown = { workspace_root, allow_sensitive_file_reads, allow_sensitive_file_writes };
  const settings = config === undefined ? {} : { config };
  return JSON.stringify({ ...(id === undefined ? {} : { id }), tool, input, context: shown, ...settings });
}

/**
 * Reads the answer of a plugin: a JSON object `{id?, output, is_error?, data?}` in UTF-8.
 * @param options.title names the plugin in errors, such as `plugin "weather"`
 * @param options.id number of the call. Default: the call has none, and neither has the answer
 * @throws {ToolError} `plugin_answer_invalid` naming the field at fault
 */
export function readAnswer(
  content: string | Uint8Array,
  { title, id }: { readonly title: string; readonly id?: number | undefined },
): Omit<PluginAnswer, "used"> {
  let value: unknown;
  try {
    value = JSON.parse(
      typeof content === "string" ? content : new TextDecoder("utf-8", { fatal: true }).decode(content),
    );
  } catch (cause) {
    throw invalidAnswer(title, "it is no JSON in UTF-8", cause);
  }
  if (Array.isArray(value)) throw invalidAnswer(title, "it is no JSON object");
  if (!isShallow(value, MAX_DEPTH)) throw invalidAnswer(title, `it is nested deeper than ${MAX_DEPTH} levels`);
  const parsed = v.safeParse(answerSchema, value, { abortEarly: true });
  if (!parsed.success) throw invalidAnswer(title, faultOf(parsed.issues[0]));
  const { id: repeated, output, is_error = false, data } = parsed.output;
  if (repeated !== id) {
    throw invalidAnswer(title, id === undefined ? 'it has the field "id"' : `its "id" is not ${id}, as in the call`);
  }
  // The value was parsed from JSON
  return { output, is_error, ...(data === undefined ? {} : { data: data as JsonValue }) };
}

/** Returns the refusal of an answer. @param reason as `it is no JSON in UTF-8` */
export function invalidAnswer(title: string, reason: string, cause?: unknown): ToolError {
  const shape = 'an answer is one JSON object {"output": text, "is_error"?: true or false, "data"?: any}';
  return new ToolError("plugin_answer_invalid", `Cannot use the answer of ${title}: ${reason}; ${shape}`, { cause });
}

/** Returns the refusal of an answer that is too long. */
export function answerTooLarge(title: string, maxBytes: number): ToolError {
  return new ToolError(
    "plugin_output_too_large",
    `Cannot use the answer of ${title}: it is larger than ${maxBytes} bytes, as [plugins] max_output_bytes has it`,
  );
}

function faultOf({ path, type, received, expected }: v.BaseIssue<unknown>): string {
  const field = path?.map(({ key }) => String(key)).join(".");
  if (field === undefined) return "it is no JSON object";
  const name = JSON.stringify(field.slice(0, 100));
  if (type !== "strict_object") return `${name} is no ${type === "boolean" ? "true or false" : "text"}`;
  return expected === "never"
    ? `it has the field ${name}`
    : received === "undefined"
    ? `it has no ${name}`
    : "it is no object";
}
