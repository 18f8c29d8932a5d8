import assert from "node:assert/strict";
import { test } from "node:test";
import { toChunk, toDelta, toSse } from "../../fixtures/upstream/openai_upstream.ts";
import { freePort } from "../support/free_port.ts";
import {
  type OpenAiUpstream,
  readRefusal,
  readSse,
  type RunningGateway,
  type UpstreamReply,
  withWorld,
  type World,
} from "../support/world.ts";

const MODEL_FAILURE = { status: 502, code: "provider_error" };
const KEY = "sk-canary-of-the-provider-0123456789";

/** The end of a request as its client sees it, by any way in. */
interface Outcome {
  /** Status of the reply, or 200 for a stream and a socket that broke off later */
  readonly status: number;
  readonly code: string;
  readonly message: string;
  /** Deltas before the end */
  readonly text: string;
  readonly retryAfter?: string | null;
}

type Door = (gateway: RunningGateway) => Promise<Outcome>;

const HI = [{ role: "user", content: "Hi" }];

const byJson: Door = async (gateway) => {
  const refusal = await readRefusal(await gateway.call("/v1/chat/completions", { body: { messages: HI } }));
  return { ...refusal, text: "", retryAfter: refusal.headers.get("retry-after") };
};

const bySse: Door = async (gateway) => {
  const reply = await gateway.call("/v1/chat/completions", { body: { messages: HI, stream: true } });
  if (reply.status !== 200) {
    const refusal = await readRefusal(reply);
    return { ...refusal, text: "", retryAfter: refusal.headers.get("retry-after") };
  }
  const { data } = readSse(await reply.text());
  assert.equal(data.at(-1), "[DONE]");
  const events = data.slice(0, -1).map((event) => JSON.parse(event));
  const { error } = events.at(-1);
  assert.deepEqual(Object.keys(error).sort(), ["code", "message", "param", "type"]);
  const choices = events.slice(0, -1).flatMap((event) => event.choices);
  assert.ok(choices.every((choice) => choice.finish_reason === null), "no clean end before the error");
  return { status: 200, ...error, text: choices.map((choice) => choice.delta.content ?? "").join("") };
};

const byChat: Door = async (gateway) => {
  const refusal = await readRefusal(await gateway.call("/api/chat", { body: { message: "Hi" } }));
  return { ...refusal, text: "", retryAfter: refusal.headers.get("retry-after") };
};

const bySocket: Door = async (gateway) => {
  const client = await gateway.chat();
  client.send("Hi");
  const frames = await client.readReply();
  await client.leave();
  const last = frames.at(-1);
  assert.deepEqual(Object.keys(last ?? {}), ["type", "message", "code"]);
  assert.equal(last?.type, "error");
  const text = frames.slice(0, -1).map((frame) => frame["delta"]).join("");
  return { status: 200, code: String(last["code"]), message: String(last["message"]), text };
};

async function contentOf(reply: Response): Promise<unknown> {
  const { choices } = await reply.json() as { choices?: { message: { content: unknown } }[] };
  return choices?.[0]?.message.content;
}

const DOORS = { "JSON": byJson, "SSE": bySse, "/api/chat": byChat, "WebSocket": bySocket } as const;

interface Failure {
  readonly what: string;
  readonly replies: readonly UpstreamReply[];
  readonly status: number;
  readonly code: string;
  /** Text that reached a streaming client before the failure */
  readonly text?: string;
  readonly retryAfter?: string;
}

const asStatus = (status: number, error: Readonly<Record<string, unknown>> = { message: "No" }): UpstreamReply => ({
  kind: "status",
  status,
  body: { error },
});
const rawReply = (body: string): UpstreamReply => ({ kind: "raw", body });
const half = toSse(toDelta({ content: "half a " }));

