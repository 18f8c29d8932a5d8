import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import {
  contentBlock,
  MESSAGE_START,
  messageEnd,
  startAnthropicUpstream,
} from "../../fixtures/upstream/anthropic_upstream.ts";
import { toChunk, toDelta, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { type OpenAiUpstream, readSse, type RunningGateway, type UpstreamReply, withWorld } from "../support/world.ts";

type Json = Readonly<Record<string, unknown>>;

const ASKED = [{ role: "user", content: "Go" }];
const DONE: UpstreamReply = { kind: "text", chunks: ["fine"] };

interface Vendor {
  /** Deltas of a turn that ends with a call, whose first part has the fields of `call` */
  readonly deltas: readonly Json[];
  readonly call: Json;
  /** Fields that the vendor must get back in the message, and in its call */
  readonly message: Json;
  readonly calls: Json;
}

/** How vendors say what must come back to them. */
const VENDORS: Readonly<Record<string, Vendor>> = {
  "reasoning_content": {
    deltas: [{ reasoning_content: "I " }, { reasoning_content: "think" }, { reasoning_content: " so" }],
    call: {},
    message: { reasoning_content: "I think so" },
    calls: {},
  },
  "reasoning_details with a signature": {
    deltas: [
      { reasoning: "I ", reasoning_details: [{ type: "reasoning.text", text: "I ", index: 0, format: "v1" }] },
      { reasoning: "think", reasoning_details: [{ type: "reasoning.text", text: "think", index: 0, format: "v1" }] },
      { reasoning_details: [{ type: "reasoning.text", signature: "c2ln", index: 0, format: "v1" }] },
      { reasoning_details: [{ type: "reasoning.encrypted", data: "ZW5j", index: 1, format: "v1" }] },
    ],
    call: {},
    message: {
      reasoning: "I think",
      reasoning_details: [
        { type: "reasoning.text", text: "I think", signature: "c2ln", index: 0, format: "v1" },
        { type: "reasoning.encrypted", data: "ZW5j", index: 1, format: "v1" },
      ],
    },
    calls: {},
  },
  "extra_content of a call": {
    deltas: [],
    call: { extra_content: { google: { thought_signature: "c2ln" } } },
    message: {},
    calls: { extra_content: { google: { thought_signature: "c2ln" } } },
  },
  "a field nobody knows": {
    deltas: [{ thought_signature: "c2" }, { thought_signature: "ln" }],
    call: { function: { seal: "s" } },
    message: { thought_signature: "c2ln" },
    calls: { function: { seal: "s" } },
  },
};

/** A turn of the vendor that calls a tool, in parts. */
function streamed({ deltas, call }: Vendor, name: string): UpstreamReply {
  const { function: inner, ...own } = call;
  const called = { name, arguments: "", ...(inner as Json | undefined) };
  return {
    kind: "chunks",
    chunks: [
      ...deltas.map((delta) => toDelta(delta)),
      toDelta({ tool_calls: [{ index: 0, id: "up", type: "function", function: called, ...own }] }),
      toDelta({ tool_calls: [{ index: 0, function: { arguments: '{"path":"notes.txt"}' } }] }),
      toDelta({}, "tool_calls"),
      USAGE_CHUNK,
    ],
  };
}

/** The same in one piece. */
function whole({ message, calls }: Vendor, name: string): UpstreamReply {
  const { function: inner, ...own } = calls;
  const called = { name, arguments: '{"path":"notes.txt"}', ...(inner as Json | undefined) };
  const said = {
    role: "assistant",
    content: null,
    ...message,
    tool_calls: [{ id: "up", type: "function", function: called, ...own }],
  };
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  return { kind: "json", body: { choices: [{ index: 0, message: said, finish_reason: "tool_calls" }], usage } };
}

async function withUpstream(
  use: (upstream: OpenAiUpstream, run: Run) => Promise<void>,
  provider: Json = {},
): Promise<void> {
  await withWorld(async (world) => {
    const upstream = await world.upstream();
    const settings = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model", max_retries: 0 };
    const run: Run = (work) =>
      world.during(
        world.gateway({
          config: { provider: { ...settings, ...provider }, gateway: { rate_limit_max: 0 } },
          files: { "notes.txt": "a note" },
        }),
        work,
      );
    await use(upstream, run);
  });
}
type Run = (work: (gateway: RunningGateway) => Promise<void>) => Promise<void>;

/** The assistant's message in what the model was sent last. */
function assistantIn(upstream: OpenAiUpstream): Json & { readonly tool_calls: readonly Json[] } {
  const { messages } = upstream.requests.at(-1)?.json as { messages: readonly Json[] };
  return messages.find(({ role }) => role === "assistant") as Json & { readonly tool_calls: readonly Json[] };
}

function checkReturned(upstream: OpenAiUpstream, { message, calls }: Vendor): void {
  const sent = assistantIn(upstream);
  const { role: _, content: _content, tool_calls, ...rest } = sent;
  const { id: _id, type: _type, function: inner, ...own } = tool_calls[0] as Json;
  const { name: _name, arguments: given, ...ofFunction } = inner as Json;
  assert.equal(given, '{"path":"notes.txt"}');
  assert.deepEqual(rest, message);
  assert.deepEqual(Object.keys(ofFunction).length === 0 ? own : { ...own, function: ofFunction }, calls);
}

const TOOLS: OpenAI.ChatCompletionTool[] = [{ type: "function", function: { name: "weather", parameters: {} } }];
const PLAIN = { "x-postern-tools": "none" };
const MODES: Readonly<Record<string, Record<string, string>>> = { "the agent's tools on": {}, "plain": PLAIN };

for (const [what, vendor] of Object.entries(VENDORS)) {
  for (const stream of [true, false]) {
    const form = stream ? "stream" : "JSON";
    const turn = (name: string) => (stream ? streamed : whole)(vendor, name);

    test(`a vendor gets its own parts back in the agent's loop: ${what}, ${form}`, async () => {
      await withUpstream(async (upstream, run) => {
        upstream.script(turn("read_file"), DONE);
        await run(async (gateway) => {
          const reply = await gateway.call("/v1/chat/completions", { body: { messages: ASKED, stream } });
          await reply.text();
          checkReturned(upstream, vendor);
        });
      });
    });

    for (const [mode, headers] of Object.entries(MODES)) {
      test(`a vendor gets its own parts back through a client's round: ${what}, ${form}, ${mode}`, async () => {
        await withUpstream(async (upstream, run) => {
          await run(async (gateway) => {
            const client = clientOf(gateway, headers);
            const said = await messageOf(client, { stream, upstream, script: [turn("weather"), DONE] });
            const [call] = said.tool_calls ?? [];
            const result = { role: "tool", tool_call_id: call?.id, content: "rain" };
            // The first client sends the whole message back, the second one only the fields that it knows
            const known = { role: "assistant", content: said.content, tool_calls: [onlyKnown(call)] };
            for (const echoed of [said, known]) {
              const messages = [...ASKED, echoed, result] as OpenAI.ChatCompletionMessageParam[];
              await client.chat.completions.create({ model: "upstream-model", messages, tools: TOOLS });
              const sent = assistantIn(upstream);
              // The gateway's own name for the reasoning may stand beside the vendor's
              assert.ok(sent["reasoning"] === undefined || sent["reasoning_content"] === undefined);
              checkReturned(upstream, vendor);
            }
          });
        });
      });
    }
  }
}

const clientOf = (gateway: RunningGateway, headers: Record<string, string>) =>
  new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token, maxRetries: 0, defaultHeaders: headers });

