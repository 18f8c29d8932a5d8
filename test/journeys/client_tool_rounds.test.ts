import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { toDelta, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { type OpenAiUpstream, type RunningGateway, type UpstreamReply, withWorld } from "../support/world.ts";

type ClientMessage = OpenAI.ChatCompletionMessageParam;
type WireMessage = Readonly<Record<string, unknown>>;

const TOOLS: OpenAI.ChatCompletionTool[] = ["weather", "add"].map((name) => ({
  type: "function",
  function: { name, description: name, parameters: { type: "object", properties: {} } },
}));

/** Characters that a careless copy would change: a NUL, an unpaired surrogate's neighbour, line ends, trailing space. */
const RESULT = 'line 1\r\n"25 °C" \u0000 \u2028 😀\n\n  ';
const ARGUMENTS = ['{ "city" :', ' "Gräz\\n" }'];

interface Call {
  readonly name: string;
  readonly arguments: readonly string[];
}

/** A streamed turn of the model with these calls, each part in a chunk of its own. */
function callsOf(calls: readonly Call[]): UpstreamReply {
  const chunks = calls.flatMap(({ name, arguments: parts }, index) => [
    toDelta({ tool_calls: [{ index, id: `up_${index}`, type: "function", function: { name, arguments: "" } }] }),
    ...parts.map((part) => toDelta({ tool_calls: [{ index, function: { arguments: part } }] })),
  ]);
  return { kind: "chunks", chunks: [...chunks, toDelta({}, "tool_calls"), USAGE_CHUNK] };
}

const WEATHER: Call = { name: "weather", arguments: ARGUMENTS };
const ADD: Call = { name: "add", arguments: ['{"a":1}'] };
const OWN: Call = { name: "read_file", arguments: ['{"path":"notes.txt"}'] };
const DONE: UpstreamReply = { kind: "text", chunks: ["It rains"] };

type Ask = (client: OpenAI, messages: ClientMessage[]) => Promise<OpenAI.ChatCompletionMessage>;

const asJson: Ask = async (client, messages) => {
  const reply = await client.chat.completions.create({ model: "upstream-model", messages, tools: TOOLS });
  return reply.choices[0]?.message as OpenAI.ChatCompletionMessage;
};

const asStream: Ask = async (client, messages) => {
  const stream = client.chat.completions.stream({ model: "upstream-model", messages, tools: TOOLS });
  return await stream.finalMessage();
};

const SHAPES: Readonly<Record<string, Ask>> = { "JSON": asJson, "stream": asStream };

async function withUpstream(
  use: (upstream: OpenAiUpstream, clientOf: (gateway: RunningGateway) => OpenAI, run: Run) => Promise<void>,
): Promise<void> {
  await withWorld(async (world) => {
    const upstream = await world.upstream();
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model", max_retries: 0 };
    const clientOf = (gateway: RunningGateway) =>
      new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token, maxRetries: 0 });
    const run: Run = (work, dataDir) =>
      world.during(
        world.gateway({
          config: { provider, gateway: { rate_limit_max: 0 } },
          files: { "notes.txt": "a note" },
          ...(dataDir === undefined ? {} : { dataDir }),
        }),
        work,
      );
    await use(upstream, clientOf, run);
  });
}
type Run = (work: (gateway: RunningGateway) => Promise<void>, dataDir?: string) => Promise<void>;

/** The client's answer to each of the calls. */
function answersTo(message: OpenAI.ChatCompletionMessage): ClientMessage[] {
  return (message.tool_calls ?? []).map((call, i) => ({
    role: "tool",
    tool_call_id: call.id,
    content: i === 0 ? RESULT : `${RESULT}${i}`,
  }));
}

/** Returns the messages that the model was sent last, without the gateway's own system prompt. */
function lastSent(upstream: OpenAiUpstream): readonly WireMessage[] {
  const { messages } = upstream.requests.at(-1)?.json as { messages: readonly WireMessage[] };
  return messages.filter(({ role }) => role !== "system");
}

