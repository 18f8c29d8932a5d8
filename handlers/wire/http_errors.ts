import { CancelError, type CancelReason } from "../../lib/base/cancel.ts";
import {
  CodedError,
  ERROR_CODES,
  type ErrorCode,
  HttpError,
  isErrorCode,
  ProviderError,
  type ProviderErrorCode,
  refuse,
  ToolError,
} from "../../lib/base/errors.ts";
import { withProgramName } from "../../lib/base/program_name.ts";
import type { Logger } from "../../lib/base/telemetry/log.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { ExtensionError } from "../../lib/extensions/extension_error.ts";

/** Circumstances that decide what a client is told about an error. */
export interface ErrorMapping {
  readonly log: Logger;
  readonly requestId: string;
  /** A tool with an effect ran before the failure: the client must not repeat the request by itself. Default false */
  readonly hadEffect?: boolean | undefined;
}

/**
 * Returns the error that the client is told for anything thrown (docs/design/errors.md "The one shape").
 *
 * An upstream's 400, 404, 413 and 422 keep status and code, 429 stays 429 with its Retry-After; 401 and 403 become 502, since the
 * key is ours. A bug is logged whole under the request id and shown as one fixed sentence. `x-should-retry: false` goes with 409, 501,
 * `loop_detected`, a used-up budget, a provider's failure (the gateway has spent its own retries) and any failure after an effect.
 * 401 carries `WWW-Authenticate`; 503 carries `Retry-After`.
 */
export function toHttpError(error: unknown, mapping: ErrorMapping): HttpError {
  const mapped = mapError(error, mapping);
  const added: Record<string, string> = {};
  const retry = retryOf(mapped);
  if (retry === "never" || isInVain(error) || mapping.hadEffect) added["x-should-retry"] = "false";
  if (mapped.status === 401) added["www-authenticate"] = "Bearer";
  if (typeof retry === "number") added["retry-after"] = String(retry);
  if (Object.keys(added).length === 0) return mapped;
  const { code, message, status, type, param, cause } = mapped;
  for (const [name, value] of Object.entries(mapped.headers)) added[name.toLowerCase()] = value;
  return new HttpError(code, message, { status, type, param, cause, headers: added });
}

/**
 * Returns the body of an error reply, also of an error event of a stream.
 * @param program words that start this program where its reader is. Default `postern`
 */
export function errorBody(error: HttpError, program = "postern") {
  return {
    error: { message: withProgramName(error.message, program), type: error.type, code: error.code, param: error.param },
  };
}

/** Status of the vendor for a server that has too much to do. */
const OVERLOADED = 529;

/** Types of errors of the Messages API by their status. Source: https://docs.anthropic.com/en/api/errors */
const MESSAGES_TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  504: "timeout_error",
  [OVERLOADED]: "overloaded_error",
};

/** Tells whether the clients of a path know the Messages API: every answer there is in its form, refusals by any guard among them. */
export function isMessagesPath(path: string): boolean {
  return path === "/v1/messages" || path.startsWith("/v1/messages/");
}

/**
 * Tells whether a request gets its errors in the form of the Messages API: on its paths, and on those of models, which clients of several
 * formats ask for, where the client says by `anthropic-version` that it knows that form.
 */
export function wantsMessagesForm(path: string, headers: Headers): boolean {
  // The paths of both begin so, and those of most requests do not
  return path.startsWith("/v1/m") &&
    (isMessagesPath(path) || (isModelsPath(path) && headers.has("anthropic-version")));
}

/** Tells whether clients of several formats ask for a path: the form of an answer is that of the client. */
export function isModelsPath(path: string): boolean {
  return path === "/v1/models" || path.startsWith("/v1/models/");
}

/**
 * Returns the status that clients of the Messages API know an error by: 529 in place of 503, unless there is no agent at all, and where the
 * model's server has too much to do.
 */
export function messageStatus({ status, code, cause }: Pick<HttpError, "status" | "code" | "cause">): number {
  if (status === 503) return code === "agent_unavailable" ? status : OVERLOADED;
  const isBusy = cause instanceof ProviderError && (cause.status === 503 || cause.status === OVERLOADED);
  return code === "provider_error" && isBusy ? OVERLOADED : status;
}

/** Returns the status under which the clients of a path get an error of the catalogue. */
export function statusOnPath(path: string, code: ErrorCode): number {
  const { status } = ERROR_CODES[code];
  return isMessagesPath(path) ? messageStatus({ status, code, cause: undefined }) : status;
}

/**
 * Returns the body of an error in the form of the Messages API, also of an error event of a stream. `code` and `param` are the gateway's own.
 * @param options.program words that start this program where its reader is. Default `postern`
 */
export function messageErrorBody(
  error: HttpError,
  { requestId, program = "postern" }: { readonly requestId: string; readonly program?: string | undefined },
) {
  const status = messageStatus(error);
  const type = MESSAGES_TYPES[status] ?? (status < 500 ? "invalid_request_error" : "api_error");
  return { type: "error", request_id: requestId, error: { ...errorBody(error, program).error, type } };
}

