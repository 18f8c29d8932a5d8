import assert from "node:assert/strict";
import { test } from "node:test";
import { errorBody, toHttpError } from "../../../handlers/wire/http_errors.ts";
import { CancelError } from "../../../lib/base/cancel.ts";
import {
  ProviderError,
  type ProviderErrorCode,
  type ProviderErrorOptions,
  refuse,
  ToolError,
} from "../../../lib/base/errors.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";

const mapping = { log: SILENT, requestId: "r" };
const upstream = (code: ProviderErrorCode, options: Partial<ProviderErrorOptions> = {}) =>
  toHttpError(new ProviderError(code, "Upstream failed", { provider: "p", ...options }), mapping);

test("an upstream's 400, 404, 413 and 422 keep status, code and param", () => {
  for (
    const [status, fallback] of [[400, "invalid_request"], [404, "not_found"], [413, "payload_too_large"], [
      422,
      "invalid_request",
    ]] as const
  ) {
    const kept = upstream("provider_rejected", { status, upstreamCode: "their_code", param: "messages" });
    assert.deepEqual([kept.status, kept.code, kept.param, kept.type], [
      status,
      "their_code",
      "messages",
      "invalid_request_error",
    ]);
    assert.equal(upstream("provider_rejected", { status }).code, fallback);
  }
  assert.equal(upstream("provider_rejected", { status: 402 }).status, 502);
});

test("429 stays 429 with its Retry-After; our key's 401 and 403, 5xx and broken replies are 502; timeouts 504", () => {
  const limited = upstream("provider_rate_limited", { status: 429, retryAfterSeconds: 17 });
  assert.deepEqual([limited.status, limited.code, limited.headers["retry-after"]], [429, "rate_limited", "17"]);
  for (const status of [401, 403, 500, 503, undefined]) {
    const error = upstream("provider_error", { status });
    assert.deepEqual([error.status, error.code], [502, "provider_error"]);
    assert.equal(error.headers["www-authenticate"], undefined);
  }
  assert.equal(upstream("provider_timeout").status, 504);
  const unknown = upstream("model_not_found", { status: 404 });
  assert.deepEqual([unknown.status, unknown.code, unknown.param], [404, "model_not_found", "model"]);
});

test("409, a provider's failure, and every error after an effect, says x-should-retry: false", () => {
  const conflict = refuse("conflict", "Cannot");
  assert.equal(toHttpError(conflict, mapping).headers["x-should-retry"], "false");
  for (const code of ["provider_error", "provider_timeout", "provider_rate_limited"] as const) {
    const refused = new ProviderError(code, "x", { provider: "p" });
    assert.equal(toHttpError(refused, mapping).headers["x-should-retry"], "false", code);
  }
  const broken = refuse("overloaded", "x");
  assert.equal(toHttpError(broken, mapping).headers["x-should-retry"], undefined);
  assert.equal(toHttpError(broken, { ...mapping, hadEffect: true }).headers["x-should-retry"], "false");
});

test("503 carries Retry-After, the thrower's own where there is one", () => {
  const busy = (headers = {}) => toHttpError(refuse("overloaded", "x", { headers }), mapping).headers;
  assert.deepEqual(busy(), { "retry-after": "1" });
  assert.deepEqual(busy({ "Retry-After": "9" }), { "retry-after": "9" });
});

test("a cancelled work is told by its reason, a tool's error as a bad request, anything else as one sentence", () => {
  const statuses = (["timeout", "shutdown", "cancelled", "budget", "client_gone"] as const).map((reason) =>
    toHttpError(new CancelError(reason), mapping).status
  );
  assert.deepEqual(statuses, [504, 503, 409, 429, 408]);
  assert.equal(toHttpError(new ToolError("bad_input", "Cannot"), mapping).status, 400);
  for (const thrown of [new TypeError("secret"), "secret", undefined, null, { secret: 1 }]) {
    const body = errorBody(toHttpError(thrown, mapping));
    assert.deepEqual([body.error.code, body.error.type, body.error.param], ["internal_error", "api_error", null]);
    assert.doesNotMatch(JSON.stringify(body), /secret/);
  }
});
