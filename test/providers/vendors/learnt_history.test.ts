import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { startOpenAiUpstream, type UpstreamReply } from "../../../fixtures/upstream/openai_upstream.ts";
import type { ProviderError } from "../../../lib/base/errors.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import { collect, setUp, textOf } from "../support/provider_setup.ts";

const ID = `call:${"x".repeat(60)}`;
const HISTORY: readonly Message[] = [
  { role: "user", content: "Go" },
  {
    role: "assistant",
    content: null,
    tool_calls: [{ id: ID, type: "function", function: { name: "look", arguments: "{}" } }],
    extra: { reasoning_content: "I look" },
  },
  { role: "tool", tool_call_id: ID, content: "" },
  { role: "assistant", content: "\n\n" },
  { role: "user", content: "And" },
  { role: "user", content: "so on" },
];

/** Message of the newer template engine of llama.cpp. */
const jinja = (words: string) =>
  `\n------------\nWhile executing CallExpression at line 189, column 32 in source:\n...== 0) %}\u21b5            ` +
  `{{- raise_exception('${words.slice(0, 40)}...\n${" ".repeat(70)}^\nError: Jinja Exception: ${words}`;

interface Refusal {
  readonly status: number;
  readonly body: unknown;
  /** Tells whether the next request has what the refusal asks for */
  readonly isHeeded: (
    sent: {
      readonly ids: readonly string[];
      readonly texts: readonly unknown[];
      readonly messages: readonly Message[];
    },
  ) => boolean;
}

/** Refusals of a history, as vendors have put them, by servers and under names of models that do not tell the vendor. */
const REFUSALS: Readonly<Record<string, Refusal>> = {
  "Mistral, and vLLM with its models": {
    status: 400,
    body: {
      object: "error",
      message: `Tool call id was ${ID} but must be a-z, A-Z, 0-9, with a length of 9.`,
      type: "invalid_request_message_order",
      code: "3230",
    },
    isHeeded: ({ ids }) => ids.every((id) => /^[a-zA-Z0-9]{9}$/.test(id)),
  },
  "OpenAI behind a proxy": {
    status: 400,
    body: {
      error: {
        message: "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, " +
          "but instead got a string with length 65 instead.",
        type: "invalid_request_error",
        param: "messages[1].tool_calls[0].id",
        code: "string_above_max_length",
      },
    },
    isHeeded: ({ ids }) => ids.every((id) => id.length <= 40),
  },
  "Claude behind a proxy": {
    status: 400,
    body: {
      type: "error",
      error: {
        type: "invalid_request_error",
        message: "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
      },
    },
    isHeeded: ({ ids }) => ids.every((id) => /^[a-zA-Z0-9_-]+$/.test(id)),
  },
  "Bedrock behind a proxy": {
    status: 400,
    body: {
      message:
        "1 validation error detected: Value at 'messages.2.member.content.1.member.toolUse.toolUseId' failed to " +
        "satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+",
    },
    isHeeded: ({ ids }) => ids.every((id) => /^[a-zA-Z0-9_-]{1,64}$/.test(id)),
  },
  "Claude behind a proxy, blanks": {
    status: 400,
    body: { error: { message: "messages: text content blocks must contain non-whitespace text" } },
    isHeeded: ({ texts }) => texts.every((text) => text !== "\n\n"),
  },
  "Claude behind a proxy, empty texts": {
    status: 400,
    body: {
      error: {
        message: "messages.2: all messages must have non-empty content except for the optional final assistant message",
      },
    },
    isHeeded: ({ texts }) =>
      texts.includes("(no output)") && texts.every((text) => text === null || /\S/.test(String(text))),
  },
  "Doubao": {
    status: 400,
    body: {
      error: {
        message: "The parameter `messages.content` specified in the request is not valid: content must not be empty.",
      },
    },
    isHeeded: ({ texts }) =>
      texts.includes("(no output)") && texts.every((text) => text === null || /\S/.test(String(text))),
  },
  "LM Studio": {
    status: 400,
    body: {
      error: { message: "'messages' array must only contain objects with a 'content' field that is not empty" },
    },
    isHeeded: ({ texts }) =>
      texts.includes("(no output)") && texts.every((text) => text === null || /\S/.test(String(text))),
  },
  "llama.cpp with a template of Mistral": {
    status: 500,
    body: {
      error: {
        code: 500,
        message: "Tool call IDs should be alphanumeric strings with length 9! at row 91, column 40:\n" +
          "                {%- if not tool_call.id is defined or tool_call.id is not string or tool_call.id|length != 9 %}\n" +
          '                    {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}\n',
        type: "server_error",
      },
    },
    isHeeded: ({ ids }) => ids.every((id) => /^[a-zA-Z0-9]{9}$/.test(id)),
  },
  "llama.cpp with a template of Devstral": {
    status: 500,
    body: {
      error: {
        code: 500,
        message: jinja(
          "After the optional system message, conversation roles must alternate user and assistant roles except for tool " +
            "calls and results.",
        ),
        type: "server_error",
      },
    },
    isHeeded: ({ messages }) => isDeepStrictEqual(messages.map(turnOf), ["user", "calls", "tool", "assistant", "user"]),
  },
  "vLLM with a template of Mistral": {
    status: 400,
    body: {
      object: "error",
      message: "Conversation roles must alternate user/assistant/user/assistant/...",
      type: "invalid_request_error",
      param: null,
      code: null,
    },
    isHeeded: ({ texts }) => texts.at(-1) === "And\n\nso on",
  },
  "Mistral, in its own words": {
    status: 400,
    body: {
      object: "error",
      message: "Unexpected role 'user' after role 'tool'",
      type: "invalid_request_message_order",
      param: null,
      code: "3230",
    },
    isHeeded: ({ texts }) => texts.at(-1) === "And\n\nso on",
  },
  "DeepSeek, without its reasoning": {
    status: 400,
    body: {
      error: {
        message: "The `reasoning_content` in the thinking mode must be passed back to the API.",
        type: "invalid_request_error",
        param: null,
        code: "invalid_request_error",
      },
    },
    isHeeded: ({ messages }) => isReasoned(messages),
  },
  "DeepSeek, an older model, without its reasoning": {
    status: 400,
    body: {
      error: {
        message:
          "Missing `reasoning_content` field in the assistant message at message index 2. For more information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls",
        type: "invalid_request_error",
        param: null,
        code: "invalid_request_error",
      },
    },
    isHeeded: ({ messages }) => isReasoned(messages),
  },
  "Kimi, without its reasoning": {
    status: 400,
    body: {
      error: {
        message: "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        type: "invalid_request_error",
        param: null,
        code: "invalid_request_error",
      },
    },
    isHeeded: ({ messages }) => isReasoned(messages),
  },
  "Gemini, with the calls of another model": {
    status: 400,
    body: [{
      error: {
        code: 400,
        message:
          "Function call is missing a thought_signature in functionCall parts. This is required for tools to work " +
          "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call " +
          "`default_api:look` , position 2. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures",
        status: "INVALID_ARGUMENT",
      },
    }],
    isHeeded: ({ messages }) => isSigned(messages),
  },
  "llama.cpp with a template of gpt-oss": {
    status: 500,
    body: {
      error: {
        code: 500,
        message: "Cannot pass both content and thinking in an assistant message with tool calls! Put the analysis " +
          "message in one or the other, but not both. at row 290, column 178:\n            {%- if message.content and " +
          'message.thinking %}\n                {{- raise_exception("Cannot pass both content and thinking in an',
        type: "server_error",
      },
    },
    isHeeded: ({ messages }) => !JSON.stringify(messages).includes("reasoning_content"),
  },
};

