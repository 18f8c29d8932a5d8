import type { Fields } from "../../base/join_fields.ts";
import { isRecord } from "../../base/json.ts";
import { fieldsBeside, type JsonRecord, stringOf } from "../upstream/json_reading.ts";
import { brokenReply, type Upstream } from "../upstream/upstream_error.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";

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
export const CHOICE_FIELDS: ReadonlySet<string> = new Set(["index", "delta", "message", "finish_reason", "usage"]);
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
  const inner = isRecord(given) ? fieldsBeside(given, FUNCTION_FIELDS) : undefined;
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

const SINGLE_FIELDS: ReadonlySet<string> = new Set([...DELTA_FIELDS, "reasoning"]);

/** Returns the only text or reasoning delta of a chunk that says nothing else; undefined for any other chunk. Proves a template. */
export function readSingleDelta(parsed: unknown): ProviderEvent | undefined {
  if (!isRecord(parsed) || (parsed["usage"] ?? parsed["error"] ?? undefined) !== undefined) return undefined;
  if (parsed["object"] === "error") return undefined;
  const choices = parsed["choices"];
  const first = Array.isArray(choices) && choices.length === 1 ? choices[0] : undefined;
  if (!isRecord(first) || !isRecord(first["delta"]) || stringOf(first["finish_reason"]) !== undefined) return undefined;
  if ((first["usage"] ?? undefined) !== undefined) return undefined;
  const delta = first["delta"];
  if ((delta["tool_calls"] ?? delta["function_call"] ?? undefined) !== undefined) return undefined;
  const beside = fieldsBeside(delta, SINGLE_FIELDS);
  if (beside !== undefined && withContent(beside) !== undefined) return undefined;
  const out: ProviderEvent[] = [];
  addTexts(delta, out);
  return out.length === 1 ? out[0] : undefined;
}

/** Adds the events of the texts in a delta or a message: reasoning, content, refusal. */
export function addTexts(delta: JsonRecord, out: ProviderEvent[]): void {
  const reasoning = stringOf(delta["reasoning_content"]) ?? stringOf(delta["reasoning"]);
  if (reasoning !== undefined) out.push({ type: "reasoning_delta", delta: reasoning });
  const { content } = delta;
  if (typeof content === "string") {
    if (content !== "") out.push({ type: "text_delta", delta: content });
  } else if (Array.isArray(content)) {
    for (const part of content) {
      const text = isRecord(part) ? stringOf(part["text"]) : undefined;
      if (text !== undefined) out.push({ type: "text_delta", delta: text });
    }
  }
  const refusal = stringOf(delta["refusal"]);
  if (refusal !== undefined) out.push({ type: "refusal_delta", delta: refusal });
}

/**
 * Parses the JSON of a stream event. A server that leaves out the empty line between events gives one value a line.
 * @throws {ProviderError} for data that is no JSON
 */
export function parseData(data: string, upstream: Upstream): unknown[] {
  try {
    return [JSON.parse(data)];
  } catch (cause) {
    const lines = data.split("\n").filter((line) => line !== "" && line !== "[DONE]");
    try {
      if (lines.length > 1) return lines.map((line) => JSON.parse(line));
    } catch {
      // The first failure is the one to report
    }
    throw brokenReply(upstream, "it contains something that is no JSON", cause);
  }
}

type StringDelta = Extract<ProviderEvent, { type: "text_delta" | "reasoning_delta" }>;

/** Learning costs two parses; a stream whose chunks keep changing elsewhere (a timestamp, a filler) stops paying for it. */
const MAX_USELESS_LESSONS = 4;
const SENTINEL = "\u0001postern\u0002";
const ENCODED_SENTINEL = JSON.stringify(SENTINEL);

/**
 * Recognises chunks that differ from an earlier one in a single string: chunks of one stream are the same text except for the delta.
 * Once one was parsed, a chunk with the same text before and after the delta's string is decoded by cutting the string out. It agrees
 * with JSON.parse because everything outside the string is equal, and the string itself is either free of quotes, backslashes and
 * control characters or parsed as JSON.
 */
export class DeltaTemplate {
  #prefix = "";
  #suffix = "";
  #type: StringDelta["type"] = "text_delta";
  #known = false;
  #useful = true;
  #useless = 0;
  readonly #read: (chunk: unknown) => ProviderEvent | undefined;

  /** @param read the decoder's own reading of a parsed chunk: used to prove that the string found is the delta and nothing else */
  constructor(read: (chunk: unknown) => ProviderEvent | undefined) {
    this.#read = read;
  }

  /** The event of a chunk of the learned shape; undefined for anything else: parse it as JSON */
  scan(data: string): ProviderEvent | undefined {
    const prefix = this.#prefix;
    const suffix = this.#suffix;
    if (!this.#known || data.length < prefix.length + suffix.length) return undefined;
    // Comparing slices is three times as fast as startsWith and endsWith
    const end = data.length - suffix.length;
    if (data.slice(0, prefix.length) !== prefix || data.slice(end) !== suffix) return undefined;
    const inner = data.slice(prefix.length, end);
    const delta = isPlain(inner) ? inner : parseString(inner);
    if (delta === undefined || delta === "") return undefined;
    this.#useful = true;
    this.#useless = 0;
    return { type: this.#type, delta };
  }

  /**
   * Learns from a chunk that was parsed and gave exactly this one event.
   * @param data the chunk's text
   */
  learn(data: string, event: ProviderEvent): void {
    if (event.type !== "text_delta" && event.type !== "reasoning_delta") return;
    if (!this.#useful && ++this.#useless > MAX_USELESS_LESSONS) return;
    const encoded = JSON.stringify(event.delta);
    const start = data.indexOf(`:${encoded}`);
    if (start === -1) return;
    const before = data.slice(0, start + 1);
    const after = data.slice(start + 1 + encoded.length);
    const proof = this.#read(parse(before + ENCODED_SENTINEL + after));
    if (proof?.type !== event.type || proof.delta !== SENTINEL) return;
    // Cut out of the data, quotes included: strings put together by + are slow to compare
    this.#prefix = data.slice(0, before.length + 1);
    this.#suffix = data.slice(data.length - after.length - 1);
    this.#type = event.type;
    this.#known = true;
    this.#useful = false;
  }
}

function isPlain(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code < 32 || code === 34 || code === 92) return false;
  }
  return true;
}

function parseString(inner: string): string | undefined {
  const value = parse(`"${inner}"`);
  return typeof value === "string" ? value : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
