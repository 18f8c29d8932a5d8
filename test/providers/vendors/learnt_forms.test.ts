import assert from "node:assert/strict";
import { describe, test, type TestContext } from "node:test";
import fc from "fast-check";
import { startOpenAiUpstream, type UpstreamReply } from "../../../fixtures/upstream/openai_upstream.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import { sendInForm } from "../../../lib/providers/vendors/send_in_form.ts";
import { type VendorForm, VendorForms } from "../../../lib/providers/vendors/vendor_forms.ts";
import type { HttpExchange } from "../../../lib/system/net/http_exchange.ts";
import { triesOf } from "../../support/seeded_random.ts";
import { collect, noticesOf, REQUEST, setUp, textOf } from "../support/provider_setup.ts";

type Sent = Readonly<Record<string, unknown>>;

/** A provider of this kind before an upstream that answers so, and what the upstream is sent. */
async function start(context: TestContext, kind: string, ...replies: readonly UpstreamReply[]) {
  const upstream = await startOpenAiUpstream(...replies);
  context.after(() => upstream.close());
  const { providers } = await setUp(context, { kind, base_url: upstream.baseUrl, model: "m", max_retries: 2 });
  return {
    provider: providers.resolve("").provider,
    sent: () => upstream.requests.map(({ json }) => json as Sent),
    limits: () =>
      upstream.requests.map(({ json }) =>
        Object.fromEntries(Object.entries(json as Sent).filter(([name]) => /^max_/.test(name)))
      ),
    script: upstream.script,
  };
}

const OK: UpstreamReply = { kind: "text", chunks: ["ok"] };
const refusal = (status: number, body: unknown): UpstreamReply => ({ kind: "status", status, body });

/** Refusals of a limit by its name, as vendors have put them. */
const LIMIT_REFUSALS: readonly (readonly [vendor: string, kind: string, reply: UpstreamReply])[] = [
  [
    "OpenAI, a reasoning model",
    "openai_compatible",
    refusal(400, {
      error: {
        message:
          "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        type: "invalid_request_error",
        param: "max_tokens",
        code: "unsupported_parameter",
      },
    }),
  ],
  [
    "Mistral",
    "openai",
    refusal(422, {
      detail: [{
        type: "extra_forbidden",
        loc: ["body", "max_completion_tokens"],
        msg: "Extra inputs are not permitted",
      }],
    }),
  ],
  [
    "Azure, an older model",
    "openai",
    refusal(400, {
      error: {
        message: "Unrecognized request argument supplied: max_completion_tokens",
        type: "invalid_request_error",
        param: null,
        code: null,
      },
    }),
  ],
];