interface Asking {
  readonly stream: boolean;
  readonly upstream: OpenAiUpstream;
  readonly script: readonly UpstreamReply[];
}

/** The message of a client's first round, put together by the official client. */
async function messageOf(client: OpenAI, { stream, upstream, script }: Asking): Promise<OpenAI.ChatCompletionMessage> {
  upstream.script(...script);
  const body = { model: "upstream-model", messages: ASKED as OpenAI.ChatCompletionMessageParam[], tools: TOOLS };
  if (stream) return await client.chat.completions.stream(body).finalMessage();
  const { choices } = await client.chat.completions.create(body);
  return choices[0]?.message as OpenAI.ChatCompletionMessage;
}

function onlyKnown(call: OpenAI.ChatCompletionMessageToolCall | undefined) {
  assert.ok(call?.type === "function");
  const { name, arguments: given } = call.function;
  return { id: call.id, type: "function", function: { name, arguments: given } };
}

test("after a restart a vendor gets the parts of a call that the client sends back, in either mode", async () => {
  const vendor = VENDORS["extra_content of a call"] as Vendor;
  for (const headers of Object.values(MODES)) {
    await withUpstream(async (upstream, run) => {
      let messages: OpenAI.ChatCompletionMessageParam[] = [];
      await run(async (gateway) => {
        const script = [streamed(vendor, "weather"), DONE];
        const said = await messageOf(clientOf(gateway, headers), { stream: false, upstream, script });
        const result = { role: "tool", tool_call_id: said.tool_calls?.[0]?.id, content: "rain" };
        messages = [...ASKED, said, result] as OpenAI.ChatCompletionMessageParam[];
      });
      await run(async (gateway) => {
        const client = clientOf(gateway, headers);
        await client.chat.completions.create({ model: "upstream-model", messages, tools: TOOLS });
        checkReturned(upstream, vendor);
      });
    });
  }
});

