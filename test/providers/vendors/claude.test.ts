import assert from "node:assert/strict";
import { describe, test, type TestContext } from "node:test";
import {
  type AnthropicReply,
  contentBlock,
  MESSAGE_START,
  messageEnd,
  startAnthropicUpstream,
} from "../../../fixtures/upstream/anthropic_upstream.ts";
import type { ContentPart, Message } from "../../../lib/base/records/message.ts";
import type { ProviderEvent } from "../../../lib/base/records/provider_event.ts";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import { collect, KEY, setUp, textOf } from "../support/provider_setup.ts";

type Sent = Readonly<Record<string, unknown>>;

/** A provider of Claude before an upstream that answers so, and what the upstream is sent. */
async function start(context: TestContext, ...replies: readonly AnthropicReply[]) {
  const upstream = await startAnthropicUpstream(...replies);
  context.after(() => upstream.close());
  const { providers } = await setUp(context, { kind: "anthropic", base_url: upstream.baseUrl, max_retries: 2 }, {
    env: { ANTHROPIC_API_KEY: KEY },
  });
  return { provider: providers.resolve("").provider, sent: () => upstream.requests.map(({ json }) => json as Sent) };
}

/** Names of the parameters that the reply says were left out. */
const ignored = (events: readonly ProviderEvent[]) =>
  events.flatMap((event) => event.type === "notice" && event.code === "parameter_ignored" ? [event.param] : []);

const OK: AnthropicReply = [
  MESSAGE_START,
  ...contentBlock(0, { type: "text", text: "" }, { type: "text_delta", text: "ok" }),
  ...messageEnd("end_turn"),
];
const refusal = (message: string): AnthropicReply => ({
  status: 400,
  body: { type: "error", error: { type: "invalid_request_error", message }, request_id: "req_1" },
});

const SAMPLING: ProviderRequest["parameters"] = { temperature: 0.5, top_p: 0.9 };

/** Models with what their version takes: sampling settings, and the form of thinking. */
const VERSIONS: readonly (readonly [model: string, taken: readonly string[], thinking: "enabled" | "adaptive"])[] = [
  ["claude-3-5-sonnet-20241022", ["temperature", "top_p"], "enabled"],
  ["claude-sonnet-4-20250514", ["temperature", "top_p"], "enabled"],
  ["claude-opus-4-1-20250805", ["temperature"], "enabled"],
  ["claude-sonnet-4-5", ["temperature"], "enabled"],
  ["claude-opus-4-6", ["temperature"], "enabled"],
  ["claude-opus-4-7", [], "adaptive"],
  ["anthropic.claude-opus-4-7-v1:0", [], "adaptive"],
  ["claude-opus-4-10@20270101", [], "adaptive"],
  ["claude-fable-5", [], "adaptive"],
  ["claude-of-tomorrow", ["temperature", "top_p"], "enabled"],
];

describe("Claude by its version", () => {
  for (const [model, taken, thinking] of VERSIONS) {
    test(`${model} gets what it takes, and what is left out is named`, async (t) => {
      const { provider, sent } = await start(t, OK);
      const events = await collect(provider, { model, parameters: SAMPLING });
      const left = ["temperature", "top_p"].filter((name) => !taken.includes(name));
      assert.deepEqual(ignored(events), left);
      const thought = await collect(provider, { model, parameters: { reasoning_effort: "medium", temperature: 0.5 } });
      assert.deepEqual(ignored(thought), ["temperature"], "no model takes it beside thinking");
      const [plain = {}, thinks = {}] = sent();
      assert.deepEqual(Object.keys(plain).filter((name) => ["temperature", "top_p"].includes(name)), taken);
      assert.deepEqual(
        [thinks["thinking"], thinks["output_config"], thinks["max_tokens"]],
        thinking === "enabled"
          ? [{ type: "enabled", budget_tokens: 8192 }, undefined, 16_384]
          : [{ type: "adaptive", display: "summarized" }, { effort: "medium" }, 16_384],
      );
    });
  }
});

