import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import {
  type OpenAiUpstream,
  readRefusal,
  type RunningGateway,
  type UpstreamReply,
  withWorld,
} from "../support/world.ts";

const WINDOW = 2000;
const LONG = "history ".repeat(500);
/** Five thousand tokens by any count */
const HISTORY = [
  { role: "system", content: "Be brief" },
  ...[1, 2, 3, 4, 5].flatMap((turn) => [
    { role: "user", content: `${turn} ${LONG}` },
    { role: "assistant", content: `${turn}` },
  ]),
  { role: "user", content: "And now?" },
] as OpenAI.ChatCompletionMessageParam[];

interface Sent {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
}

interface UpstreamOptions {
  /** `[agent] context_window_tokens` */
  readonly window?: number;
}

async function withUpstream(
  use: (gateway: RunningGateway, upstream: OpenAiUpstream) => Promise<void>,
  { window = 0 }: UpstreamOptions = {},
): Promise<void> {
  await withWorld(async (world) => {
    const upstream = await world.upstream();
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model", max_retries: 0 };
    const config = { provider, agent: { context_window_tokens: window }, gateway: { rate_limit_max: 0 } };
    const gateway = await world.gateway({ config, files: { "notes.txt": "x".repeat(60_000) } });
    await use(gateway, upstream);
  });
}

const completionsOf = ({ requests }: OpenAiUpstream) => requests.filter(({ method }) => method === "POST").length;

const MODES = [{}, { "x-postern-tools": "none" }] as const;

test("a client's own history that outgrows the configured window is refused, not cut", async () => {
  await withUpstream(async (gateway, upstream) => {
    for (const headers of MODES) {
      const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token, defaultHeaders: headers });
      for (const stream of [false, true]) {
        const asked = client.chat.completions.create({ model: "upstream-model", messages: HISTORY, stream });
        await assert.rejects(asked, (error) => {
          assert.ok(error instanceof OpenAI.BadRequestError);
          const { status, code, type, param, message } = error;
          assert.deepEqual([status, code, type, param], [
            400,
            "context_length_exceeded",
            "invalid_request_error",
            "messages",
          ]);
          assert.match(
            message,
            /maximum context length is 2000 tokens\. However, your messages resulted in about \d+ tokens/,
          );
          return true;
        });
      }
    }
    assert.equal(upstream.requests.length, 0);
    // A client's messages, or those of a run, are the same history
    const started = await gateway.call("/v1/runs", { body: { messages: HISTORY } });
    const { id } = await started.json() as { id: string };
    const events = await (await gateway.call(`/v1/runs/${id}/events`)).text();
    assert.match(events, /context_length_exceeded/);
    assert.equal(upstream.requests.length, 0);
  }, { window: WINDOW });
});

test("what fits the window reaches the model as the client sent it, without a word about trimming", async () => {
  await withUpstream(async (gateway, upstream) => {
    // With what the reply needs it would not fit: that is for the model to say
    const messages = [{ role: "user", content: "x".repeat(WINDOW * 4 - 3000) }];
    for (const headers of MODES) {
      const reply = await gateway.call("/v1/chat/completions", { headers, body: { messages } });
      assert.equal(reply.status, 200);
      assert.equal(reply.headers.get("x-postern-trimmed"), null);
      const sent = (upstream.requests.at(-1)?.json as Sent).messages.filter(({ role }) => role !== "system");
      assert.deepEqual(sent, messages);
    }
  }, { window: WINDOW });
});

test("a window that the provider's list names refuses a client's history too, where the agent's tools are on", () =>
  withWorld(async (world) => {
    let asked = 0;
    const server = await world.server((seen, response) => {
      response.setHeader("content-type", "application/json");
      if (seen.path.endsWith("/models")) {
        return void response.end(JSON.stringify({ data: [{ id: "small", context_length: WINDOW }] }));
      }
      asked++;
      const choices = [{ index: 0, message: { role: "assistant", content: "fine" }, finish_reason: "stop" }];
      response.end(JSON.stringify({ choices }));
    });
    const provider = { kind: "openai_compatible", base_url: `${server.origin}/v1`, model: "small", max_retries: 0 };
    const gateway = await world.gateway({ config: { provider } });
    const refused = await readRefusal(await gateway.call("/v1/chat/completions", { body: { messages: HISTORY } }));
    assert.deepEqual([refused.status, refused.code, asked], [400, "context_length_exceeded", 0]);
  }));

