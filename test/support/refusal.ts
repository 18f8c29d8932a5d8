import assert from "node:assert/strict";

/** The error of a reply, as clients see it. */
export interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly type: string;
  readonly param: string | null;
  readonly message: string;
  readonly headers: Headers;
}

/**
 * Reads a refusal, and holds it to the one error shape: exactly four members, a message in the agreed form, a request id.
 * Source: docs/design/errors.md "Messages"
 */
export async function readRefusal(reply: Response): Promise<Refusal> {
  const text = await reply.text();
  assert.ok(!reply.ok, `expected a refusal, got ${reply.status}: ${text}`);
  assert.match(reply.headers.get("content-type") ?? "", /^application\/json/);
  assert.match(reply.headers.get("x-request-id") ?? "", /^[\w.:-]{1,128}$/);
  const { error, ...rest } = JSON.parse(text) as { error: Record<string, unknown> };
  // Clients of Anthropic have the same members in a form of their own
  const request_id = reply.headers.get("request-id");
  assert.deepEqual(rest, request_id === null ? {} : { type: "error", request_id });
  assert.deepEqual(Object.keys(error).sort(), ["code", "message", "param", "type"]);
  const { code, type, param, message } = error;
  assert.match(String(message), /^[A-Z].*[^.]$/s);
  assert.match(String(type), /_error$|^request_too_large$/);
  assert.ok(param === null || typeof param === "string");
  return {
    status: reply.status,
    code: String(code),
    type: String(type),
    param,
    message: String(message),
    headers: reply.headers,
  };
}