/** The messages as they go over the wire, where `null` is the same as absent. */
function onWire(messages: readonly ClientMessage[]): readonly WireMessage[] {
  const isContent = (key: string) => key === "content";
  return messages.map((message) =>
    JSON.parse(JSON.stringify(message), function (key: string, value: unknown) {
      return value === null && !isContent(key) ? undefined : value;
    })
  );
}

for (const [shape, ask] of Object.entries(SHAPES)) {
  const ROUNDS: Readonly<Record<string, readonly Call[]>> = {
    "one call": [WEATHER],
    "parallel calls": [WEATHER, ADD, WEATHER],
  };
  for (const [what, calls] of Object.entries(ROUNDS)) {
    test(`the model receives what the client sent, byte for byte: ${what}, ${shape}`, async () => {
      await withUpstream(async (upstream, clientOf, run) => {
        await run(async (gateway) => {
          const client = clientOf(gateway);
          const messages: ClientMessage[] = [{ role: "user", content: "Weather?" }];
          // The second round comes on top of the first, as in every agent's loop
          upstream.script(callsOf(calls), callsOf(calls), DONE);
          const ids: string[] = [];
          for (let round = 0; round < 2; round++) {
            const said = await ask(client, messages);
            assert.equal(said.tool_calls?.length, calls.length);
            ids.push(...said.tool_calls.map(({ id }) => id));
            messages.push(said, ...answersTo(said));
          }
          assert.equal((await ask(client, messages)).content, "It rains");
          // The model gets its own ids back; when it gives them once more, they would not be unique
          const sent = ids.slice(0, calls.length).reduce(
            (text, id, index) => text.replaceAll(`"${id}"`, `"up_${index}"`),
            JSON.stringify(onWire(messages)),
          );
          assert.deepEqual(lastSent(upstream), JSON.parse(sent));
        });
      });
    });
  }

  test(`a mixed turn gives the client's results byte for byte, beside the agent's own: ${shape}`, async () => {
    for (const calls of [[WEATHER, OWN], [OWN, WEATHER], [WEATHER, OWN, ADD]]) {
      await withUpstream(async (upstream, clientOf, run) => {
        await run(async (gateway) => {
          const client = clientOf(gateway);
          const messages: ClientMessage[] = [{ role: "user", content: "Weather?" }];
          upstream.script(callsOf(calls), DONE);
          const said = await ask(client, messages);
          const own = calls.length - (said.tool_calls?.length ?? 0);
          assert.equal(own, 1);
          messages.push(said, ...answersTo(said));
          await ask(client, messages);
          const sent = lastSent(upstream);
          const whole = sent[1] as { tool_calls: { id: string; function: { name: string } }[] };
          assert.deepEqual(whole.tool_calls.map((call) => call.function.name), calls.map(({ name }) => name));
          // The model gets its own ids back
          assert.deepEqual(whole.tool_calls.map(({ id }) => id), calls.map((_, i) => `up_${i}`));
          const ofClient = calls.flatMap((call, i) => (call === OWN ? [] : [`up_${i}`]));
          const byClient = messages.slice(2).map((message, i) => ({ ...message, tool_call_id: ofClient[i] }));
          assert.deepEqual(sent.filter(({ role, content }) => role === "tool" && content !== "a note"), byClient);
          assert.equal(sent.filter(({ role }) => role === "tool").length, calls.length);
        });
      });
    }
  });
}

test("a plain round that takes longer than anything is kept, and outlives a restart, stays as the client sent it", async () => {
  await withUpstream(async (upstream, clientOf, run) => {
    const messages: ClientMessage[] = [{ role: "user", content: "Weather?" }];
    upstream.script(callsOf([WEATHER]), DONE);
    await run(async (gateway) => {
      const said = await asJson(clientOf(gateway), messages);
      messages.push(said, ...answersTo(said));
    });
    await run(async (gateway) => {
      await asJson(clientOf(gateway), messages);
      assert.deepEqual(lastSent(upstream), onWire(messages));
    });
  });
});