const refusal = (status: number, error: unknown): UpstreamReply => ({ kind: "status", status, body: { error } });

/** How servers say that a history is too long. */
const REFUSALS: readonly UpstreamReply[] = [
  refusal(400, { message: "This model's maximum context length is 2000 tokens", code: "context_length_exceeded" }),
  refusal(400, { message: "This model's maximum context length is 2000 tokens", type: "BadRequestError", code: 400 }),
  refusal(400, { message: "prompt is too long: 5000 tokens > 2000 maximum", type: "invalid_request_error" }),
  refusal(400, {
    message: "the request exceeds the available context size, try increasing it",
    type: "exceed_context_size_error",
    code: 400,
  }),
  refusal(422, { message: "Prompt contains 5000 tokens, too large for model with 2000 maximum context length" }),
  refusal(500, { message: "The model is loaded with a context length of only 2000 tokens" }),
  { kind: "json", body: { error: "The model is loaded with context length of only 2000 tokens" } },
];

test("an upstream that finds a history too long is 400 context_length_exceeded, whatever words it has", async () => {
  for (const reply of REFUSALS) {
    await withUpstream(async (gateway, upstream) => {
      upstream.script(reply);
      for (const headers of MODES) {
        for (const stream of [false, true]) {
          const before = completionsOf(upstream);
          const body = { messages: HISTORY, stream };
          const refused = await readRefusal(await gateway.call("/v1/chat/completions", { headers, body }));
          assert.deepEqual([refused.status, refused.code], [400, "context_length_exceeded"], JSON.stringify(reply));
          assert.equal(completionsOf(upstream) - before, 1, "and nothing is cut behind the client's back");
        }
      }
    });
  }
});

test("the agent's own tool results make room for a client's history, which stays whole", async () => {
  await withUpstream(async (gateway, upstream) => {
    upstream.script(
      { kind: "tool_call", name: "read_file", arguments: ['{"path":"notes.txt"}'] },
      { kind: "text", chunks: ["fine"] },
    );
    const messages = [
      { role: "user", content: "First" },
      { role: "assistant", content: "x".repeat(2000) },
      { role: "user", content: "Read it" },
    ];
    const reply = await gateway.call("/v1/chat/completions", { body: { messages } });
    assert.equal(reply.status, 200);
    const sent = (upstream.requests.at(-1)?.json as Sent).messages.filter(({ role }) => role !== "system");
    assert.deepEqual(sent.slice(0, 3), messages);
    assert.ok((sent.at(-1)?.content.length ?? 0) < 10_000);
  }, { window: 4000 });
});

test("where the gateway keeps the history and leaves something out, it says so at every door", async () => {
  await withUpstream(async (gateway, upstream) => {
    upstream.script({ kind: "text", chunks: ["fine"] });
    const talk = async (message: string) => {
      const body = { message, conversation_id: "talk" };
      const reply = await gateway.call("/api/chat", { body });
      assert.equal(reply.status, 200, await reply.clone().text());
      return reply.headers.get("x-postern-trimmed");
    };
    assert.equal(await talk("x".repeat(1200)), null);
    let trimmed: string | null = null;
    for (let turn = 0; turn < 12 && trimmed === null; turn++) trimmed = await talk("x".repeat(3000));
    assert.match(trimmed ?? "", /^[1-9]\d*$/);

    const body = { message: "x".repeat(3000), conversation_id: "talk" };
    const { id } = await (await gateway.call("/v1/runs", { body })).json() as { id: string };
    const events = await (await gateway.call(`/v1/runs/${id}/events`)).text();
    const notices = events.split("\n").filter((line) => line.startsWith("data: ")).map((line) =>
      JSON.parse(line.slice(6))
    )
      .filter(({ type, count }) => type === "notice" && count > 0);
    assert.ok(notices.length > 0, events);

    const chat = await gateway.chat();
    chat.send({ type: "hello", events: true });
    chat.send({ type: "message", text: body.message, conversation_id: "talk" });
    const frames = await chat.readReply();
    await chat.leave();
    assert.ok(frames.some((frame) => frame["type"] === "notice" && Number(frame["count"]) > 0));
  }, { window: 3000 });
});

