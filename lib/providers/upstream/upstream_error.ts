import { ProviderError, type ProviderErrorOptions } from "../../base/errors.ts";
import { isRecord } from "../../base/json.ts";
import { createRedactor } from "../../base/redact.ts";
import { stringOf } from "./json_reading.ts";

/** The upstream that is asked, for the words of its errors. */
export interface Upstream {
  /** The provider's configured name */
  readonly name: string;
  /** Where the key comes from, as `the environment variable "OPENAI_API_KEY"`; undefined without a key */
  readonly keySource: string | undefined;
  /** The key itself, removed from whatever the upstream says */
  readonly key: string | undefined;
  /** Milliseconds since the epoch, for a Retry-After given as a date */
  readonly now: () => number;
}

/** An upstream's reply that says no, or an error object inside a good one. */
export interface UpstreamRefusal {
  /** HTTP status; 200 for an error inside a stream */
  readonly status: number;
  /** Body, or the JSON of the error object; may be cut */
  readonly body: string;
  readonly header?: ((name: string) => string | undefined) | undefined;
}

const MAX_MESSAGE_LENGTH = 500;
/** Characters of a message that say what it is about. A vendor could write more of them than a pattern reads in linear time */
const MAX_LOOKED_AT = 1_000;
/** The code by which OpenAI's clients know that a history is too long. */
const CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded";
/** Words of vendors and local servers for a history that is too long. */
export const TOO_LONG =
  /context[ _](length|window|size)|too many (input )?tokens|prompt is too long|maximum number of tokens|too large for model with/i;
const NO_MODEL =
  /^model: |model.*(not found|does not exist|not exist|unknown|not a valid|no such|not loaded)|(unknown|no such|invalid) model/is;

/**
 * Returns the error of a refusal. 400, 404, 413 and 422 are the caller's (`provider_rejected`, `model_not_found`). A history that is too
 * long is 400 `context_length_exceeded` whatever the vendor calls it. 429 is `provider_rate_limited` with its Retry-After, 408 and 504
 * are `provider_timeout`, all others `provider_error`. The key never stands in the message.
 * Source: docs/design/errors.md "Errors of a provider"
 */
export function toUpstreamError(upstream: Upstream, refusal: UpstreamRefusal): ProviderError {
  const told = withoutKey(readError(refusal.body), upstream.key);
  const status = refusal.status === 200 ? told.status : refusal.status;
  const message = clean(told.message);
  const says = message === "" ? "without a reason" : message;
  const { name: provider } = upstream;
  const options: ProviderErrorOptions = { provider, status, upstreamCode: told.code, param: told.param };
  if (isUnknownModel(status, told)) {
    return new ProviderError("model_not_found", `Provider "${provider}" does not know the model: ${says}`, {
      ...options,
      status: 404,
    });
  }
  if (status === 401 || status === 403) {
    const source = upstream.keySource === undefined
      ? `it has none; name one by "api_key_env"`
      : `check ${upstream.keySource}`;
    return new ProviderError(
      "provider_error",
      `The gateway's key for provider "${provider}" was refused (${status}): ${source}`,
      { provider, status },
    );
  }
  if (isTooLong(status, told)) {
    return new ProviderError(
      "provider_rejected",
      `Provider "${provider}" refused the request (${status ?? "in its reply"}): ${says}`,
      { provider, status: 400, upstreamCode: CONTEXT_LENGTH_EXCEEDED, param: "messages" },
    );
  }
  if (status === 400 || status === 404 || status === 413 || status === 422) {
    const sentence = `Provider "${provider}" refused the request (${status}): ${says}`;
    return new ProviderError("provider_rejected", sentence, options);
  }
  if (status === 429) {
    return new ProviderError("provider_rate_limited", `Provider "${provider}" limits the rate: ${says}`, {
      ...options,
      retryAfterSeconds: retryAfter(refusal, upstream.now),
      retryable: told.code !== "insufficient_quota",
    });
  }
  if (status === 408 || status === 504) {
    return new ProviderError("provider_timeout", `Provider "${provider}" timed out (${status}): ${says}`, {
      ...options,
      retryable: true,
    });
  }
  const place = status === undefined ? "reported an error in its reply" : `failed (${status})`;
  return new ProviderError("provider_error", `Provider "${provider}" ${place}: ${says}`, {
    ...options,
    retryAfterSeconds: retryAfter(refusal, upstream.now),
    retryable: status === undefined || status === 409 || (status >= 500 && status !== 501),
  });
}