test("a server that refuses reasoning_content in messages is asked again without, and then never with it", async () => {
  const vendor = VENDORS["reasoning_content"] as Vendor;
  await withUpstream(async (upstream, run) => {
    await run(async (gateway) => {
      for (const calls of [3, 2]) {
        const before = upstream.requests.length;
        upstream.script(streamed(vendor, "read_file"), ...(calls === 3 ? [REFUSED] : []), DONE);
        const reply = await gateway.call("/v1/chat/completions", { body: { messages: ASKED } });
        assert.equal(reply.status, 200);
        assert.equal(upstream.requests.length - before, calls);
        assert.equal(assistantIn(upstream)["reasoning_content"], undefined);
      }
    });
  });
});
const REFUSED: UpstreamReply = {
  kind: "status",
  status: 400,
  body: { error: { message: "'messages.1' : property 'reasoning_content' is unsupported" } },
};

const PASSED = {
  logit_bias: { "50256": -100 },
  logprobs: true,
  top_logprobs: 2,
  service_tier: "flex",
  top_k: 40,
  chat_template_kwargs: { enable_thinking: false },
  store: false,
};
const PASSED_MESSAGES = [
  { role: "system", content: [{ type: "text", text: "Be brief", cache_control: { type: "ephemeral" } }], weight: 1 },
  {
    role: "user",
    content: [{ type: "image_url", image_url: { url: "https://a.test/b.png", max_pixels: 9 }, min_pixels: 1 }],
    speaker: { mood: "calm" },
  },
  {
    role: "assistant",
    content: null,
    prefix: true,
    tool_calls: [{ id: "c", type: "function", function: { name: "weather", arguments: "{}", seal: "s" }, cost: 1 }],
  },
  { role: "tool", tool_call_id: "c", content: "rain", ephemeral: true },
];
const PASSED_TOOLS = [{ type: "function", function: { name: "weather", description: "", examples: [1] }, beta: true }];