describe("a limit that is refused by its name", () => {
  for (const [vendor, kind, reply] of LIMIT_REFUSALS) {
    test(`is sent under the other name at once, and from then on: ${vendor}`, async (t) => {
      const { provider, limits } = await start(t, kind, reply, OK);
      const first = kind === "openai" ? "max_completion_tokens" : "max_tokens";
      const other = kind === "openai" ? "max_tokens" : "max_completion_tokens";
      for (const _ of [1, 2]) {
        const events = await collect(provider, { parameters: { max_tokens: 5 } });
        assert.equal(textOf(events), "ok");
        assert.deepEqual(noticesOf(events), [], "it is no retry");
      }
      assert.deepEqual(limits(), [{ [first]: 5 }, { [other]: 5 }, { [other]: 5 }]);
    });
  }

  test("is learnt for that model alone, and once more when the server changes", async (t) => {
    const [openai, , older] = LIMIT_REFUSALS.map(([, , reply]) => reply);
    const { provider, limits, script } = await start(t, "openai_compatible", openai as UpstreamReply, OK);
    await collect(provider, { parameters: { max_tokens: 5 } });
    await collect(provider, { model: "other", parameters: { max_tokens: 6 } });
    script(older as UpstreamReply, OK);
    await collect(provider, { parameters: { max_tokens: 7 } });
    assert.deepEqual(limits(), [
      { max_tokens: 5 },
      { max_completion_tokens: 5 },
      { max_tokens: 6 },
      { max_completion_tokens: 7 },
      { max_tokens: 7 },
    ]);
  });

  test("is refused when neither name is taken, after two requests, and nothing is learnt", async (t) => {
    const reply = refusal(400, { error: { message: "max_tokens and max_completion_tokens are not supported" } });
    const { provider, limits, script } = await start(t, "openai_compatible", reply);
    await assert.rejects(collect(provider, { parameters: { max_tokens: 5 } }), { code: "provider_rejected" });
    script(OK);
    await collect(provider, { parameters: { max_tokens: 5 } });
    assert.deepEqual(limits(), [{ max_tokens: 5 }, { max_completion_tokens: 5 }, { max_tokens: 5 }]);
  });

  test("is not what a refusal of its value says, nor one of a limit that was not sent", async (t) => {
    const value =
      "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.";
    const { provider, limits } = await start(
      t,
      "openai_compatible",
      refusal(400, {
        error: { message: value, param: "max_tokens", code: "invalid_value" },
      }),
    );
    await assert.rejects(collect(provider, { parameters: { max_tokens: 100_000 } }), { code: "provider_rejected" });
    const unsent = await start(
      t,
      "openai_compatible",
      refusal(400, {
        error: { message: "max_tokens is not supported" },
      }),
    );
    await assert.rejects(collect(unsent.provider), { code: "provider_rejected" });
    assert.equal(limits().length + unsent.limits().length, 2);
  });
});

test("both names of a limit go out as the one that the server knows, with the client's word for the new one", async (t) => {
  for (const [kind, name] of [["openai_compatible", "max_tokens"], ["openai", "max_completion_tokens"]] as const) {
    const { provider, limits } = await start(t, kind, OK);
    await collect(provider, { parameters: { max_completion_tokens: 5 } });
    await collect(provider, { parameters: { max_tokens: 9, max_completion_tokens: 5 } });
    assert.deepEqual(limits(), [{ [name]: 5 }, { [name]: 5 }]);
  }
});

test("one model's refusal of reasoning_content is not held against the others of the provider", async (t) => {
  const messages: Message[] = [
    { role: "user", content: "Hello" },
    { role: "assistant", content: "Hi", extra: { reasoning_content: "They greet me" } },
    { role: "user", content: "Again" },
  ];
  const { provider, sent } = await start(
    t,
    "openai_compatible",
    refusal(400, { error: { message: "property 'reasoning_content' is unsupported" } }),
    OK,
  );
  for (const model of ["m", "m", "other"]) await collect(provider, { model, messages });
  assert.deepEqual(
    sent().map((body) => [body["model"], JSON.stringify(body).includes("reasoning_content")]),
    [["m", true], ["m", false], ["m", false], ["other", true]],
  );
});

test("refusals of several forms are learnt one after the other, in one request", async (t) => {
  const { provider, sent } = await start(
    t,
    "openai_compatible",
    refusal(400, { error: { message: "Unrecognized request argument: stream_options" } }),
    LIMIT_REFUSALS[0]?.[2] as UpstreamReply,
    OK,
  );
  for (const _ of [1, 2]) await collect(provider, { parameters: { max_tokens: 5 } });
  assert.deepEqual(sent().map((body) => ["stream_options" in body, "max_tokens" in body]), [
    [true, true],
    [false, true],
    [false, false],
    [false, false],
  ]);
});

