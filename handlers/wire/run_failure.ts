import { CancelError, type CancelReason } from "../../lib/base/cancel.ts";
import { HttpError, ProviderError, type ProviderErrorCode } from "../../lib/base/errors.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { ERROR_CODES, type ErrorCode, httpError } from "./http_errors.ts";

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
  if (Object.hasOwn(ERROR_CODES, code)) return httpError(code as ErrorCode, message); // a key of the table
  if (CANCELS.has(code)) return new CancelError(code as CancelReason, message); // one of the reasons
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

const CANCELS: ReadonlySet<string> = new Set<CancelReason>([
  "client_gone",
  "timeout",
  "cancelled",
  "shutdown",
  "budget",
]);
