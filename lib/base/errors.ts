/**
 * The four errors by who is told. Everything else that is thrown is a bug: it is logged whole and shown as one fixed sentence.
 * Codes are stable (docs/design/errors.md "Four classes"); tests assert the code, people read the message.
 */

/** `type` of the one error shape (docs/design/errors.md "The one shape"), as OpenAI clients know it. */
export type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "permission_error"
  | "rate_limit_error"
  | "api_error";

/** Answer to the HTTP client that an `HttpError` carries. */
export interface HttpErrorOptions {
  /** HTTP status, 400-599 */
  readonly status: number;
  readonly type: ErrorType;
  /** Path of the request field at fault, such as `messages[0].role`; null when no field is */
  readonly param?: string | null;
  /** Extra reply headers, such as `Retry-After` or `WWW-Authenticate` */
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** Row of a code: what a client is told with it. */
interface ErrorRow {
  /** HTTP status, 400-599 */
  readonly status: number;
  readonly type: ErrorType;
  /** Seconds until the same request may succeed, sent as `Retry-After`; "never" is `x-should-retry: false`. Default: the client decides */
  readonly retry?: number | "never";
  /** Cause in the words of the table in docs/http.md */
  readonly meaning: string;
}

const INVALID = "invalid_request_error";
const AUTHENTICATION = "authentication_error";
const PERMISSION = "permission_error";
const RATE = "rate_limit_error";
const API = "api_error";
const ROWS = {
  invalid_request: { status: 400, type: INVALID, meaning: "the route takes no such request; `param` names the field" },
  unsupported_parameter: { status: 400, type: INVALID, meaning: "a field of the completion is not honoured" },
  auth_required: { status: 401, type: AUTHENTICATION, meaning: "the request has no token" },
  auth_invalid: { status: 401, type: AUTHENTICATION, meaning: "the token is unknown, revoked or has ended" },
  pairing_code_required: { status: 401, type: AUTHENTICATION, meaning: "a pairing without its code" },
  pairing_code_invalid: { status: 403, type: PERMISSION, meaning: "the pairing code is wrong, used or has ended" },
  insufficient_scope: { status: 403, type: PERMISSION, meaning: "the token may not do this" },
  origin_forbidden: { status: 403, type: PERMISSION, meaning: "a web page of another site asked" },
  host_forbidden: { status: 403, type: PERMISSION, meaning: "the name in the address is not the gateway's" },
  not_found: { status: 404, type: INVALID, meaning: "there is no such path, or no such thing" },
  model_not_found: { status: 404, type: INVALID, meaning: "no provider has this model" },
  method_not_allowed: { status: 405, type: INVALID, meaning: "the path takes other methods, which `Allow` names" },
  request_timeout: { status: 408, type: INVALID, meaning: "the request did not arrive in time" },
  idempotency_conflict: {
    status: 409,
    type: INVALID,
    retry: "never",
    meaning: "the `Idempotency-Key` cannot be used again",
  },
  conflict: { status: 409, type: INVALID, retry: "never", meaning: "what is there now does not allow it" },
  needs_review: { status: 409, type: INVALID, retry: "never", meaning: "a person has to decide about the run" },
  payload_too_large: { status: 413, type: INVALID, meaning: "the body, or a package in it, is too large" },
  unsupported_media_type: {
    status: 415,
    type: INVALID,
    meaning: "the body is not JSON, or is compressed in an unknown way",
  },
  expectation_failed: { status: 417, type: INVALID, meaning: "an `Expect` other than `100-continue`" },
  upgrade_required: { status: 426, type: INVALID, meaning: "a plain request to a WebSocket" },
  rate_limited: { status: 429, type: RATE, meaning: "too many requests, or a budget of tokens is used up" },
  pairing_locked: { status: 429, type: RATE, meaning: "too many wrong pairing codes" },
  headers_too_large: { status: 431, type: INVALID, meaning: "the headers of the request are too long" },
  internal_error: { status: 500, type: API, meaning: "a fault of the gateway; its log has the cause" },
  loop_detected: { status: 500, type: API, retry: "never", meaning: "the model made the same calls again and again" },
  record_unreadable: { status: 500, type: API, meaning: "a stored record is damaged" },
  run_interrupted: { status: 500, type: API, meaning: "a restart broke the reply off, and it cannot go on" },
  not_implemented: {
    status: 501,
    type: INVALID,
    retry: "never",
    meaning: "the gateway cannot do this, or lacks a package for it",
  },
  provider_error: { status: 502, type: API, meaning: "the model's server failed, also when asked again" },
  agent_unavailable: { status: 503, type: API, retry: 60, meaning: "the gateway was started without an agent" },
  shutting_down: { status: 503, type: API, retry: 5, meaning: "the gateway is being stopped or drained" },
  halted: { status: 503, type: API, retry: "never", meaning: "a person has halted the work, until `postern resume`" },
  storage_unavailable: { status: 503, type: API, retry: 5, meaning: "the database cannot be used now" },
  overloaded: { status: 503, type: API, retry: 1, meaning: "a queue or a limit of the gateway is full" },
  workspace_unavailable: { status: 503, type: API, retry: 5, meaning: "the gateway cannot use its workspace now" },
  provider_timeout: { status: 504, type: API, meaning: "the model's server, or a node, did not answer in time" },
} as const satisfies Record<string, ErrorRow>;

/** Code of the one error shape. */
export type ErrorCode = keyof typeof ROWS;

/** Catalogue of the codes (docs/design/errors.md "The one shape"). Status and type of a code stand here alone. */
export const ERROR_CODES: Readonly<Record<ErrorCode, ErrorRow>> = ROWS;

/** Tells whether the catalogue has a code; programs and the servers of models have codes of their own. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERROR_CODES, code);
}

/** Returns the code of an error of the system, such as `ENOENT`; undefined for an error without one. */
export function systemCodeOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

/** Returns the message of whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Error with a stable code. Each kind of error is a class of its own. */
export abstract class CodedError<Code extends string = string> extends Error {
  /** Stable code, such as `not_found` (docs/http.md) */
  readonly code: Code;
  /** Keeps code and message. @param options.cause error behind this one. Default: none */
  constructor(code: Code, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** Error that is answered to the HTTP client. `refuse` makes those of the gateway's own codes. */
export class HttpError extends CodedError {
  /** Tells the class where `instanceof` cannot, as between two copies of the package */
  override readonly name = "HttpError";
  /** HTTP status, 400 to 599 */
  readonly status: number;
  /** Family of the error, as OpenAI clients know it */
  readonly type: ErrorType;
  /** Path of the request field at fault, such as `messages[0].role`; null when no field is */
  readonly param: string | null;
  /** Headers of the reply beside the usual ones, by name */
  readonly headers: Readonly<Record<string, string>>;
  /** Makes the error. @param code stable code: the program's own, or one of docs/http.md */
  constructor(code: string, message: string, options: HttpErrorOptions) {
    super(code, message, { cause: options.cause });
    this.status = options.status;
    this.type = options.type;
    this.param = options.param ?? null;
    this.headers = options.headers ?? {};
  }
}

/** Returns the error of a code, with the status and type of the catalogue. */
export function refuse(
  code: ErrorCode,
  message: string,
  options: Omit<HttpErrorOptions, "status" | "type"> = {},
): HttpError {
  const { status, type } = ERROR_CODES[code];
  return new HttpError(code, message, { ...options, status, type });
}

/** Error that is told to the model. It becomes a tool result with `isError`, never an exception in the loop. */
export class ToolError extends CodedError {
  /** Tells the class where `instanceof` cannot, as between two copies of the package */
  override readonly name = "ToolError";
}

/** Facts about a failed request to a provider. */
export interface ProviderErrorOptions {
  /** The provider's configured name */
  readonly provider: string;
  /** HTTP status of the upstream's reply; undefined when there was none */
  readonly status?: number | undefined;
  /** The upstream's own `code` and `param`, kept for the statuses that are passed through */
  readonly upstreamCode?: string | undefined;
  readonly param?: string | undefined;
  /** Seconds from the upstream's `Retry-After` */
  readonly retryAfterSeconds?: number | undefined;
  /** The same request may succeed later: refused connection, 408, 409, 429, 5xx, before the first byte */
  readonly retryable?: boolean | undefined;
  readonly cause?: unknown;
}

/** `provider_*` codes of docs/design/errors.md "Errors of a provider"; `model_not_found` for an upstream's unknown model. */
export type ProviderErrorCode =
  | "provider_error"
  | "provider_timeout"
  | "provider_rejected"
  | "provider_rate_limited"
  | "model_not_found";

/**
 * An upstream failed. `provider_rejected`: it refused the request itself (400, 404, 413, 422), status and code are kept;
 * `provider_rate_limited`: 429; `provider_timeout`: no answer in time; `provider_error`: 401, 403, 5xx, broken reply.
 */
export class ProviderError extends CodedError<ProviderErrorCode> {
  /** Tells the class where `instanceof` cannot, as between two copies of the package */
  override readonly name = "ProviderError";
  /** Name of the provider in the configuration */
  readonly provider: string;
  /** HTTP status of the upstream's reply; undefined when there was none */
  readonly status: number | undefined;
  /** Code that the upstream gave; undefined when it gave none */
  readonly upstreamCode: string | undefined;
  /** Field of the request that the upstream refused; undefined when it named none */
  readonly param: string | undefined;
  /** Seconds to wait, from the upstream's `Retry-After`; undefined without one */
  readonly retryAfterSeconds: number | undefined;
  /** True when the same request may succeed later, before the first byte of the reply */
  readonly retryable: boolean;
  /** Makes the error. @param code kind of the failure; the options say what the upstream told */
  constructor(code: ProviderErrorCode, message: string, options: ProviderErrorOptions) {
    super(code, message, { cause: options.cause });
    this.provider = options.provider;
    this.status = options.status;
    this.upstreamCode = options.upstreamCode;
    this.param = options.param;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.retryable = options.retryable ?? false;
  }
}

/** Problem of the configuration. `message` can be read alone: it names place, key, reason and way out. */
export interface ConfigProblem {
  /** Sentence with place, key, reason and way out */
  readonly message: string;
  /** Dotted path of the key at fault, such as `gateway.port`; undefined when no key is */
  readonly key: string | undefined;
  /** File that the value came from; undefined for an option, a flag or a variable of the environment */
  readonly file: string | undefined;
  /** Line in the file, from 1; undefined where it is not known */
  readonly line: number | undefined;
}

/** Place of a value that the configuration may not have. */
export interface ConfigErrorOptions {
  /** Dotted key path, such as `gateway.port` */
  readonly key?: string | undefined;
  /** File the value came from; undefined for a flag or environment variable */
  readonly file?: string | undefined;
  /** 1-based */
  readonly line?: number | undefined;
  /** All that was found, where there may be several; the message holds each on a line of its own */
  readonly problems?: readonly ConfigProblem[] | undefined;
  readonly cause?: unknown;
}

/** Error that is told to the operator. The CLI exits with 78. The message already names file, line and key. */
export class ConfigError extends CodedError {
  /** Tells the class where `instanceof` cannot, as between two copies of the package */
  override readonly name = "ConfigError";
  /** Dotted path of the first key at fault, such as `gateway.port`; undefined when no key is */
  readonly key: string | undefined;
  /** File that the value came from; undefined for an option, a flag or a variable of the environment */
  readonly file: string | undefined;
  /** Line in the file, from 1; undefined where it is not known */
  readonly line: number | undefined;
  /** Every problem that was found, at least one, in the order of the file */
  readonly problems: readonly ConfigProblem[];
  /** Makes the error. @param options place of the problem; `problems` where there are several */
  constructor(code: string, message: string, options: ConfigErrorOptions = {}) {
    super(code, message, { cause: options.cause });
    const { key, file, line } = options;
    this.problems = options.problems ?? [{ message, key, file, line }];
    this.key = options.key;
    this.file = options.file;
    this.line = options.line;
  }
}
