import { type ErrorType, HttpError } from "../../lib/base/errors.ts";

/** Every code of the one error shape with its status and type. Source: docs/design/errors.md "The one shape". */
export const ERROR_CODES = {
  invalid_request: [400, "invalid_request_error"],
  unsupported_parameter: [400, "invalid_request_error"],
  auth_required: [401, "authentication_error"],
  auth_invalid: [401, "authentication_error"],
  pairing_code_required: [401, "authentication_error"],
  pairing_code_invalid: [403, "permission_error"],
  insufficient_scope: [403, "permission_error"],
  origin_forbidden: [403, "permission_error"],
  host_forbidden: [403, "permission_error"],
  not_found: [404, "invalid_request_error"],
  model_not_found: [404, "invalid_request_error"],
  method_not_allowed: [405, "invalid_request_error"],
  request_timeout: [408, "invalid_request_error"],
  idempotency_conflict: [409, "invalid_request_error"],
  conflict: [409, "invalid_request_error"],
  needs_review: [409, "invalid_request_error"],
  payload_too_large: [413, "invalid_request_error"],
  unsupported_media_type: [415, "invalid_request_error"],
  expectation_failed: [417, "invalid_request_error"],
  upgrade_required: [426, "invalid_request_error"],
  rate_limited: [429, "rate_limit_error"],
  pairing_locked: [429, "rate_limit_error"],
  headers_too_large: [431, "invalid_request_error"],
  internal_error: [500, "api_error"],
  loop_detected: [500, "api_error"],
  record_unreadable: [500, "api_error"],
  run_interrupted: [500, "api_error"],
  not_implemented: [501, "invalid_request_error"],
  provider_error: [502, "api_error"],
  agent_unavailable: [503, "api_error"],
  shutting_down: [503, "api_error"],
  storage_unavailable: [503, "api_error"],
  overloaded: [503, "api_error"],
  provider_timeout: [504, "api_error"],
} as const satisfies Record<string, readonly [number, ErrorType]>;
export type ErrorCode = keyof typeof ERROR_CODES;

export interface RefusalOptions {
  /** Path of the request field at fault */
  readonly param?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** The error of `code`, with the status and type that belong to it. */
export function httpError(code: ErrorCode, message: string, options: RefusalOptions = {}): HttpError {
  const [status, type] = ERROR_CODES[code];
  return new HttpError(code, message, { status, type, ...options });
}
