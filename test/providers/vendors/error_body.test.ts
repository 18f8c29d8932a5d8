import assert from "node:assert/strict";
import { test } from "node:test";
import { toUpstreamError } from "../../../lib/providers/upstream/upstream_error.ts";
import { processorMs } from "../../support/processor_time.ts";

const KEY = "sk-very-secret-key-0123456789";
const UPSTREAM = { name: "acme", keySource: undefined, key: KEY, now: () => 0 };

const refused = (body: unknown, status = 400) =>
  toUpstreamError(UPSTREAM, { status, body: typeof body === "string" ? body : JSON.stringify(body) });

/** Recorded error bodies, the words that a person can use, and the field they name. */
const BODIES: readonly (readonly [form: string, body: unknown, words: string, param?: string])[] = [
  ["OpenAI", { error: { message: "No", param: "stop", code: null } }, "No", "stop"],
  ["a text", { error: "Input validation error" }, "Input validation error"],
  ["a name beside the words", { error: "Bad Request", message: "The body is empty" }, "The body is empty"],
  [
    "Google's list",
    [{ error: { code: 400, message: "Invalid JSON payload", status: "INVALID_ARGUMENT" } }],
    "Invalid JSON payload",
  ],
  [
    "Mistral's message.detail",
    {
      object: "error",
      message: {
        detail: [
          {
            type: "extra_forbidden",
            loc: ["body", "messages", 0, "user", "name"],
            msg: "Extra inputs are not permitted",
            input: "",
          },
          { type: "extra_forbidden", loc: ["body", "seed"], msg: "Extra inputs are not permitted", input: 1 },
        ],
      },
      type: "invalid_request_error",
      param: null,
      code: null,
    },
    "messages.0.user.name: Extra inputs are not permitted; seed: Extra inputs are not permitted",
    "messages.0.user.name",
  ],
  [
    "Mistral's older text of JSON",
    {
      object: "error",
      message:
        '{"detail":[{"type":"extra_forbidden","loc":["body","frequency_penalty"],"msg":"Extra inputs are not permitted","input":0.0}]}',
      type: "internal_error_proxy",
      param: null,
      code: "1000",
    },
    "frequency_penalty: Extra inputs are not permitted",
  ],
  [
    "FastAPI",
    { detail: [{ loc: ["body", "messages"], msg: "field required", type: "value_error.missing" }] },
    "messages: field required",
    "messages",
  ],
  ["a detail in words", { detail: "Not authenticated" }, "Not authenticated"],
  [
    "Cloudflare's errors[]",
    { errors: [{ message: "AiError: Bad input", code: 5006 }], success: false, result: {} },
    "AiError: Bad input",
  ],
  ["errors[] of texts", { errors: ["first", "second"] }, "first; second"],
  ["msg", { code: 400, msg: "The parameter is wrong", data: null }, "The parameter is wrong"],
  [
    "Baidu's error_msg",
    { error_code: 336_003, error_msg: "the messages are empty", id: "as-x" },
    "the messages are empty",
  ],
  ["MiniMax's base_resp", { base_resp: { status_code: 2013, status_msg: "invalid params" } }, "invalid params"],
  ["AWS", { Message: "The request is malformed" }, "The request is malformed"],
  [
    "OpenRouter's metadata.raw, of JSON",
    {
      error: {
        message: "Provider returned error",
        code: 400,
        metadata: {
          raw:
            '{"error":{"message":"Response input messages must contain the word json","type":"invalid_request_error","param":"input","code":null}}',
          provider_name: "OpenAI",
        },
      },
      user_id: "org_x",
    },
    "Response input messages must contain the word json",
    "input",
  ],
  [
    "OpenRouter's metadata.raw, of words",
    {
      error: {
        message: "Provider returned error",
        code: 400,
        metadata: { raw: "glm is temporarily away upstream", provider_name: "X" },
      },
    },
    "glm is temporarily away upstream",
  ],
  [
    "a page",
    "<!DOCTYPE html>\n<html><head><title>400 Bad Request</title><style>a{}</style></head><body><h1>Request Header Or Cookie Too Large</h1></body></html>",
    "400 Bad Request: Request Header Or Cookie Too Large",
  ],
  [
    "a page without a title",
    "<html><body><script>var x = 1</script><p>Blocked by <b>policy</b></p></body></html>",
    "Blocked by policy",
  ],
  ["plain text", "upstream connect error", "upstream connect error"],
  ["an unknown form", { oops: { why: 1 } }, '{"oops":{"why":1}}'],
  ["nothing", {}, "without a reason"],
  ["no body", "", "without a reason"],
];

