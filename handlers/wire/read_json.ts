import type { GenericSchema, InferOutput } from "valibot";
import type { RequestContext } from "../route.ts";
import { checkBody } from "./check_body.ts";
import { httpError } from "./error_codes.ts";
import { jsonErrorPosition } from "./json_error_position.ts";

/** Deepest nesting of arrays and objects that is accepted. Source: docs/design/http.md "Bodies" */
const MAX_JSON_DEPTH = 64;

/**
 * The request's JSON body, checked by `schema`.
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
export function readJson<S extends GenericSchema>(
  request: Request,
  context: RequestContext,
  schema: S,
  options: { readonly optional: boolean },
): Promise<InferOutput<S> | undefined>;
export async function readJson<S extends GenericSchema>(
  request: Request,
  context: RequestContext,
  schema: S,
  options: { readonly optional?: boolean } = {},
): Promise<InferOutput<S> | undefined> {
  const value = await readJsonValue(request, context, options);
  return value === undefined ? undefined : checkBody(schema, value, context.ignored);
}

/**
 * The JSON value of the body before any schema saw it: media type, size, UTF-8, nesting and syntax are checked.
 * @returns undefined for an empty body when `optional`
 * @throws as readJson
 */
export async function readJsonValue(
  request: Request,
  context: RequestContext,
  options: { readonly optional?: boolean } = {},
): Promise<unknown> {
  // An empty body that may be absent has no type: curl -d "" names that of a form
  const isEmpty = options.optional === true && request.headers.get("content-length") === "0";
  if (!isEmpty) checkMediaType(request.headers.get("content-type"));
  const bytes = await context.body();
  if (bytes.length === 0 && options.optional) return undefined;
  return parseJsonBytes(bytes);
}

/** Strict UTF-8 and JSON. @throws {HttpError} 400 invalid_request that says where */
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
  throw httpError("unsupported_media_type", "Cannot read the request body: send it as application/json in UTF-8");
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
  return httpError("invalid_request", `Cannot read the request body as JSON: ${reason}`);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Counts brackets outside strings; on broken JSON it may say anything, the parser has the last word there. */
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