test("Claude gets its thinking back where it stood among its texts and calls, in a run and in its conversation", () =>
  withWorld(async (world) => {
    const upstream = await startAnthropicUpstream();
    world.onEnd(() => upstream.close());
    const provider = { kind: "anthropic", base_url: upstream.baseUrl, model: "m", api_key_env: "K", max_retries: 0 };
    const gateway = await world.gateway({
      config: { provider },
      environment: { K: "sk-very-secret-key-0123456789" },
      files: { "1.txt": "one", "2.txt": "two" },
    });
    const thinking = (signature: string) => ({ type: "thinking", thinking: "hm", signature });
    const call = (n: number) => ({
      type: "tool_use",
      id: `toolu_${n}`,
      name: "read_file",
      input: { path: `${n}.txt` },
    });
    const said = [
      { type: "text", text: "First. " },
      thinking("a"),
      { type: "text", text: "Then " },
      { type: "text", text: "more." },
      thinking("b"),
      call(1),
      thinking("c"),
      call(2),
    ];
    const fine = [...contentBlock(0, { type: "text", text: "fine" }), ...messageEnd("end_turn")];
    const blocks = said.flatMap((block, i) => contentBlock(i, block));
    upstream.script([MESSAGE_START, ...blocks, ...messageEnd("tool_use")], [MESSAGE_START, ...fine], [
      MESSAGE_START,
      ...fine,
    ]);
    for (const message of ["Go", "And"]) {
      const reply = await gateway.call("/api/chat", { body: { message, conversation_id: "talk" } });
      assert.equal(reply.status, 200, await reply.text());
      const { messages } = upstream.requests.at(-1)?.json as { readonly messages: readonly Json[] };
      const sent = messages.find(({ role }) => role === "assistant")?.["content"];
      assert.deepEqual(sent, [said[0], said[1], { type: "text", text: "Then more." }, ...said.slice(4)]);
    }
    assert.equal(upstream.requests.length, 3);
  }));

test("in plain mode a request's unknown fields reach the model where they stood", async () => {
  await withUpstream(async (upstream, run) => {
    await run(async (gateway) => {
      for (const stream of [true, false]) {
        const body = {
          model: "upstream-model",
          messages: PASSED_MESSAGES,
          tools: PASSED_TOOLS,
          ...PASSED,
          stream,
          n: 1,
          ...(stream ? { stream_options: { include_usage: true, continuous_usage_stats: true } } : {}),
        };
        const reply = await gateway.call("/v1/chat/completions", { headers: PLAIN, body });
        await reply.text();
        assert.equal(reply.headers.get("x-postern-ignored"), null);
        const { n: _, ...expected } = body;
        assert.deepEqual(upstream.requests.at(-1)?.json, expected);
      }
    });
  });
});

const LOGPROBS = (...tokens: string[]) => ({
  content: tokens.map((token) => ({ token, logprob: -0.1 })),
  refusal: null,
});
const DETAILS = {
  prompt_tokens: 12,
  completion_tokens: 3,
  total_tokens: 15,
  prompt_tokens_details: { cached_tokens: 8, audio_tokens: 0 },
  completion_tokens_details: { reasoning_tokens: 2, accepted_prediction_tokens: 1 },
  cost: 0.5,
};
const ANNOTATIONS = [{ type: "url_citation", url_citation: { url: "https://a.test", start_index: 0, end_index: 1 } }];

const WHOLE_REPLY = {
  id: "chatcmpl-up",
  object: "chat.completion",
  created: 1700000000,
  model: "upstream-model",
  system_fingerprint: "fp_1",
  service_tier: "flex",
  citations: ["https://a.test"],
  choices: [{
    index: 0,
    message: { role: "assistant", content: "Hello", refusal: null, annotations: ANNOTATIONS, audio: { id: "a" } },
    logprobs: LOGPROBS("Hel", "lo"),
    finish_reason: "stop",
    native_finish_reason: "STOP",
  }],
  usage: DETAILS,
};

test("in plain mode a reply in one piece comes back whole", async () => {
  await withUpstream(async (upstream, run) => {
    upstream.script({ kind: "json", body: WHOLE_REPLY });
    await run(async (gateway) => {
      const reply = await gateway.call("/v1/chat/completions", { headers: PLAIN, body: { messages: ASKED } });
      const { id: _, created: _created, model: _model, ...body } = await reply.json() as Json;
      const { id: _id, created: _c, model: _m, ...expected } = WHOLE_REPLY;
      assert.deepEqual(body, expected);
    });
  });
});

const FINGERPRINT = { system_fingerprint: "fp_1", service_tier: "flex" };
const part = (delta: Json, choice: Json = {}, finish_reason: string | null = null) =>
  toChunk([{ index: 0, delta, finish_reason, ...choice }], FINGERPRINT);

const STREAM: UpstreamReply = {
  kind: "chunks",
  chunks: [
    part({ role: "assistant", content: "" }),
    part({ content: "Hel" }, { logprobs: LOGPROBS("Hel") }),
    part({ content: "lo" }, { logprobs: LOGPROBS("lo") }),
    part({ annotations: ANNOTATIONS }),
    part({}, { native_finish_reason: "STOP" }, "stop"),
    toChunk([], { usage: DETAILS, ...FINGERPRINT, citations: ["https://a.test"] }),
  ],
};