interface Talk {
  /** Refuses a request that is too long for the model */
  readonly refusal: { readonly status: number; readonly body: unknown };
  /** Tokens that the model takes, at a token for three bytes, where Postern counts four */
  readonly takes: number;
  /** `[agent] context_window_tokens`. Default: not set */
  readonly window?: number;
}

/** A talk of many turns at `/api/chat` with a model that refuses what is too long for it. Returns statuses, whether a cut was said, and refusals. */
async function talkAtLength({ refusal, takes, window = 0 }: Talk, turns: number) {
  const replies: { readonly status: number; readonly isCut: boolean; readonly refused: number }[] = [];
  await withWorld(async (world) => {
    let refused = 0;
    const server = await world.server(({ path, text }, response) => {
      response.setHeader("content-type", "application/json");
      if (!path.endsWith("/completions")) return void response.end('{"data":[]}');
      if (text.length / 3 > takes) {
        refused++;
        return void response.writeHead(refusal.status).end(JSON.stringify(refusal.body));
      }
      const choices = [{ index: 0, message: { role: "assistant", content: "fine" }, finish_reason: "stop" }];
      response.end(JSON.stringify({ choices, usage: { prompt_tokens: 1, completion_tokens: 1 } }));
    });
    const provider = { kind: "openai_compatible", base_url: `${server.origin}/v1`, model: "m", max_retries: 0 };
    const gateway = await world.gateway({
      config: { provider, agent: { context_window_tokens: window }, gateway: { rate_limit_max: 0 } },
    });
    for (let turn = 0; turn < turns; turn++) {
      const before = refused;
      const body = { message: `${turn} ${"history ".repeat(1_000)}`, conversation_id: "talk" };
      const reply = await gateway.call("/api/chat", { headers: { "x-postern-tools": "none" }, body });
      replies.push({
        status: reply.status,
        isCut: reply.headers.get("x-postern-trimmed") !== null,
        refused: refused - before,
      });
      await reply.text();
    }
  });
  return replies;
}

const TOO_LONG_FOR: readonly (readonly [vendor: string, body: unknown, takes: number, status?: number])[] = [
  [
    "Kimi",
    { error: { message: "Invalid request: Your request exceeded model token limit: 20000 (requested: 20001)" } },
    20_000,
  ],
  ["DashScope", {
    error: { message: "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 20000]" },
  }, 20_000],
  ["Bedrock", { message: "Input is too long for requested model." }, 20_000],
  ["z.ai", { error: { code: "1261", message: "Prompt exceeds max length" } }, 20_000],
  ["a vendor without words", {}, 30_000],
  ["a proxy without words", {}, 30_000, 413],
  ["a vendor with other words", { error: { message: "Das Gespräch passt nicht mehr hinein" } }, 30_000],
];

for (const [vendor, body, takes, status = 400] of TOO_LONG_FOR) {
  for (const window of [0, 60_000]) {
    test(`a conversation that outgrew the model goes on, whatever it says: ${vendor}, configured ${window}`, async () => {
      const replies = await talkAtLength({ refusal: { status, body }, takes, window }, 24);
      assert.deepEqual(replies.map((reply) => reply.status), replies.map(() => 200), JSON.stringify(replies));
      assert.ok(replies.some(({ isCut }) => isCut), "and what was left out is said");
      const refusals = replies.map(({ refused }) => refused);
      assert.ok(
        refusals.every((count) => count <= 1) && refusals.filter((count) => count > 0).length <= 2,
        String(refusals),
      );
    });
  }
}

test("a refusal for another reason is asked once, long history or not", async () => {
  for (
    const message of [
      "Unsupported value: 'temperature'",
      "Your credit balance is too low",
      "messages[3].content: not allowed",
    ]
  ) {
    const replies = await talkAtLength({ refusal: { status: 400, body: { error: { message } } }, takes: 30_000 }, 14);
    assert.deepEqual(
      replies.map(({ status, refused }) => status === 200 ? 0 : refused),
      replies.map(({ status }) => status === 200 ? 0 : 1),
      message,
    );
    assert.equal(replies.at(-1)?.status, 400);
  }
});
