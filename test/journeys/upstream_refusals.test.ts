import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { toDelta, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import {
  type OpenAiUpstream,
  readRefusal,
  type RunningGateway,
  type RunningGatewayOptions,
  until,
  type UpstreamReply,
  withWorld,
} from "../support/world.ts";

const ASKED = [{ role: "user" as const, content: "Hi" }];

const refusal = (status: number, headers: Record<string, string> = {}, code?: string): UpstreamReply => ({
  kind: "status",
  status,
  headers,
  body: { error: { message: "No", ...(code === undefined ? {} : { code }) } },
});

async function withUpstream(
  use: (gateway: RunningGateway, upstream: OpenAiUpstream) => Promise<void>,
  { maxRetries, ...options }: { readonly maxRetries: number } & RunningGatewayOptions,
): Promise<void> {
  await withWorld(async (world) => {
    const upstream = await world.upstream();
    const provider = {
      kind: "openai_compatible",
      base_url: upstream.baseUrl,
      model: "upstream-model",
      max_retries: maxRetries,
    };
    const gateway = await world.gateway({
      files: { "notes.txt": "a note" },
      ...options,
      config: { provider, gateway: { rate_limit_max: 0 } },
    });
    await use(gateway, upstream);
  });
}

interface Repeated {
  readonly what: string;
  readonly reply: UpstreamReply;
  /** Tells whether the gateway asks the provider again by itself */
  readonly isRetried: boolean;
}

const REPEATED: readonly Repeated[] = [
  { what: "a rate limit", reply: refusal(429, { "retry-after": "0" }), isRetried: true },
  { what: "a failure", reply: refusal(503, { "retry-after": "0" }), isRetried: true },
  { what: "a rate limit that is long", reply: refusal(429, { "retry-after": "77" }), isRetried: false },
  { what: "a used-up quota", reply: refusal(429, {}, "insufficient_quota"), isRetried: false },
  { what: "a refused key", reply: refusal(401), isRetried: false },
];

for (const maxRetries of [0, 2]) {
  test(`the official client makes no more upstream calls than max_retries = ${maxRetries} says`, async () => {
    await withUpstream(async (gateway, upstream) => {
      // With its own retries, as people have it
      const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token });
      for (const { what, reply, isRetried } of REPEATED) {
        for (const stream of [false, true]) {
          const before = upstream.requests.length;
          upstream.script(reply);
          const asked = client.chat.completions.create({ model: "upstream-model", messages: ASKED, stream });
          await assert.rejects(asked, OpenAI.APIError, what);
          assert.equal(upstream.requests.length - before, isRetried ? 1 + maxRetries : 1, `${what}, ${stream}`);
        }
      }
    }, { maxRetries });
  });
}

test("a stream's status waits for the gateway's own retries, whose Retry-After is longer than a keep-alive", async () => {
  const clock = createFakeClock();
  await withUpstream(async (gateway, upstream) => {
    upstream.script(refusal(429, { "retry-after": "25" }));
    const before = upstream.requests.length;
    const asked = gateway.call("/v1/chat/completions", { body: { messages: ASKED, stream: true } });
    for (const calls of [1, 2]) {
      await until(() => upstream.requests.length - before === calls);
      await until(() => gateway.log.filter(({ fields }) => fields?.["code"] === "provider_retry").length === calls);
      await clock.advance(25_000);
    }
    const refused = await readRefusal(await asked);
    assert.deepEqual([refused.status, refused.code], [429, "rate_limited"]);
    assert.equal(refused.headers.get("retry-after"), "25");
    assert.equal(refused.headers.get("x-should-retry"), "false");
    assert.equal(upstream.requests.length - before, 3);
  }, { maxRetries: 2, clock });
});

const OWN_CALL: UpstreamReply = {
  kind: "chunks",
  chunks: [
    toDelta({
      tool_calls: [{
        index: 0,
        id: "up",
        type: "function",
        function: { name: "read_file", arguments: '{"path":"notes.txt"}' },
      }],
    }),
    toDelta({}, "tool_calls"),
    USAGE_CHUNK,
  ],
};

const LATER = [
  { reply: refusal(429, { "retry-after": "77" }), status: 429, code: "rate_limited", retryAfter: "77" },
  { reply: refusal(400, {}, "context_length_exceeded"), status: 400, code: "context_length_exceeded" },
  { reply: refusal(413), status: 413, code: "payload_too_large" },
  { reply: refusal(422), status: 422, code: "invalid_request" },
  { reply: refusal(404, {}, "model_not_found"), status: 404, code: "model_not_found" },
  { reply: refusal(504), status: 504, code: "provider_timeout" },
  { reply: refusal(500), status: 502, code: "provider_error" },
];

test("a refusal after work of the agent's own tools keeps its status while nothing was said", async () => {
  await withUpstream(async (gateway, upstream) => {
    for (const { reply, status, code, retryAfter } of LATER) {
      for (const stream of [false, true]) {
        upstream.script(OWN_CALL, reply);
        const body = { messages: ASKED, stream };
        const refused = await readRefusal(await gateway.call("/v1/chat/completions", { body }));
        assert.deepEqual([refused.status, refused.code], [status, code], `${status} ${code} ${stream}`);
        assert.equal(refused.headers.get("retry-after"), retryAfter ?? null);
      }
    }
  }, { maxRetries: 0 });
});

test("a durable run that was refused answers a repeat of its request with the same status, or runs again", async () => {
  await withUpstream(async (gateway, upstream) => {
    const ask = () =>
      gateway.call("/v1/chat/completions", { headers: { "idempotency-key": "one" }, body: { messages: ASKED } });
    upstream.script(refusal(429, { "retry-after": "77" }));
    const refused = await readRefusal(await ask());
    assert.deepEqual([refused.status, refused.headers.get("retry-after")], [429, "77"]);
    upstream.script({ kind: "text", chunks: ["fine"] });
    const reply = await ask();
    assert.equal(reply.status, 200, "a failure without an effect is not kept");
  }, { maxRetries: 0 });
});