describe("a server that refuses instructions as they were sent", () => {
  const refusals: readonly string[] = [
    "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant `developer`, expected one of " +
    "`system`, `user`, `assistant`, `tool`",
    "Input tag 'developer' found using 'role' does not match any of the expected tags: 'system', 'user', 'assistant', 'tool'",
    "System message must be at the beginning.",
  ];
  for (const message of refusals) {
    test(`gets one system message from then on: ${message.slice(0, 60)}`, async (t) => {
      const messages: Message[] = [
        { role: "system", content: "One" },
        { role: "developer", content: "Two" },
        { role: "user", content: "Hi" },
      ];
      const { provider, sent } = await start(t, "openai", refusal(400, { error: { message } }), OK);
      for (const _ of [1, 2]) assert.equal(textOf(await collect(provider, { messages })), "ok");
      const [first, ...later] = sent().map((body) => body["messages"]);
      assert.deepEqual(first, messages);
      const joined = [{ role: "system", content: "One\n\nTwo" }, { role: "user", content: "Hi" }];
      assert.deepEqual(later, [joined, joined]);
    });
  }
});

test("whatever a server refuses, a request goes out once for each form at most, and only a reply teaches", async () => {
  const refused = (message: string) => new ProviderError("provider_rejected", message, { provider: "p", status: 400 });
  const words = fc.constantFrom(
    ...["max_tokens is not supported", "max_completion_tokens: extra fields not permitted", "max_tokens: at most 5"],
    ...["Unrecognized argument: stream_options", "reasoning_content is unsupported", "unknown variant `developer`"],
    ...["`temperature` and `top_p` cannot both be specified", "`temperature` is deprecated for this model"],
    ...["thinking.type.enabled is not supported", "adaptive thinking is not supported", "No", ""],
  );
  const kinds = fc.constantFrom("openai", "openai_compatible", "anthropic");
  await fc.assert(
    fc.asyncProperty(kinds, fc.array(words, { maxLength: 12 }), async (kind, refusals) => {
      const forms = new VendorForms({ kind, origin: "http://127.0.0.1" });
      const before = forms.of("m");
      const build = (_: ProviderRequest, form: VendorForm) =>
        JSON.stringify({
          form,
          [form.limit]: 5,
          ...{ role: "user", reasoning_content: "", temperature: 1, top_p: 1, thinking: {}, stream_options: {} },
        });
      const sent: string[] = [];
      const post = (body: string, onRefusal: (error: ProviderError) => Promise<HttpExchange>) => {
        const refusal = refusals[sent.push(body) - 1];
        // The reply is handed on as it is
        return refusal === undefined ? Promise.resolve({} as HttpExchange) : onRefusal(refused(refusal));
      };
      const request = { ...REQUEST, model: "m" };
      const isTaken = await sendInForm({ forms, provider: "p", request, build, post }).then(() => true, () => false);
      assert.equal(new Set(sent).size, sent.length, "no form goes out twice");
      assert.equal(build(request, forms.of("m")), isTaken ? sent.at(-1) : build(request, before));
      assert.equal(isTaken, sent.length === refusals.length + 1);
    }),
    { numRuns: triesOf(300) },
  );
});

/** Refusals of an effort, and whether another request without it may be taken. */
const EFFORT_REFUSALS: readonly (readonly [message: string, isLearnt: boolean])[] = [
  ["Unrecognized request argument supplied: reasoning_effort", true],
  ["Unsupported parameter: 'reasoning_effort' is not supported with this model.", true],
  ['"llama3.2" does not support thinking', true],
  [
    "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'low'.",
    false,
  ],
];

for (const [message, isLearnt] of EFFORT_REFUSALS) {
  test(`an effort is ${isLearnt ? "left out, and said" : "the client's to change"}: ${message}`, async (context) => {
    const { provider, sent } = await start(context, "openai_compatible", refusal(400, { error: { message } }), OK, OK);
    const asked = { parameters: { reasoning_effort: "low" } };
    if (!isLearnt) return void await assert.rejects(collect(provider, asked), ProviderError);
    for (let i = 0; i < 2; i++) {
      const events = await collect(provider, asked);
      assert.deepEqual(events.flatMap((event) => event.type === "notice" ? [event.param] : []), ["reasoning_effort"]);
    }
    assert.deepEqual(sent().map((body) => "reasoning_effort" in body), [true, false, false]);
  });
}