interface SentCall {
  readonly extra_content?: { readonly google?: { readonly thought_signature?: unknown } };
}

interface SentMessage {
  readonly role: string;
  readonly reasoning_content?: unknown;
  readonly tool_calls?: readonly SentCall[];
}

function isReasoned(messages: readonly Message[]): boolean {
  return (messages as readonly SentMessage[]).every(({ role, reasoning_content: reasoning }) =>
    role !== "assistant" || (typeof reasoning === "string" && reasoning !== "")
  );
}

function isSigned(messages: readonly Message[]): boolean {
  return (messages as readonly SentMessage[]).every(({ tool_calls: calls }) =>
    calls === undefined || typeof calls[0]?.extra_content?.google?.thought_signature === "string"
  );
}

function turnOf(message: Message): string {
  return message.role === "assistant" && message.tool_calls !== undefined ? "calls" : message.role;
}

for (const [vendor, { status, body, isHeeded }] of Object.entries(REFUSALS)) {
  test(`a refusal of the history teaches what the model takes: ${vendor}`, async (t) => {
    const refused: UpstreamReply = { kind: "status", status, body };
    const upstream = await startOpenAiUpstream(refused, { kind: "text", chunks: ["ok"] });
    t.after(() => upstream.close());
    const { providers } = await setUp(t, { base_url: upstream.baseUrl, model: "m" });
    const { provider } = providers.resolve("");
    const sent = () =>
      upstream.requests.filter(({ json }) => json !== undefined).map(({ json }) => {
        const { messages } = json as { readonly messages: readonly Message[] };
        return {
          ids: messages.flatMap((message) =>
            message.role === "tool"
              ? [message.tool_call_id]
              : message.role === "assistant"
              ? (message.tool_calls ?? []).map(({ id }) => id)
              : []
          ),
          texts: messages.map(({ content }) => content),
          messages,
        };
      });
    assert.equal(textOf(await collect(provider, { messages: HISTORY })), "ok");
    assert.deepEqual(sent().map(isHeeded), [false, true]);
    assert.equal(new Set(sent()[1]?.ids).size, 1);
    await collect(provider, { messages: HISTORY });
    await collect(provider, { messages: HISTORY, model: "another" });
    assert.deepEqual(sent().map(isHeeded), [false, true, true, false], "it is remembered for the model");
  });
}

test("a refusal of ids that says nothing of their form is the client's", async (t) => {
  const message = "Invalid parameter: messages with role 'tool' must be a response to a tool_call_id";
  const upstream = await startOpenAiUpstream({ kind: "status", status: 400, body: { error: { message } } });
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { base_url: upstream.baseUrl, model: "m" });
  await assert.rejects(
    collect(providers.resolve("").provider, { messages: HISTORY }),
    (error: ProviderError) => error.code === "provider_rejected",
  );
  assert.equal(upstream.requests.filter(({ json }) => json !== undefined).length, 1);
});

test("what llama.cpp refuses with 500, and no other form would help, is not asked for again", async (t) => {
  const error = { code: 500, message: "Unsupported param: tools", type: "server_error" };
  const upstream = await startOpenAiUpstream({ kind: "status", status: 500, body: { error } });
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { base_url: upstream.baseUrl, model: "m", max_retries: 2 });
  await assert.rejects(
    collect(providers.resolve("").provider, { messages: HISTORY }),
    (error: ProviderError) => error.code === "provider_error" && /Unsupported param: tools/.test(error.message),
  );
  assert.equal(upstream.requests.filter(({ json }) => json !== undefined).length, 1);
});