describe("Claude by its refusals", () => {
  const cases: readonly (readonly [message: string, request: Partial<ProviderRequest>, left: readonly string[]])[] = [
    ["`temperature` and `top_p` cannot both be specified for this model. Please use only one.", {
      parameters: SAMPLING,
    }, ["top_p"]],
    ["`temperature` is deprecated for this model.", { parameters: SAMPLING }, ["temperature", "top_p"]],
    ["`top_p` is deprecated for this model.", { parameters: { top_p: 0.5 } }, ["top_p"]],
    [
      '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.',
      { parameters: { reasoning_effort: "high" } },
      [],
    ],
  ];
  for (const [message, request, left] of cases) {
    test(`${message.slice(0, 60)}: sent once more in the other form, and so from then on`, async (t) => {
      const { provider, sent } = await start(t, refusal(message), OK);
      const model = "claude-of-tomorrow";
      for (const _ of [1, 2]) {
        const events = await collect(provider, { model, ...request });
        assert.equal(textOf(events), "ok");
        assert.deepEqual(ignored(events), left);
      }
      const [first, ...later] = sent();
      assert.equal(later.length, 2);
      assert.deepEqual(later[0], later[1]);
      assert.notDeepEqual(first, later[0]);
    });
  }

  test("a version that wants thinking budgets though its number says adaptive", async (t) => {
    const { provider, sent } = await start(t, refusal("adaptive thinking is not supported on this model"), OK);
    await collect(provider, { model: "claude-small-6", parameters: { reasoning_effort: "low" } });
    assert.deepEqual(sent().map(({ thinking }) => (thinking as Sent)["type"]), ["adaptive", "enabled"]);
  });

  test("of a value teach nothing", async (t) => {
    const { provider, sent } = await start(t, refusal("temperature: range: 0..1"));
    await assert.rejects(collect(provider, { parameters: SAMPLING }), { code: "provider_rejected", status: 400 });
    assert.equal(sent().length, 1);
  });
});

describe("a final assistant message", () => {
  const messages: readonly Message[] = [
    { role: "user", content: "As JSON" },
    { role: "assistant", content: "{" },
  ];

  test("is refused early where the model takes no beginning of its reply, with the way out", async (t) => {
    const { provider, sent } = await start(t, OK);
    await assert.rejects(collect(provider, { model: "claude-opus-4-6", messages }), {
      code: "provider_rejected",
      status: 400,
      param: "messages",
      message: /does not begin its reply with a given text.*end the messages with one of the user/,
    });
    assert.deepEqual(sent(), []);
  });

  test("goes to a model that takes it", async (t) => {
    const { provider, sent } = await start(t, OK);
    await collect(provider, { model: "claude-sonnet-4-5", messages });
    assert.equal(sent().length, 1);
  });
});

describe("pictures and files", () => {
  const PNG = "iVBORw0KGgoAAAANSUhEUg==";
  const JPEG = "/9j/4AAQSkZJRg==";
  const WEBP = "UklGRiQAAABXRUJQVlA4IA==";
  const GIF = "R0lGODlhAQABAA==";
  const sources: readonly (readonly [url: string, type: string, data: string])[] = [
    [`data:image/jpg;base64,${JPEG}`, "image/jpeg", JPEG],
    [`data:image/png;charset=utf-8;base64,${PNG}`, "image/png", PNG],
    [`DATA:IMAGE/PNG;BASE64,${PNG}`, "image/png", PNG],
    [`data:image/png;base64,${JPEG}`, "image/jpeg", JPEG],
    [`data:image/jpeg;base64,${WEBP}`, "image/webp", WEBP],
    [`data:application/octet-stream;base64,${GIF}`, "image/gif", GIF],
    ["data:image/jpg;base64,AAAA", "image/jpeg", "AAAA"],
  ];
  for (const [url, media_type, data] of sources) {
    test(`${url.slice(0, 50)} is ${media_type}`, async (t) => {
      const { provider, sent } = await start(t, OK);
      const content: ContentPart[] = [{ type: "image_url", image_url: { url } }];
      await collect(provider, { messages: [{ role: "user", content }] });
      const [{ messages } = {}] = sent();
      assert.deepEqual(messages, [{
        role: "user",
        content: [{ type: "image", source: { type: "base64", media_type, data } }],
      }]);
    });
  }

  test("a PDF is one under any spelling of its label", async (t) => {
    const { provider, sent } = await start(t, OK);
    for (const label of ["data:application/pdf;base64", "DATA:application/PDF;name=a.pdf;base64", "data:;base64"]) {
      const content: ContentPart[] = [{ type: "file", file: { file_data: `${label},JVBERi0xLjc=` } }];
      await collect(provider, { messages: [{ role: "user", content }] });
    }
    for (const { messages } of sent()) {
      assert.deepEqual(messages, [{
        role: "user",
        content: [{
          type: "document",
          source: { type: "base64", media_type: "application/pdf", data: "JVBERi0xLjc=" },
        }],
      }]);
    }
  });
});