for (const [form, body, words, param] of BODIES) {
  test(`the words are found in an error body: ${form}`, () => {
    const error = refused(body);
    assert.equal(error.message, `Provider "acme" refused the request (400): ${words}`);
    assert.equal(error.param, param);
  });
}

test("words of any depth and length are bounded, and hold no key", () => {
  const deep = `${'{"error":'.repeat(5_000)}"${KEY}"${"}".repeat(5_000)}`;
  const bodies = [
    deep,
    { errors: Array.from({ length: 5_000 }, () => ({ message: `key ${KEY} ${"x".repeat(200)}` })) },
    `<html>${"<script".repeat(9_000)}`,
    `<html>${"<".repeat(60_000)}`,
    { error: { message: "No", metadata: { raw: JSON.stringify({ error: { message: `Bad ${KEY}` } }) } } },
  ];
  for (const body of bodies) {
    const started = processorMs();
    const { message } = refused(body);
    assert.ok(message.length < 700 && !message.includes(KEY), message.slice(0, 200));
    assert.ok(processorMs() - started < 2_000, `${processorMs() - started} ms`);
  }
});

/** Refusals of another field that name a model by the way. */
const NO_UNKNOWN_MODELS = [
  "Invalid schema for function 'look': In context=('properties', 'model'), 'type' is not found",
  "tools.0.custom.input_schema: property model is unknown",
  "Invalid value for 'response_format': the model name field does not exist in the schema",
  "messages.1: the model field is not a valid argument",
];

const UNKNOWN_MODELS = [
  "The model `gpt-9` does not exist or you do not have access to it.",
  "model: claude-9",
  'model "llama9" not found, try pulling it first',
  "Unknown model: grok-9",
  "gpt-9 is not a valid model ID: invalid model",
  "Model not exist.",
];

test("a fault in a schema that names a model is no unknown model, and an unknown model is one", () => {
  for (const message of NO_UNKNOWN_MODELS) {
    assert.equal(refused({ error: { message } }).code, "provider_rejected", message);
  }
  for (const message of UNKNOWN_MODELS) assert.equal(refused({ error: { message } }).code, "model_not_found", message);
  assert.equal(
    refused({ error: { message: "The model's tools do not exist: model not found" } }, 404).code,
    "model_not_found",
  );
});

test("a quota that is used up is 429 inside a stream too, and is not tried again", () => {
  const quotas: readonly (readonly [status: number, body: unknown])[] = [
    [200, {
      error: {
        message: "You exceeded your current quota, please check your plan",
        type: "insufficient_quota",
        param: null,
        code: "insufficient_quota",
      },
    }],
    [200, { error: { message: "No", code: "exceeded_current_quota_error" } }],
    [429, {
      error: { type: "exceeded_current_quota_error", message: "Your account is suspended due to insufficient balance" },
    }],
  ];
  for (const [status, body] of quotas) {
    const { code, status: shown, retryable } = refused(body, status);
    assert.deepEqual([code, shown, retryable], ["provider_rate_limited", 429, false], JSON.stringify(body));
  }
  const limited = refused({ error: { message: "Slow down", type: "rate_limit_error" } }, 200);
  assert.deepEqual([limited.status, limited.retryable], [429, true]);
});