test("in plain mode the parts of a stream come back whole, each where it stood", async () => {
  await withUpstream(async (upstream, run) => {
    upstream.script(STREAM);
    await run(async (gateway) => {
      const body = { messages: ASKED, stream: true, stream_options: { include_usage: true } };
      const reply = await gateway.call("/v1/chat/completions", { headers: PLAIN, body });
      const chunks = readSse(await reply.text()).data.slice(0, -1).map((data) => JSON.parse(data));
      const choices = chunks.flatMap((chunk) => chunk.choices);
      const texts = choices.filter(({ delta }) => delta.content);
      assert.deepEqual(texts.map(({ delta, logprobs }) => [delta, logprobs]), [
        [{ content: "Hel" }, LOGPROBS("Hel")],
        [{ content: "lo" }, LOGPROBS("lo")],
      ]);
      assert.deepEqual(choices.flatMap(({ delta }) => delta.annotations ?? []), ANNOTATIONS);
      assert.deepEqual(choices.at(-1), { index: 0, delta: {}, finish_reason: "stop", native_finish_reason: "STOP" });
      const { usage, system_fingerprint, service_tier, citations } = chunks.at(-1);
      assert.deepEqual(
        { usage, system_fingerprint, service_tier, citations },
        { usage: DETAILS, ...FINGERPRINT, citations: ["https://a.test"] },
      );
      const begun = chunks.slice(1);
      assert.ok(begun.every((chunk) => chunk.system_fingerprint === "fp_1"), "in each chunk, as the vendor says it");
    });
  });
});

test("in plain mode a durable JSON reply puts the parts of the stream together", async () => {
  await withUpstream(async (upstream, run) => {
    upstream.script(STREAM);
    await run(async (gateway) => {
      const ask = () =>
        gateway.call("/v1/chat/completions", {
          headers: { ...PLAIN, "idempotency-key": "one" },
          body: { messages: ASKED },
        });
      const first = await (await ask()).json();
      const { choices, usage, system_fingerprint } = first as typeof WHOLE_REPLY;
      assert.deepEqual(choices[0]?.logprobs.content, LOGPROBS("Hel", "lo").content);
      assert.deepEqual(choices[0]?.message.annotations, ANNOTATIONS);
      assert.equal(choices[0]?.native_finish_reason, "STOP");
      assert.deepEqual([usage, system_fingerprint], [DETAILS, "fp_1"]);
      assert.deepEqual(await (await ask()).json(), first, "the repeat says the same");
    });
  });
});

test("the official client adds up the logprobs of a plain stream", async () => {
  await withUpstream(async (upstream, run) => {
    upstream.script(STREAM);
    await run(async (gateway) => {
      const stream = clientOf(gateway, PLAIN).chat.completions.stream({
        model: "upstream-model",
        messages: [{ role: "user", content: "Go" }],
        logprobs: true,
      });
      const { choices, system_fingerprint } = await stream.finalChatCompletion();
      assert.deepEqual(choices[0]?.logprobs?.content?.map(({ token }) => token), ["Hel", "lo"]);
      assert.equal(choices[0]?.message.content, "Hello");
      assert.equal(system_fingerprint, "fp_1");
    });
  });
});

test("usage details are added up over the turns of the agent", async () => {
  const called = streamed({ deltas: [], call: {}, message: {}, calls: {} }, "read_file");
  assert.ok(called.kind === "chunks");
  const turn = { ...called, chunks: [...called.chunks.slice(0, -1), toChunk([], { usage: DETAILS })] };
  await withUpstream(async (upstream, run) => {
    await run(async (gateway) => {
      for (const stream of [true, false]) {
        upstream.script(turn, turn, STREAM);
        const body = { messages: ASKED, stream, ...(stream ? { stream_options: { include_usage: true } } : {}) };
        const text = await (await gateway.call("/v1/chat/completions", { body })).text();
        const last = stream ? readSse(text).data.at(-2) ?? "" : text;
        assert.deepEqual(JSON.parse(last).usage, {
          prompt_tokens: 36,
          completion_tokens: 9,
          total_tokens: 45,
          prompt_tokens_details: { cached_tokens: 24, audio_tokens: 0 },
          completion_tokens_details: { reasoning_tokens: 6, accepted_prediction_tokens: 3 },
          cost: 1.5,
        });
      }
    });
  });
});