const FAILURES: readonly Failure[] = [
  { what: "breaks off before any reply", replies: [{ kind: "reset" }], ...MODEL_FAILURE },
  { what: "speaks no HTTP", replies: [{ kind: "not_http" }], ...MODEL_FAILURE },
  {
    what: "dies in the middle",
    replies: [{ kind: "die", chunks: ["half ", "a "] }],
    ...MODEL_FAILURE,
    text: "half a ",
  },
  {
    what: "ends without an end",
    replies: [{ kind: "chunks", chunks: [toDelta({ content: "half a " })], done: false }],
    ...MODEL_FAILURE,
    text: "half a ",
  },
  {
    what: "ends within an event",
    replies: [rawReply(`${half}data: {"choices":[{"del`)],
    ...MODEL_FAILURE,
    text: "half a ",
  },
  { what: "sends an empty reply", replies: [rawReply("")], ...MODEL_FAILURE },
  { what: "sends only [DONE]", replies: [rawReply("data: [DONE]\n\n")], ...MODEL_FAILURE },
  {
    what: "sends garbage for an event",
    replies: [rawReply(`${half}data: <<<>>>\n\n`)],
    ...MODEL_FAILURE,
    text: "half a ",
  },
  {
    what: "sends a web page",
    replies: [{ kind: "raw", body: "<html>Sign in</html>", contentType: "text/html" }],
    ...MODEL_FAILURE,
  },
  {
    what: "sends bytes for a stream",
    replies: [{ kind: "raw", body: "\u0000\u0001\u0002", contentType: "application/octet-stream" }],
    ...MODEL_FAILURE,
  },
  { what: "sends JSON of another kind", replies: [{ kind: "json", body: { hello: "world" } }], ...MODEL_FAILURE },
  { what: "sends one line of 5 MB", replies: [{ kind: "giant_line", bytes: 5_000_000 }], ...MODEL_FAILURE },
  {
    what: "reports an error in a 200",
    replies: [{ kind: "json", body: { error: { message: "No GPU left", code: 503 } } }],
    ...MODEL_FAILURE,
  },
  {
    what: "reports an error in its stream",
    replies: [rawReply(`${half}${toSse({ error: { message: "No GPU left" } })}`)],
    ...MODEL_FAILURE,
    text: "half a ",
  },
  {
    what: "reports an error as its first event",
    replies: [rawReply(toSse({ error: { message: "No GPU left" } }))],
    ...MODEL_FAILURE,
  },
  { what: "has choices of a wrong shape", replies: [{ kind: "chunks", chunks: [toChunk(["?"])] }], ...MODEL_FAILURE },
  { what: "refuses our key", replies: [asStatus(401)], ...MODEL_FAILURE },
  { what: "forbids our key", replies: [asStatus(403)], ...MODEL_FAILURE },
  {
    what: "does not know the model",
    replies: [asStatus(404, { message: "The model does not exist", code: "model_not_found" })],
    status: 404,
    code: "model_not_found",
  },
  {
    what: "refuses the request",
    replies: [asStatus(400, { message: "Bad", code: "context_length_exceeded" })],
    status: 400,
    code: "context_length_exceeded",
  },
  { what: "finds it too large", replies: [asStatus(413)], status: 413, code: "payload_too_large" },
  { what: "cannot process it", replies: [asStatus(422)], status: 422, code: "invalid_request" },
  {
    what: "limits the rate",
    replies: [{ kind: "status", status: 429, headers: { "retry-after": "77" } }],
    status: 429,
    code: "rate_limited",
    retryAfter: "77",
  },
  { what: "fails", replies: [asStatus(500)], ...MODEL_FAILURE },
  { what: "is overloaded", replies: [asStatus(503)], ...MODEL_FAILURE },
  { what: "times out behind its own gateway", replies: [asStatus(504)], status: 504, code: "provider_timeout" },
  {
    what: "fails with a body that is no JSON",
    replies: [{ kind: "status", status: 500, body: "<h1>Oops</h1>" }],
    ...MODEL_FAILURE,
  },
];

/** These cost their time limit each, so that all doors of all of them wait at once. */
const SILENCES: readonly Failure[] = [
  { what: "says nothing at all", replies: [{ kind: "hang" }], status: 504, code: "provider_timeout" },
  {
    what: "falls silent in the middle",
    replies: [{ kind: "stall", chunks: ["half a "] }],
    status: 504,
    code: "provider_timeout",
    text: "half a ",
  },
];

/** Starts a gateway in front of an upstream that it asks once. @param timeoutSecs default: longer than a slow machine takes */
function startGateway(world: World, baseUrl: string, timeoutSecs = 30): Promise<RunningGateway> {
  const provider = {
    kind: "openai_compatible",
    base_url: baseUrl,
    model: "upstream-model",
    api_key_env: "CANARY_KEY",
    timeout_secs: timeoutSecs,
    max_retries: 0,
  };
  return world.gateway({
    config: { provider, gateway: { rate_limit_max: 0 } },
    environment: { CANARY_KEY: KEY },
  });
}

/** Runs `use` with a fake upstream and a gateway in front of it. */
function withUpstream(
  use: (gateway: RunningGateway, upstream: OpenAiUpstream, world: World) => Promise<void>,
  timeoutSecs?: number,
): Promise<void> {
  return withWorld(async (world) => {
    const upstream = await world.upstream();
    await use(await startGateway(world, upstream.baseUrl, timeoutSecs), upstream, world);
  });
}

