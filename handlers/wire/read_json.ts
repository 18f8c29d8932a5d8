import type { GenericSchema, InferOutput } from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import type { RequestContext, Route } from "../route.ts";
import { checkBody } from "./check_body.ts";

/** Deepest nesting of arrays and objects that is accepted. Source: docs/design/http.md "Bodies" */
const MAX_JSON_DEPTH = 64;

/**
 * Reads the request's JSON body and checks it by `schema`.
 *
 * `null` equals absent for optional fields; unknown fields are dropped and named in `context.ignored`.
 * @returns undefined for an empty body when `optional`
 * @throws {HttpError} 415 unsupported_media_type, 413 payload_too_large, 408 request_timeout, 400 invalid_request with the field in
 *   `param`; no message contains a value of the body. {CancelError} client_gone
 */
export function readJson<S extends GenericSchema>(
  request: Request,
  context: RequestContext,
  schema: S,
): Promise<InferOutput<S>>;
/** Reads a JSON body that may be absent: undefined for an empty one when `optional`. */
export function readJson<S extends GenericSchema>(
  request: Request,
  context: RequestContext,
  schema: S,
  options: { readonly optional: boolean },
): Promise<InferOutput<S> | undefined>;
/** Reads a JSON body, see the two signatures above. */
export async function readJson<S extends GenericSchema>(
  request: Request,
  context: RequestContext,
  schema: S,
  options: JsonOptions = {},
): Promise<InferOutput<S> | undefined> {
  return toJsonBody(schema, await takeJson(request, context, options), { ...options, ignored: context.ignored });
}

/** Options of a body that is JSON. */
interface JsonOptions {
  /** True: an empty body counts as none. Default false */
  readonly optional?: boolean;
}

/** Checks the media type and takes the bytes of a JSON body off the wire. @throws as readJson, the refusal of the media type at once */
export function takeJson(
  request: Request,
  context: RequestContext,
  { optional = false }: JsonOptions = {},
): Promise<Uint8Array> {
  // The media type of an empty body does not count: curl -d "" sends the type of a form
  const isEmpty = optional && request.headers.get("content-length") === "0";
  if (!isEmpty) checkMediaType(request.headers.get("content-type"));
  return context.body();
}

/** Returns the JSON value of a body without a schema; undefined for an empty one when `optional`. @throws as parseJsonBytes */
export function toJsonValue(bytes: Uint8Array, { optional = false }: JsonOptions = {}): unknown {
  return bytes.length === 0 && optional ? undefined : parseJsonBytes(bytes);
}

/** Returns the value of a body that a schema checks; undefined for an empty one when `optional`. @throws as readJson */
export function toJsonBody<S extends GenericSchema>(
  schema: S,
  bytes: Uint8Array,
  { ignored, ...options }: JsonOptions & { readonly ignored: string[] },
): InferOutput<S> | undefined {
  const value = toJsonValue(bytes, options);
  return value === undefined ? undefined : checkBody(schema, value, ignored);
}

/** Reads a body that is no JSON. @throws {HttpError} 415 unsupported_media_type, and as readJson */
export async function readRaw(
  request: Request,
  context: RequestContext,
  { type, what }: NonNullable<Route["rawBody"]>,
): Promise<Uint8Array> {
  if (request.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase() !== type) {
    throw refuse("unsupported_media_type", `Cannot read the request body: send the ${what} as ${type}`);
  }
  return await context.body();
}

/** Parses strict UTF-8 and JSON. @throws {HttpError} 400 invalid_request with the position of the fault */
export function parseJsonBytes(bytes: Uint8Array): unknown {
  if (bytes.length === 0) throw invalid("it is empty");
  const text = decode(bytes);
  if (isDeep(text)) throw invalid(`it is nested deeper than ${MAX_JSON_DEPTH} levels`);
  try {
    return JSON.parse(text);
  } catch {
    throw invalid(`the syntax is wrong at position ${jsonErrorPosition(text)}`);
  }
}

const JSON_TYPE = /^application\/(?:[\w!#$&^.+-]+\+)?json\s*(?:;(.*))?$/i;
const CHARSET = /(?:^|;)\s*charset\s*=\s*"?([^";\s]*)/i;

function checkMediaType(type: string | null): void {
  if (type === null || type === "application/json") return;
  const match = JSON_TYPE.exec(type);
  const charset = match?.[1] === undefined ? undefined : CHARSET.exec(match[1])?.[1];
  if (match !== null && (charset === undefined || /^utf-?8$/i.test(charset))) return;
  throw refuse("unsupported_media_type", "Cannot read the request body: send it as application/json in UTF-8");
}

const decoder = new TextDecoder("utf-8", { fatal: true });

function decode(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    throw invalid("it is not valid UTF-8");
  }
}

function invalid(reason: string) {
  return refuse("invalid_request", `Cannot read the request body as JSON: ${reason}`);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Tells whether brackets outside strings nest too deep. On broken JSON the answer may be wrong: the parser then refuses the text. */
function isDeep(text: string): boolean {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      i = endOfString(text, i);
      if (i < 0) return false;
    } else if (code === 0x7b || code === 0x5b) {
      if (++depth > MAX_JSON_DEPTH) return true;
    } else if (code === 0x7d || code === 0x5d) depth--;
  }
  return false;
}

/** Index of the quote that closes the string opened at `start`; -1 without one. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text.charCodeAt(end - 1 - backslashes) === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return end;
  }
  return -1;
}

const SPACE = /[ \t\n\r]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const LITERAL = /(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)/y;

/**
 * Returns the position where a text stops being JSON, in UTF-16 units from 0; the length of a text that ends too early or is JSON.
 *
 * Only for messages: the engine's own messages quote the text, which may hold a secret, and name no position in short texts.
 * The caller bounds the nesting. Source: RFC 8259
 */
export function jsonErrorPosition(text: string): number {
  const end = skip(SPACE, text, value(text, skip(SPACE, text, 0)));
  return Math.abs(end);
}

/** Returns the position after the value at `at`; the negative position of a fault inside the value. */
function value(text: string, at: number): number {
  const opening = text[at];
  if (opening === "{" || opening === "[") return container(text, at, opening === "{" ? "}" : "]");
  return scalar(text, at);
}

function scalar(text: string, at: number): number {
  if (text[at] === '"') return string(text, at);
  const end = skip(LITERAL, text, at);
  return end > at ? end : -at;
}

/** Reads a string by hand: one regular expression over the whole string overflows the engine's stack on long ones. */
function string(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (code === 0x22) return at + 1;
    if (code < 0x20) return -at;
    const end = code === 0x5c ? skip(ESCAPE, text, at) : at + 1;
    if (end === at) return -at;
    at = end;
  }
  return -at;
}

function container(text: string, start: number, closing: "}" | "]"): number {
  let at = skip(SPACE, text, start + 1);
  if (text[at] === closing) return at + 1;
  for (;;) {
    if (closing === "}") {
      at = text[at] === '"' ? scalar(text, at) : -at;
      if (at < 0) return at;
      at = skip(SPACE, text, at);
      if (text[at] !== ":") return -at;
      at = skip(SPACE, text, at + 1);
    }
    at = value(text, at);
    if (at < 0) return at;
    at = skip(SPACE, text, at);
    if (text[at] === closing) return at + 1;
    if (text[at] !== ",") return -at;
    at = skip(SPACE, text, at + 1);
  }
}

function skip(pattern: RegExp, text: string, at: number): number {
  if (at < 0) return at;
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}