interface Choices {
  readonly body: Json;
  /** Status and field at fault with the agent's tools on, and in plain mode */
  readonly agent: readonly [number, string?];
  readonly plain: readonly [number, string?];
  /** Value of x-postern-ignored with the agent's tools on */
  readonly ignored?: string;
}

const CHOICES: readonly Choices[] = [
  { body: { n: 2 }, agent: [400, "n"], plain: [400, "n"] },
  { body: { n: 1 }, agent: [200], plain: [200] },
  { body: { n: null }, agent: [200], plain: [200] },
  { body: { logprobs: true }, agent: [400, "logprobs"], plain: [200] },
  { body: { logprobs: false }, agent: [200], plain: [200] },
  { body: { logprobs: null }, agent: [200], plain: [200] },
  { body: { logprobs: "yes" }, agent: [400, "logprobs"], plain: [400, "logprobs"] },
  { body: { logprobs: false, top_logprobs: 0 }, agent: [200], plain: [200], ignored: "top_logprobs" },
  { body: { logit_bias: {}, store: true }, agent: [200], plain: [200], ignored: "logit_bias, store" },
];

test("n and logprobs are refused only where they cannot be honoured, and the rest is named", async () => {
  await withUpstream(async (_upstream, run) => {
    await run(async (gateway) => {
      for (const { body, agent, plain, ignored } of CHOICES) {
        for (const stream of [true, false]) {
          for (const [headers, [status, param]] of [[{}, agent], [PLAIN, plain]] as const) {
            const sent = { messages: ASKED, stream, ...body };
            const reply = await gateway.call("/v1/chat/completions", { headers: { ...headers }, body: sent });
            const what = `${JSON.stringify(sent)} ${JSON.stringify(headers)}`;
            assert.equal(reply.status, status, what);
            const text = await reply.text();
            if (param !== undefined) assert.equal(JSON.parse(text).error.param, param, what);
            const named = headers === PLAIN ? undefined : ignored;
            assert.equal(reply.headers.get("x-postern-ignored"), named ?? null, what);
          }
        }
      }
    });
  });
});

const FOREIGN = [
  "logit_bias",
  "messages[].content[].cache_control",
  "messages[].speaker",
  "tools[].beta",
];

test("a provider of another format names the unknown fields of a plain request", () =>
  withWorld(async (world) => {
    const anthropic = await world.server((_seen, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({
        type: "message",
        role: "assistant",
        model: "claude",
        content: [{ type: "text", text: "fine" }],
        stop_reason: "end_turn",
        usage: { input_tokens: 1, output_tokens: 1 },
      }));
    });
    const providers = [
      { kind: "anthropic", base_url: anthropic.origin, model: "claude", api_key_env: "KEY" },
      { kind: "offline" },
    ];
    for (const provider of providers) {
      const config = { provider, gateway: { rate_limit_max: 0 } };
      await world.during(world.gateway({ config, environment: { KEY: "a key" } }), async (gateway) => {
        for (const stream of [true, false]) {
          const body = {
            messages: [{ role: "user", content: [{ type: "text", text: "Hi", cache_control: {} }], speaker: "x" }],
            tools: [{ type: "function", function: { name: "weather" }, beta: true }],
            logit_bias: {},
            stream,
          };
          const reply = await gateway.call("/v1/chat/completions", { headers: PLAIN, body });
          await reply.text();
          assert.equal(reply.status, 200);
          assert.deepEqual(reply.headers.get("x-postern-ignored")?.split(", ").sort(), FOREIGN);
        }
      });
    }
    for (const { text } of anthropic.requests) {
      for (const name of ["cache_control", "speaker", "beta"]) {
        assert.ok(!text.includes(name));
      }
    }
  }));