async function stillWorks(gateway: RunningGateway, upstream: OpenAiUpstream): Promise<void> {
  upstream.script({ kind: "text", chunks: ["fine"] });
  const reply = await gateway.call("/v1/chat/completions", { body: { messages: HI } });
  assert.equal(await contentOf(reply), "fine");
}

/** Checks what a client was told of a failure. */
function check(ask: Door, failure: Failure, outcome: Outcome): void {
  const { what, status, code, text = "", retryAfter } = failure;
  const streaming = ask === bySse || ask === bySocket;
  assert.equal(outcome.code, code, `${what}: ${outcome.message}`);
  assert.equal(outcome.text, streaming ? text : "", what);
  const begun = ask === bySocket || (streaming && text !== "");
  assert.equal(outcome.status, begun ? 200 : status, `${what}: ${outcome.message}`);
  if (retryAfter !== undefined && ask !== bySocket) assert.equal(outcome.retryAfter, retryAfter, what);
  assert.match(outcome.message, /^[A-Z]/, what);
  assert.ok(!outcome.message.includes(KEY), what);
}

for (const [door, ask] of Object.entries(DOORS)) {
  test(`an upstream that fails is an honest error: ${door}`, async () => {
    await withUpstream(async (gateway, upstream) => {
      for (const failure of FAILURES) {
        upstream.script(...failure.replies);
        check(ask, failure, await ask(gateway));
      }
      await stillWorks(gateway, upstream);
      assert.match(gateway.services.metrics.render(), /postern_runs_active 0\n/);
      assert.deepEqual(gateway.log.filter(({ level }) => level === "error"), []);
    });
  });

  test(`an upstream that refuses the connection is 502: ${door}`, () =>
    withWorld(async (world) => {
      const gateway = await startGateway(world, `http://127.0.0.1:${await freePort()}/v1`);
      const outcome = await ask(gateway);
      assert.deepEqual([outcome.code, outcome.text], ["provider_error", ""]);
      assert.equal(outcome.status, ask === bySocket ? 200 : 502);
      assert.equal((await gateway.call("/health")).status, 200);
    }));
}

test("an upstream that falls silent is 504 after timeout_secs, by every door", async () => {
  await Promise.all(SILENCES.map((failure) =>
    withUpstream(async (gateway, upstream) => {
      upstream.script(...failure.replies);
      await Promise.all(Object.values(DOORS).map(async (ask) => check(ask, failure, await ask(gateway))));
      await stillWorks(gateway, upstream);
    }, 1)
  ));
});

test("a redirect of the upstream is refused, and the key goes nowhere else", async () => {
  await withUpstream(async (gateway, upstream, world) => {
    const elsewhere = await world.server((_seen, response) => response.end("{}"));
    for (const status of [301, 302, 303, 307, 308]) {
      upstream.script({ kind: "status", status, headers: { location: `${elsewhere.origin}/v1/chat/completions` } });
      for (const ask of Object.values(DOORS)) assert.equal((await ask(gateway)).code, "provider_error", String(status));
    }
    assert.equal(elsewhere.requests.length, 0);
    await stillWorks(gateway, upstream);
  });
});

test("a tool call with broken JSON goes back to the model as its error, and is not run", async () => {
  await withUpstream(async (gateway, upstream) => {
    const broken: UpstreamReply = { kind: "tool_call", name: "read_file", arguments: ['{"path": "a', "b"] };
    upstream.script(broken, { kind: "text", chunks: ["I see"] });
    const reply = await gateway.call("/v1/chat/completions", { body: { messages: HI } });
    assert.equal(await contentOf(reply), "I see");
    const sent = upstream.requests.at(-1)?.json as { messages: { role: string; content: string }[] };
    assert.equal(sent.messages.at(-1)?.role, "tool");
    assert.match(sent.messages.at(-1)?.content ?? "", /JSON/);
  });
});

test("a model that never stops sending broken tool calls is ended with an error by every door", async () => {
  await withUpstream(async (gateway, upstream) => {
    for (const ask of Object.values(DOORS)) {
      upstream.script({ kind: "tool_call", name: "read_file", arguments: ['{"path": "a'] });
      const outcome = await ask(gateway);
      assert.match(outcome.code, /loop/, outcome.message);
    }
    await stillWorks(gateway, upstream);
  });
});

test("a client that leaves takes its upstream request with it", async () => {
  await withUpstream(async (gateway, upstream) => {
    upstream.script({ kind: "stall", chunks: ["half"] });
    const client = new AbortController();
    const reply = await gateway.call("/v1/chat/completions", {
      body: { messages: HI, stream: true },
      signal: client.signal,
    });
    await reply.body?.getReader().read();
    client.abort();
    assert.deepEqual(await upstream.requests.at(-1)?.closed, { complete: false });
    await stillWorks(gateway, upstream);
  });
});
