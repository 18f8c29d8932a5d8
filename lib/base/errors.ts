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
  /** Path of the request field at fault, as `messages[0].role`; null when no field is */
  readonly param?: string | null;
  /** Extra reply headers, as `Retry-After` or `WWW-Authenticate` */
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** Returns the message of whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Error with a stable code. Each kind of error is a class of its own. */
export abstract class CodedError<Code extends string = string> extends Error {
  readonly code: Code;
  constructor(code: Code, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** Error that is answered to the HTTP client. */
export class HttpError extends CodedError {
  override readonly name = "HttpError";
  readonly status: number;
  readonly type: ErrorType;
  readonly param: string | null;
  readonly headers: Readonly<Record<string, string>>;
  constructor(code: string, message: string, options: HttpErrorOptions) {
    super(code, message, { cause: options.cause });
    this.status = options.status;
    this.type = options.type;
    this.param = options.param ?? null;
    this.headers = options.headers ?? {};
  }
}

/** Error that is told to the model. It becomes a tool result with `isError`, never an exception in the loop. */
export class ToolError extends CodedError {
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
  override readonly name = "ProviderError";
  readonly provider: string;
  readonly status: number | undefined;
  readonly upstreamCode: string | undefined;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly retryable: boolean;
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
  readonly message: string;
  readonly key: string | undefined;
  readonly file: string | undefined;
  readonly line: number | undefined;
}

/** Place of a value that the configuration may not have. */
export interface ConfigErrorOptions {
  /** Dotted key path, as `gateway.port` */
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
  override readonly name = "ConfigError";
  readonly key: string | undefined;
  readonly file: string | undefined;
  readonly line: number | undefined;
  readonly problems: readonly ConfigProblem[];
  constructor(code: string, message: string, options: ConfigErrorOptions = {}) {
    super(code, message, { cause: options.cause });
    const { key, file, line } = options;
    this.problems = options.problems ?? [{ message, key, file, line }];
    this.key = options.key;
    this.file = options.file;
    this.line = options.line;
  }
}