/** Does work, and turns its refusals about plugins and skills into those that clients are told. */
export async function refusing<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    // The class is known by its name, because its module is not loaded at the start
    if (!(error instanceof CodedError && error.name === "ExtensionError")) throw error;
    throw refuse((error as ExtensionError).toldAs, error.message, { cause: error }); // its name says the class
  }
}

/** Returns whether an error is a provider's: the gateway has spent its own retries on it. */
export function isProviderFailure(error: unknown): boolean {
  if (error instanceof ProviderError) return true;
  return error instanceof HttpError && (error.code === "provider_error" || error.code === "provider_timeout");
}

/**
 * Returns the error that a run ended with, in a form that `toHttpError` gives a status to: the status of its code where the table of codes
 * has one, else that of the cancel reason or of the upstream's failure; 500 under the run's code for what the loop itself gave up on.
 * Source: docs/design/errors.md "The one shape"
 */
export function runFailure(event: Pick<ErrorEvent, "code" | "message" | "upstream">): Error {
  const { code, message, upstream } = event;
  if (upstream !== undefined) {
    // Only the failure of a provider has `upstream`, so its code is a provider's
    return new ProviderError(code as ProviderErrorCode, message, {
      provider: "",
      status: upstream.status,
      upstreamCode: upstream.code,
      param: upstream.param,
      retryAfterSeconds: upstream.retry_after_secs,
    });
  }
  if (isErrorCode(code)) return refuse(code, message);
  if (Object.hasOwn(CANCEL_CODES, code)) return new CancelError(code as CancelReason, message); // one of the reasons
  if (code === "provider_rejected") {
    return new ProviderError("provider_rejected", message, { provider: "", status: 400 });
  }
  if (code === "provider_rate_limited") return new ProviderError("provider_rate_limited", message, { provider: "" });
  return new HttpError(code, message, { status: 500, type: "api_error" });
}

type ErrorEvent = Extract<AgentEvent, { type: "error" }>;

/** Returns the error for a run whose events stop without `done` or `error`, which is a bug: every reply must have an end. */
export function endedInSilence(): Error {
  return new Error("Cannot finish the reply: the run's events ended without a terminal one");
}

/** Returns how the client may repeat the request: as the catalogue says, and by the status for codes that others made up. */
function retryOf({ code, status }: HttpError): number | "never" | undefined {
  if (isErrorCode(code) && ERROR_CODES[code].status === status) return ERROR_CODES[code].retry;
  return status === 503 ? 5 : status === 409 || status === 501 ? "never" : undefined;
}

/** Tells whether a repeat would fail in the same way, whatever the code: the same provider, or a budget that is used up. */
function isInVain(error: unknown): boolean {
  return isProviderFailure(error) || (error instanceof CancelError && error.reason === "budget");
}

function mapError(error: unknown, mapping: ErrorMapping): HttpError {
  if (error instanceof HttpError) return error;
  if (error instanceof ProviderError) return fromProvider(error);
  if (error instanceof ToolError) return refuse("invalid_request", error.message, { cause: error });
  if (error instanceof CancelError) return refuse(CANCEL_CODES[error.reason], error.message, { cause: error });
  mapping.log.error("Request failed", { request_id: mapping.requestId, error });
  return refuse("internal_error", INTERNAL_SENTENCE, { cause: error });
}

const INTERNAL_SENTENCE =
  "Cannot answer the request: the gateway failed inside; its log has the cause under the request id";

/** Codes of cancelled requests. The code of `client_gone` is for the log alone: the client has left. */
const CANCEL_CODES: Record<CancelReason, ErrorCode> = {
  client_gone: "request_timeout",
  timeout: "provider_timeout",
  cancelled: "conflict",
  interrupted: "conflict",
  shutdown: "shutting_down",
  budget: "rate_limited",
  halted: "halted",
  taken_in: "conflict",
};

function fromProvider(error: ProviderError): HttpError {
  const { message, retryAfterSeconds } = error;
  const param = error.param ?? null;
  switch (error.code) {
    case "provider_rejected": {
      const kept = REJECTED[error.status ?? 0];
      if (kept === undefined) return refuse("provider_error", message, { cause: error });
      return new HttpError(error.upstreamCode ?? kept, message, {
        status: error.status ?? 400,
        type: "invalid_request_error",
        param,
        cause: error,
      });
    }
    case "model_not_found":
      return refuse("model_not_found", message, { param: error.param ?? "model", cause: error });
    case "provider_rate_limited": {
      const headers = { "retry-after": String(retryAfterSeconds ?? 1) };
      return refuse("rate_limited", message, { headers, cause: error });
    }
    case "provider_timeout":
    case "provider_error":
      return refuse(error.code, message, { cause: error });
  }
}

/** Statuses of an upstream that the client's request caused, with the code where the upstream gives none. */
const REJECTED: Record<number, ErrorCode> = {
  400: "invalid_request",
  404: "not_found",
  413: "payload_too_large",
  422: "invalid_request",
};