/** Returns the error of a reply that breaks the rules of its format: `provider_error`, tried again while nothing was sent on. */
export function brokenReply(upstream: { readonly name: string }, problem: string, cause?: unknown): ProviderError {
  return new ProviderError("provider_error", `Cannot read the reply of provider "${upstream.name}": ${problem}`, {
    provider: upstream.name,
    retryable: true,
    cause,
  });
}

interface ToldError {
  readonly message: string;
  readonly code: string | undefined;
  readonly param: string | undefined;
  readonly status: number | undefined;
}

/** Statuses that vendors put into words inside a stream. Source: Anthropic API errors */
const STATUS_OF_TYPE: ReadonlyMap<string, number> = new Map(Object.entries({
  invalid_request_error: 400,
  authentication_error: 401,
  permission_error: 403,
  not_found_error: 404,
  request_too_large: 413,
  rate_limit_error: 429,
  rate_limit_exceeded: 429,
  api_error: 500,
  server_error: 500,
  timeout_error: 504,
  overloaded_error: 529,
}));

function readError(body: string): ToldError {
  const parsed = parse(body);
  if (!isRecord(parsed)) {
    return {
      message: parsed === undefined ? body : String(parsed),
      code: undefined,
      param: undefined,
      status: undefined,
    };
  }
  const error = isRecord(parsed["error"]) ? parsed["error"] : parsed;
  const message = stringOf(error["message"]) ?? stringOf(parsed["error"]) ?? stringOf(parsed["message"]) ??
    (parsed["detail"] === undefined ? "" : stringOf(parsed["detail"]) ?? JSON.stringify(parsed["detail"]));
  const code = error["code"];
  const type = stringOf(error["type"]);
  const numeric = typeof code === "number" ? code : Number(stringOf(code) ?? Number.NaN);
  return {
    message,
    code: stringOf(code) ?? type,
    param: stringOf(error["param"]),
    status: numeric >= 400 && numeric < 600
      ? numeric
      : STATUS_OF_TYPE.get(stringOf(code) ?? "") ?? STATUS_OF_TYPE.get(type ?? ""),
  };
}

/** Returns whether a request was too long. Local servers answer it with 500 too. */
function isTooLong(status: number | undefined, { code, message }: ToldError): boolean {
  const mayBe = status === undefined || status === 400 || status === 413 || status === 422 || status === 500;
  return mayBe && TOO_LONG.test(`${code ?? ""} ${message}`);
}

function isUnknownModel(status: number | undefined, told: ToldError): boolean {
  if (told.code === "model_not_found") return true;
  return (status === 404 || status === 400) && NO_MODEL.test(told.message.slice(0, MAX_LOOKED_AT));
}

/** Returns the error without the key in any of its forms. */
function withoutKey(told: ToldError, key: string | undefined): ToldError {
  if (key === undefined || key === "") return told;
  const { redact } = createRedactor([key]);
  // A key too short for the redactor is still ours
  const without = (text: string) => redact(text.replaceAll(key, "[redacted]"));
  const { message, code, param, status } = told;
  return {
    message: without(message),
    code: code === undefined ? undefined : without(code),
    param: param === undefined ? undefined : without(param),
    status,
  };
}

function clean(message: string): string {
  const line = message.replaceAll(/\s+/g, " ").trim();
  return line.length > MAX_MESSAGE_LENGTH ? `${line.slice(0, MAX_MESSAGE_LENGTH)}...` : line;
}

/** Seconds from `retry-after-ms` or `Retry-After` (seconds or date, RFC 9110 section 10.2.3), rounded up. */
function retryAfter({ header }: UpstreamRefusal, now: () => number): number | undefined {
  const milliseconds = Number(header?.("retry-after-ms") ?? Number.NaN);
  if (milliseconds >= 0) return Math.ceil(milliseconds / 1000);
  const value = header?.("retry-after");
  if (value === undefined) return undefined;
  const seconds = /^\d+(\.\d+)?$/.test(value.trim()) ? Number(value) : (Date.parse(value) - now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, Math.ceil(seconds)) : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
