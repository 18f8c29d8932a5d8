import assert from "node:assert/strict";
import { test } from "node:test";
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
  },
  { role: "tool", tool_call_id: ID, content: "seen" },
  { role: "assistant", content: "\n\n" },
  { role: "user", content: "And" },
];

interface Refusal {
  readonly status: number;
  readonly body: unknown;
  /** Tells whether the next request has what the refusal asks for */
  readonly isHeeded: (sent: { readonly ids: readonly string[]; readonly texts: readonly unknown[] }) => boolean;
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
};

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
