import { ProviderError, type ProviderErrorOptions } from "../../base/errors.ts";
import { createRedactor } from "../../base/redact.ts";
import { CONTEXT_LENGTH_EXCEEDED, saysTooLong } from "../vendors/too_long.ts";
import { readError, type ToldError } from "./error_body.ts";

/** The upstream that is asked, for the words of its errors. */
export interface Upstream {
  /** The provider's configured name */
  readonly name: string;
  /** Where the key comes from, such as `the environment variable "OPENAI_API_KEY"`; undefined without a key */
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
/** Words of a fault in the request's own parts, in which a model is named by the way */
const NAMES_PART =
  /schema|propert(?:y|ies)|response_format|\b(?:functions?|tools?|messages?)\b|\bfields?\b|\barguments?\b/i;
const NO_MODEL =
  /^model: |model.*(not found|does not exist|not exist|unknown|not a valid|no such|not loaded)|(unknown|no such|invalid) model/is;

/** Words of llama.cpp, which answers 500 where it or the model's template refuses a part of the request. No wait changes that */
const REFUSES_PART = /unsupported param\b|\bjinja\b|raise_exception/i;

/**
 * Returns the error of a refusal. 400, 404, 413 and 422 are the caller's (`provider_rejected`, `model_not_found`). A history that is too
 * long is 400 `context_length_exceeded` whatever the vendor calls it. 429 is `provider_rate_limited` with its Retry-After, 408 and 504
 * are `provider_timeout`, all others `provider_error`. The key never is in the message.
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
      retryable: !isQuota(told),
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
    retryable: status === undefined || status === 409 ||
      (status >= 500 && status !== 501 && !REFUSES_PART.test(looked(told))),
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

/** Returns whether a request was too long. Local servers answer it with 500 too. */
function isTooLong(status: number | undefined, { code, message }: ToldError): boolean {
  const mayBe = status === undefined || status === 400 || status === 413 || status === 422 || status === 500;
  return mayBe && saysTooLong(`${code ?? ""} ${message}`);
}

/** Returns whether money is missing, which no wait brings back. */
function isQuota({ code = "", message }: ToldError): boolean {
  return /insufficient.?(?:quota|balance)|exceeded.?(?:your.?)?current.?quota/i.test(`${code} ${message}`);
}

function isUnknownModel(status: number | undefined, told: ToldError): boolean {
  if (told.code === "model_not_found") return true;
  if (status !== 404 && status !== 400) return false;
  const said = looked(told);
  return NO_MODEL.test(said) && (status === 404 || told.param === "model" || !NAMES_PART.test(said));
}

function looked({ message }: ToldError): string {
  return message.slice(0, MAX_LOOKED_AT);
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
