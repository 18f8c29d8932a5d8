import type { Fields } from "../../base/join_fields.ts";
import type { JsonRecord } from "../upstream/json_reading.ts";

/** Top-level fields of a chat-completions reply that the gateway reads or drops. Every other field is the vendor's own. */
export const REPLY_FIELDS: ReadonlySet<string> = new Set([
  "id",
  "object",
  "created",
  "model",
  "choices",
  "usage",
  "error",
  // Filler that hides the length of a chunk on the way to this gateway
  "obfuscation",
]);
/** Fields of a choice that the gateway reads. */
export const CHOICE_FIELDS: ReadonlySet<string> = new Set(["index", "delta", "message", "finish_reason"]);
/** Fields of a message, or of its delta, that the gateway reads. `reasoning` is read too, and still passed on under its own name. */
export const DELTA_FIELDS: ReadonlySet<string> = new Set([
  "role",
  "content",
  "refusal",
  "reasoning_content",
  "tool_calls",
  "function_call",
]);
/** Fields of a tool call that the gateway reads. */
export const CALL_FIELDS: ReadonlySet<string> = new Set(["index", "id", "type", "function", "name", "arguments"]);
/** Fields of a tool call's `function` that the gateway reads. */
export const FUNCTION_FIELDS: ReadonlySet<string> = new Set(["name", "arguments"]);

/** Results for the reader of a reply; vendors refuse them, or have no use for them, in the next request. */
const NOT_RETURNED: ReadonlySet<string> = new Set([
  "reasoning",
  "annotations",
  "audio",
  "images",
  "citations",
  "executed_tools",
]);

/** Returns the fields with a value that are not among `known`; undefined when there is none. */
export function fieldsBeside(record: JsonRecord, known: ReadonlySet<string>): Fields | undefined {
  let names: string[] | undefined;
  for (const name in record) {
    const value = record[name];
    if (value !== null && value !== undefined && !known.has(name)) (names ??= []).push(name);
  }
  return names && Object.fromEntries(names.map((name) => [name, record[name]]));
}

/** Returns those with more than an empty text, list or object in them. */
export function withContent(fields: Fields | undefined): Fields | undefined {
  return fields && picked(fields, (_, value) => !isEmpty(value));
}

/** Returns the fields of a reply's message that go back to the vendor with it. */
export function returnedFields(fields: Fields): Fields | undefined {
  return picked(fields, (name, value) => !NOT_RETURNED.has(name) && !isEmpty(value));
}

/** Returns the fields of a tool call beside the known ones, those of its `function` under that name. */
export function callFieldsBeside(call: JsonRecord): Fields | undefined {
  const own = fieldsBeside(call, CALL_FIELDS);
  const given = call["function"];
  const inner = typeof given === "object" && given !== null
    ? fieldsBeside(given as JsonRecord, FUNCTION_FIELDS)
    : undefined;
  return inner === undefined ? own : { ...own, function: inner };
}

function picked(fields: Fields, isWanted: (name: string, value: unknown) => boolean): Fields | undefined {
  const wanted = Object.entries(fields).filter(([name, value]) => isWanted(name, value));
  return wanted.length === 0 ? undefined : Object.fromEntries(wanted);
}

function isEmpty(value: unknown): boolean {
  if (value === "") return true;
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}
