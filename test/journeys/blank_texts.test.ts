import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type AnthropicUpstream,
  contentBlock,
  MESSAGE_START,
  messageEnd,
  startAnthropicUpstream,
} from "../../fixtures/upstream/anthropic_upstream.ts";
import { isRecord } from "../../lib/base/json.ts";
import { type OpenAiUpstream, type RunningGateway, withWorld } from "../support/world.ts";

type Json = Readonly<Record<string, unknown>>;

/** Reasons for which Claude refuses the messages of a request. */
function faultsOf({ system, messages, stop_sequences: stop = [] }: Json): string[] {
  const faults: string[] = [];
  const blank = (text: unknown) => typeof text === "string" && text.trim() === "";
  const blocks = (content: unknown): readonly unknown[] =>
    typeof content === "string" ? [{ type: "text", text: content }] : Array.isArray(content) ? content : [];
  if (system !== undefined && blocks(system).some((block) => isRecord(block) && blank(block["text"]))) {
    faults.push("system");
  }
  const turns = messages as readonly Json[];
  for (const [i, { role, content }] of turns.entries()) {
    const inside = blocks(content).flatMap((block) => {
      if (!isRecord(block) || block["type"] !== "tool_result") return [block];
      return block["content"] === "" ? [] : blocks(block["content"]);
    });
    if (inside.some((block) => isRecord(block) && block["type"] === "text" && blank(block["text"]))) {
      faults.push(`${i}`);
    }
    const last = blocks(content).at(-1);
    if (!isRecord(last) || last["type"] === "thinking") faults.push(`${i}: ends with thinking`);
    if (i === turns.length - 1 && role === "assistant" && /\s$/.test(String(isRecord(last) && last["text"]))) {
      faults.push(`${i}: trailing whitespace`);
    }
  }
  if ((stop as readonly string[]).some(blank)) faults.push("stop_sequences");
  return faults;
}

async function withClaude(
  use: (gateway: RunningGateway, upstream: AnthropicUpstream) => Promise<void>,
  model = "claude-sonnet-4-5",
): Promise<void> {
  await withWorld(async (world) => {
    const upstream = await startAnthropicUpstream();
    world.onEnd(() => upstream.close());
    const provider = { kind: "anthropic", base_url: upstream.baseUrl, model, api_key_env: "K", max_retries: 0 };
    const gateway = await world.gateway({
      config: { provider, gateway: { rate_limit_max: 0 } },
      environment: { K: "sk-very-secret-key-0123456789" },
    });
    await use(gateway, upstream);
  });
}

const said = (text: string) => [
  MESSAGE_START,
  ...contentBlock(0, { type: "thinking", thinking: "hm", signature: "s" }),
  ...contentBlock(1, { type: "text", text }),
  ...messageEnd("end_turn"),
];

test("a reply of blanks leaves a conversation with Claude usable", () =>
  withClaude(async (gateway, upstream) => {
    const chat = async (message: string) => {
      const reply = await gateway.call("/api/chat", { body: { message, conversation_id: "talk" } });
      assert.equal(reply.status, 200, await reply.text());
    };
    upstream.script(said("\n\n"), said("fine"));
    await chat("Go");
    await chat("And");
    await chat("Again");
    for (const { json } of upstream.requests) assert.deepEqual(faultsOf(json as Json), []);
    const { messages } = upstream.requests.at(-1)?.json as { readonly messages: readonly Json[] };
    assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "user"]);
  }));

const CALL = { id: "call_1", type: "function", function: { name: "look", arguments: "{}" } };
const REQUESTS: Readonly<Record<string, readonly [messages: readonly Json[], roles: string]>> = {
  "instructions": [[{ role: "system", content: " " }, { role: "developer", content: "\n" }, {
    role: "user",
    content: "Go",
  }], "user"],
  "messages": [
    [
      { role: "user", content: "Go" },
      { role: "assistant", content: "\n\n" },
      { role: "user", content: "\t" },
      { role: "user", content: [{ type: "text", text: " " }, { type: "text", text: "on" }] },
      { role: "assistant", content: "I" },
      { role: "user", content: [{ type: "text", text: "\u00a0" }] },
      { role: "user", content: "then" },
    ],
    "user assistant user",
  ],
  "text beside calls, and a result": [
    [
      { role: "user", content: "Go" },
      { role: "assistant", content: " ", tool_calls: [CALL] },
      { role: "tool", tool_call_id: "call_1", content: "\n" },
    ],
    "user assistant user",
  ],
  "the end of a last message": [
    [{ role: "user", content: "Go" }, { role: "assistant", content: "The answer is \n" }],
    "user assistant",
  ],
  "the end of a last message in parts": [
    [{ role: "user", content: "Go" }, { role: "assistant", content: [{ type: "text", text: "The " }] }],
    "user assistant",
  ],
  "a last message": [[{ role: "user", content: "Go" }, { role: "assistant", content: " " }], "user"],
};

for (const [what, [messages, roles]] of Object.entries(REQUESTS)) {
  test(`Claude is not sent blanks: ${what}`, () =>
    withClaude(async (gateway, upstream) => {
      for (const headers of [{ "x-postern-tools": "none" }, {}]) {
        upstream.script(said("fine"));
        const reply = await gateway.call("/v1/chat/completions", { body: { messages }, headers });
        assert.equal(reply.status, 200, await reply.text());
        const sent = upstream.requests.at(-1)?.json as { readonly messages: readonly Json[] };
        assert.deepEqual(faultsOf(sent), []);
        assert.equal(sent.messages.map(({ role }) => role).join(" "), roles);
      }
    }));
}

test("stop sequences of blanks are left out for Claude, and named", () =>
  withClaude(async (gateway, upstream) => {
    const TRIED = [["\n\n", undefined], [["\n", "END"], ["END"]], [["END"], ["END"]]] as const;
    for (const [stop, sent] of TRIED) {
      upstream.script(said("fine"));
      const body = { messages: [{ role: "user", content: "Go" }], stop };
      const reply = await gateway.call("/v1/chat/completions", { body, headers: { "x-postern-tools": "none" } });
      assert.equal(reply.status, 200);
      const { stop_sequences } = upstream.requests.at(-1)?.json as Json;
      assert.deepEqual(stop_sequences, sent);
      const isNamed = reply.headers.get("x-postern-ignored")?.includes("stop") === true;
      assert.equal(isNamed, sent?.length !== [stop].flat().length, await reply.text());
    }
  }));

test("Claude behind another server is sent no blanks either, and other models get them as they came", () =>
  withWorld(async (world) => {
    const upstream: OpenAiUpstream = await world.upstream();
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "m", max_retries: 0 };
    const gateway = await world.gateway({ config: { provider, gateway: { rate_limit_max: 0 } } });
    const messages = [
      { role: "user", content: "Go" },
      { role: "assistant", content: "\n\n" },
      { role: "user", content: "And" },
    ];
    const ask = async (model: string) => {
      const headers = { "x-postern-tools": "none" };
      await (await gateway.call("/v1/chat/completions", { body: { model, messages }, headers })).text();
      return (upstream.requests.at(-1)?.json as { readonly messages: readonly Json[] }).messages;
    };
    assert.deepEqual(await ask("m"), messages);
    assert.deepEqual(await ask("anthropic/claude-sonnet-4.5"), [messages[0], messages[2]]);
  }));
