const AUTHENTICATE = { "www-authenticate": "Bearer" };
const NO_RETRY = { "x-should-retry": "false" };

/** The error-code table of docs/design/errors.md "The one shape": code, status, type, and the headers that each reply with the code has. */
export const ERROR_TABLE: readonly (readonly [
  code: string,
  status: number,
  type: string,
  headers?: Readonly<Record<string, string>>,
])[] = [
  ["invalid_request", 400, "invalid_request_error"],
  ["unsupported_parameter", 400, "invalid_request_error"],
  ["auth_required", 401, "authentication_error", AUTHENTICATE],
  ["auth_invalid", 401, "authentication_error", AUTHENTICATE],
  ["pairing_code_required", 401, "authentication_error", AUTHENTICATE],
  ["pairing_code_invalid", 403, "permission_error"],
  ["insufficient_scope", 403, "permission_error"],
  ["origin_forbidden", 403, "permission_error"],
  ["host_forbidden", 403, "permission_error"],
  ["not_found", 404, "invalid_request_error"],
  ["model_not_found", 404, "invalid_request_error"],
  ["method_not_allowed", 405, "invalid_request_error"],
  ["unsupported_media_type", 415, "invalid_request_error"],
  ["expectation_failed", 417, "invalid_request_error"],
  ["request_timeout", 408, "invalid_request_error"],
  ["upgrade_required", 426, "invalid_request_error"],
  ["headers_too_large", 431, "invalid_request_error"],
  ["idempotency_conflict", 409, "invalid_request_error", NO_RETRY],
  ["conflict", 409, "invalid_request_error", NO_RETRY],
  ["needs_review", 409, "invalid_request_error", NO_RETRY],
  ["payload_too_large", 413, "invalid_request_error"],
  ["rate_limited", 429, "rate_limit_error"],
  ["pairing_locked", 429, "rate_limit_error"],
  ["internal_error", 500, "api_error"],
  ["loop_detected", 500, "api_error", NO_RETRY],
  ["record_unreadable", 500, "api_error"],
  ["run_interrupted", 500, "api_error"],
  ["not_implemented", 501, "invalid_request_error", NO_RETRY],
  ["provider_error", 502, "api_error", NO_RETRY],
  ["provider_timeout", 504, "api_error", NO_RETRY],
  ["agent_unavailable", 503, "api_error", { "retry-after": "60" }],
  ["shutting_down", 503, "api_error", { "retry-after": "5" }],
  ["halted", 503, "api_error", NO_RETRY],
  ["storage_unavailable", 503, "api_error", { "retry-after": "5" }],
  ["overloaded", 503, "api_error", { "retry-after": "1" }],
  ["workspace_unavailable", 503, "api_error", { "retry-after": "5" }],
];

/** Codes of refusals about plugins and skills, by the code that clients are told. */
export const TOLD_TABLE = {
  invalid_request: [
    "manifest_invalid",
    "tool_name_taken",
    "package_invalid",
    "hash_mismatch",
    "signature_invalid",
    "skill_invalid",
  ],
  payload_too_large: ["package_too_large", "skill_too_large"],
  not_found: ["plugin_not_found", "skill_not_found"],
  conflict: ["plugin_conflict", "plugin_changed", "skill_conflict", "skill_changed"],
  provider_error: ["registry_failed", "skill_source_failed"],
} as const;
