import assert from "node:assert/strict";
import { test } from "node:test";
import { toldWindow } from "../../../lib/providers/vendors/too_long.ts";
import { toUpstreamError } from "../../../lib/providers/upstream/upstream_error.ts";

const UPSTREAM = { name: "acme", keySource: undefined, key: undefined, now: () => 0 };

const refused = (body: unknown, status: number) =>
  toUpstreamError(UPSTREAM, { status, body: typeof body === "string" ? body : JSON.stringify(body) });

interface Row {
  readonly vendor: string;
  readonly body: unknown;
  /** Default: 400 */
  readonly status?: number;
  /** Window that is read; 0 where none is told */
  readonly window: number;
}

const openAi = (message: string, code: unknown = null, type = "invalid_request_error") => ({
  error: { message, type, param: null, code },
});

/** Recorded refusals of histories that were too long. */
const TOO_LONG: readonly Row[] = [
  {
    vendor: "OpenAI",
    body: openAi(
      "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens. Please reduce the length of the messages.",
      "context_length_exceeded",
    ),
    window: 128_000,
  },
  {
    vendor: "OpenAI, newer",
    body: openAi("Your input exceeds the context window of this model. Please adjust your input and try again."),
    window: 0,
  },
  {
    vendor: "OpenRouter",
    body: {
      error: {
        code: 400,
        message:
          "This endpoint's maximum context length is 262144 tokens. However, you requested about 284283 tokens (8963 of text input, 13176 of tool input, 262144 in the output). Please reduce the length of either one",
      },
    },
    window: 262_144,
  },
  {
    vendor: "Anthropic",
    body: {
      type: "error",
      error: { type: "invalid_request_error", message: "prompt is too long: 201130 tokens > 200000 maximum" },
    },
    window: 200_000,
  },
  {
    vendor: "Anthropic, the sum",
    body: {
      type: "error",
      error: {
        type: "invalid_request_error",
        message:
          "input length and `max_tokens` exceed context limit: 184915 + 20000 > 204648, decrease input length or `max_tokens` and try again",
      },
    },
    window: 204_648,
  },
  {
    vendor: "Mistral",
    status: 422,
    body: {
      object: "error",
      message: "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    },
    window: 32_768,
  },
  {
    vendor: "Google",
    body: [{
      error: {
        code: 400,
        message: "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).",
        status: "INVALID_ARGUMENT",
      },
    }],
    window: 1_048_576,
  },
  {
    vendor: "Vertex",
    body: {
      error: {
        code: 400,
        message:
          "Unable to submit request because the input token count is 40000 but model only supports up to 32767. Reduce the input token count and try again.",
      },
    },
    window: 32_767,
  },
  {
    vendor: "xAI",
    body: {
      code: "Client specified an invalid argument",
      error: "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    },
    window: 131_072,
  },
  {
    vendor: "Groq",
    body: openAi("Please reduce the length of the messages or completion.", "context_length_exceeded"),
    window: 0,
  },
  {
    vendor: "Cerebras",
    body: {
      message: "Please reduce the length of the messages or completion. Current length is 8242 while limit is 8192",
      type: "invalid_request_error",
      code: "context_length_exceeded",
    },
    window: 8192,
  },
  {
    vendor: "Together",
    body: openAi("The input (516368 tokens) is longer than the model's context length (262144 tokens)."),
    window: 262_144,
  },
  {
    vendor: "Together, older, and TGI",
    status: 422,
    body: {
      error:
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4081 `inputs` tokens and 1024 `max_new_tokens`",
      error_type: "validation",
    },
    window: 4097,
  },
  {
    vendor: "SGLang",
    body: {
      object: "error",
      message: "Input length (265330) exceeds model's maximum context length (262144).",
      type: "BadRequestError",
      code: 400,
    },
    window: 262_144,
  },
  {
    vendor: "vLLM",
    body: openAi(
      "You passed 40001 input tokens and requested 0 output tokens. However, the model's context length is only 40000, resulting in a maximum input length of 40000. Please reduce the length of the input prompt. (parameter=input_tokens, value=40001)",
      400,
      "BadRequestError",
    ),
    window: 40_000,
  },
  {
    vendor: "vLLM, multimodal",
    body: openAi(
      "The decoder prompt (length 163840) is longer than the maximum model length of 131072. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
      400,
      "BadRequestError",
    ),
    window: 131_072,
  },
  {
    vendor: "vLLM, the sum",
    body: openAi(
      "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 65536 tokens and your request has 57879 input tokens (8192 > 65536 - 57879). None",
      400,
      "BadRequestError",
    ),
    window: 65_536,
  },
  {
    vendor: "llama.cpp",
    body: {
      error: {
        code: 400,
        message: "the request exceeds the available context size, try increasing it",
        type: "exceed_context_size_error",
        n_prompt_tokens: 5001,
        n_ctx: 4096,
      },
    },
    window: 4096,
  },
  {
    vendor: "llama.cpp, older",
    status: 500,
    body: { error: { code: 500, message: "Context size has been exceeded.", type: "server_error" } },
    window: 0,
  },
  {
    vendor: "LM Studio",
    body: {
      error:
        "Trying to keep the first 6060 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
    },
    window: 4096,
  },
  {
    vendor: "Ollama",
    body: { error: { message: "prompt too long; exceeded max context length by 4 tokens", type: "api_error" } },
    window: 0,
  },
  {
    vendor: "Kimi",
    body: openAi("Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"),
    window: 262_144,
  },
  {
    vendor: "DashScope",
    body: {
      error: {
        code: "invalid_parameter_error",
        message: "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]",
        param: null,
        type: "invalid_request_error",
      },
      request_id: "81a373d6-28bd-9968-8335-e22a2127c41b",
    },
    window: 983_616,
  },
  {
    vendor: "Bedrock",
    body: { message: "Input is too long for requested model." },
    window: 0,
  },
  {
    vendor: "Bedrock, Titan",
    body: {
      message: "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9279 ",
    },
    window: 8192,
  },
  {
    vendor: "Copilot",
    body: {
      error: {
        message: "prompt token count of 130431 exceeds the limit of 128000",
        code: "model_max_prompt_tokens_exceeded",
      },
    },
    window: 128_000,
  },
  { vendor: "z.ai", body: { error: { code: "1261", message: "Prompt exceeds max length" } }, window: 0 },
  { vendor: "z.ai, newer", body: { error: { code: "1261", message: "Prompt too long" } }, window: 0 },
  { vendor: "z.ai, in Chinese", body: { error: { code: "1261", message: "Prompt 超长" } }, window: 0 },
  {
    vendor: "z.ai, another code",
    body: { error: { code: "1210", message: "tokens in request more than max tokens allowed" } },
    window: 0,
  },
  {
    vendor: "Atlas",
    body: openAi("Prompt too long: 5152 tokens exceeds max_seq_len 2048 (leave room for output tokens)"),
    window: 2048,
  },
  {
    vendor: "MiniMax",
    body: {
      type: "error",
      error: { type: "bad_request_error", message: "invalid params, context window exceeds limit (2013)" },
    },
    window: 0,
  },
  {
    vendor: "SiliconFlow",
    body: {
      code: 20015,
      message: "length of prompt_tokens (40000) must be less than max_seq_len (32768).",
      data: null,
    },
    window: 32_768,
  },
  {
    vendor: "Poolside",
    body: openAi("Input length 40000 exceeds the maximum allowed input length of 32768 tokens."),
    window: 32_768,
  },
  {
    vendor: "Fireworks",
    body: openAi("The prompt is too long: 140000, model maximum context length: 131071"),
    window: 131_071,
  },
  {
    vendor: "Cohere",
    body: {
      message:
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt",
    },
    window: 4081,
  },
  {
    vendor: "Cloudflare",
    status: 413,
    body: {
      errors: [{
        message:
          "AiError: The estimated number of input and maximum output tokens (30000) exceeded this model context window limit (24000).",
        code: 5021,
      }],
      success: false,
    },
    window: 24_000,
  },
  {
    vendor: "LiteLLM",
    body: {
      detail:
        'ContextWindowExceededError: Hosted_vllmException - {"object":"error","message":"The input (1492905 tokens) is longer than the model\'s context length (1048576 tokens).","type":"BadRequestError","param":null,"code":400}',
    },
    window: 1_048_576,
  },
];

for (const { vendor, body, status = 400, window } of TOO_LONG) {
  test(`too long, in the words of ${vendor}`, () => {
    const error = refused(body, status);
    assert.deepEqual([error.status, error.upstreamCode, error.param], [400, "context_length_exceeded", "messages"]);
    assert.equal(toldWindow(error.message).window, window, error.message);
  });
}

/** Bounds on something else, in words that are much alike. */
const OTHERS: readonly Omit<Row, "window">[] = [
  {
    vendor: "OpenAI: the reply's limit",
    body: {
      error: {
        message:
          "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
        type: "invalid_request_error",
        param: "max_tokens",
        code: "invalid_value",
      },
    },
  },
  {
    vendor: "Anthropic: the reply's limit",
    body: {
      type: "error",
      error: {
        type: "invalid_request_error",
        message:
          "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022",
      },
    },
  },
  {
    vendor: "Groq: the reply's limit",
    body: openAi(
      "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
    ),
  },
  {
    vendor: "DashScope: the reply's limit",
    body: openAi("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]"),
  },
  { vendor: "Kimi: the reply's limit", body: openAi("Invalid request: max_tokens exceeds the limit of 8192") },
  {
    vendor: "Groq: a rate",
    status: 413,
    body: openAi(
      "Request too large for model `llama-3.3-70b-versatile` in organization `org_x` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce your message size and try again.",
      "rate_limit_exceeded",
      "tokens",
    ),
  },
  { vendor: "Bedrock: a rate", status: 400, body: { message: "Too many tokens, please wait before trying again." } },
  {
    vendor: "OpenAI: a field of a schema",
    body: openAi(
      "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a string with length 2000 instead.",
      "string_above_max_length",
    ),
  },
  { vendor: "A model with a small window", body: openAi("Model context window too small (minimum is 16000 tokens)") },
];

for (const { vendor, body, status = 400 } of OTHERS) {
  test(`not too long, ${vendor}`, () => {
    assert.notEqual(refused(body, status).upstreamCode, "context_length_exceeded");
  });
}

test("what a vendor counted is read beside the window, and no other number is", () => {
  const words = "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)";
  assert.deepEqual(toldWindow(words), { window: 262_144, counted: 269_030 });
  assert.deepEqual(toldWindow("prompt is too long: 1 tokens > 200000 maximum"), { window: 200_000, counted: 0 });
});
