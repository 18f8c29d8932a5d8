import { isRecord } from "../../base/json.ts";
import { countOf, type JsonRecord, stringOf } from "./json_reading.ts";

/** An error as an upstream tells it, in whatever form. */
export interface ToldError {
  /** Words for a person; empty when there are none */
  readonly message: string;
  readonly code: string | undefined;
  readonly param: string | undefined;
  readonly status: number | undefined;
}

/** Statuses that vendors put into words inside a stream. Source: Anthropic API errors; OpenAI error codes */
const STATUS_OF_TYPE: ReadonlyMap<string, number> = new Map(Object.entries({
  invalid_request_error: 400,
  authentication_error: 401,
  billing_error: 402,
  permission_error: 403,
  not_found_error: 404,
  request_too_large: 413,
  rate_limit_error: 429,
  rate_limit_exceeded: 429,
  insufficient_quota: 429,
  exceeded_current_quota_error: 429,
  rate_limit_reached_error: 429,
  engine_overloaded_error: 529,
  api_error: 500,
  server_error: 500,
  timeout_error: 504,
  overloaded_error: 529,
}));

/** Names under which vendors put the words, or an object or a list with them; the most telling first. */
const NAMES = ["message", "msg", "error_msg", "error_message", "errorMessage", "error_description", "status_msg"];
const OUTER = ["detail", "details", "errors", "error", "base_resp", "Message", "title"];
/** Levels of objects, lists and JSON in texts that are looked into */
const MAX_DEPTH = 8;
const MAX_ITEMS = 5;
const MAX_HTML = 8_000;

/** Reads an error body: JSON of any of the forms in use, a page, or text. */
export function readError(body: string): ToldError {
  const parsed = parse(body);
  const told = recordOf(parsed);
  const message = wordsOf(parsed === undefined ? body : parsed, 0);
  if (told === undefined) return { message, code: undefined, param: undefined, status: undefined };
  const error = isRecord(told["error"]) ? told["error"] : told;
  const inner = recordOf(rawOf(error)) ?? {};
  const within = isRecord(inner["error"]) ? inner["error"] : inner;
  const code = stringOf(within["code"]) ?? stringOf(error["code"]);
  const type = stringOf(within["type"]) ?? stringOf(error["type"]);
  const numeric = typeof error["code"] === "number" ? error["code"] : Number(code ?? Number.NaN);
  const window = countOf(error["n_ctx"]);
  return {
    message: message === "" && Object.keys(told).length > 0
      ? body
      : window === undefined
      ? message
      : `${message} (n_ctx: ${window})`,
    code: code ?? type ?? stringOf(told["error_type"]),
    param: stringOf(within["param"]) ?? stringOf(error["param"]) ?? paramOf(told),
    status: numeric >= 400 && numeric < 600
      ? numeric
      : STATUS_OF_TYPE.get(code ?? "") ?? STATUS_OF_TYPE.get(type ?? ""),
  };
}

/** Returns the object of an error body. Google puts it into a list. */
function recordOf(value: unknown): JsonRecord | undefined {
  const first = Array.isArray(value) ? value[0] : value;
  return isRecord(first) ? first : undefined;
}

/** Returns what the vendor behind OpenRouter said. */
function rawOf(error: JsonRecord): unknown {
  const raw = isRecord(error["metadata"]) ? error["metadata"]["raw"] : undefined;
  return typeof raw === "string" ? parse(raw) ?? raw : raw;
}

/** Returns the field that the first item of a list of faults names, without the leading `body`: `messages.0.name`. */
function paramOf(told: JsonRecord): string | undefined {
  const { message, detail } = told;
  const given = isRecord(message) ? message["detail"] : detail ?? message;
  const first = Array.isArray(given) ? given[0] : undefined;
  return isRecord(first) ? placeOf(first) : undefined;
}

function placeOf({ loc }: JsonRecord): string | undefined {
  if (!Array.isArray(loc)) return undefined;
  return stringOf(loc.slice(loc[0] === "body" ? 1 : 0, 12).join("."));
}

function wordsOf(value: unknown, depth: number): string {
  if (depth > MAX_DEPTH) return "";
  if (typeof value === "string") return wordsOfText(value, depth);
  if (Array.isArray(value)) {
    return value.slice(0, MAX_ITEMS).map((item) => wordsOf(item, depth + 1)).filter((words) => words !== "").join("; ");
  }
  if (!isRecord(value)) return typeof value === "number" ? String(value) : "";
  const raw = wordsOf(rawOf(value), depth + 1);
  if (raw !== "") return raw;
  // A name of the error beside its words says less than they do
  const { error } = value;
  const first = isRecord(error) || Array.isArray(error) ? wordsOf(error, depth + 1) : "";
  if (first !== "") return first;
  for (const name of [...NAMES, ...OUTER]) {
    const words = wordsOf(value[name], depth + 1);
    const place = placeOf(value);
    if (words !== "") return place === undefined ? words : `${place}: ${words}`;
  }
  return "";
}

/** Returns the words of a text, which may be JSON itself, or a page. */
function wordsOfText(text: string, depth: number): string {
  const start = text.trimStart();
  if (start.startsWith("{") || start.startsWith("[")) return wordsOf(recordOf(parse(start)), depth + 1) || text;
  if (!/^<(?:!doctype|html|\?xml)/i.test(start)) return text;
  return wordsOfPage(start.slice(0, MAX_HTML)) || "a web page without text";
}

/** Returns the title and the heading of a page, else its text. In linear time: whoever answers may write anything. */
function wordsOfPage(html: string): string {
  const told = new Set([textAfter(html, "<title"), textAfter(html, "<h1")].filter((part) => part !== ""));
  if (told.size > 0) return [...told].join(": ");
  const texts = html.split("<").filter((part) => !/^(?:script|style)\b/i.test(part));
  return plain(texts.map((part) => part.slice(part.indexOf(">") + 1)).join(" "));
}

/** Returns the text in the first element whose tag begins so. */
function textAfter(html: string, tag: string): string {
  const at = html.toLowerCase().indexOf(tag);
  const start = at < 0 ? 0 : html.indexOf(">", at) + 1;
  return start === 0 ? "" : plain(html.slice(start).split("<", 1)[0] ?? "");
}

function plain(text: string): string {
  return text.replaceAll(/\s+/g, " ").trim();
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
