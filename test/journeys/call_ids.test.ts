import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import {
  contentBlock,
  MESSAGE_START,
  messageEnd,
  startAnthropicUpstream,
} from "../../fixtures/upstream/anthropic_upstream.ts";
import { toDelta, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { type OpenAiUpstream, type RunningGateway, type UpstreamReply, withWorld } from "../support/world.ts";

interface Vendor {
  readonly model: string;
  /** Form of the ids that the vendor takes */
  readonly form: RegExp;
  /** Ids of the calls of two turns */
  readonly ids: readonly [readonly string[], readonly string[]];
}

const MISTRAL: Vendor = {
  model: "mistral-small-latest",
  form: /^[a-zA-Z0-9]{9}$/,
  ids: [["D681PevKs", "VvvODy9mT"], ["yHeLbUqQs"]],
};
const KIMI: Vendor = {
  model: "kimi-k2-thinking",
  form: /^functions\.\w+:\d+$/,
  ids: [["functions.read_file:0", "functions.read_file:1"], ["functions.read_file:2"]],
};
const VENDORS: Readonly<Record<string, Vendor>> = {
  Mistral: MISTRAL,
  Kimi: KIMI,
  "another server": { model: "m", form: /^chatcmpl-tool-/, ids: [["chatcmpl-tool-1", "chatcmpl-tool-2"], ["x:3"]] },
};

const DONE: UpstreamReply = { kind: "text", chunks: ["fine"] };
const NAME = "read_file";
const TOOLS: OpenAI.ChatCompletionTool[] = [{ type: "function", function: { name: NAME, parameters: {} } }];
const PLAIN = { "x-postern-tools": "none" };

function turn(ids: readonly string[], reasoning?: string): UpstreamReply {
  const calls = ids.map((id, index) => ({
    ...{ index, id, type: "function" },
    function: { name: NAME, arguments: JSON.stringify({ path: `${index + 1}.txt` }) },
  }));
  const thought = reasoning === undefined ? [] : [toDelta({ reasoning_content: reasoning })];
  return {
    kind: "chunks",
    chunks: [...thought, toDelta({ tool_calls: calls }), toDelta({}, "tool_calls"), USAGE_CHUNK],
  };
}

interface Sent {
  readonly role: string;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly { readonly id: string }[];
  readonly tool_call_id?: string;
}

/** Ids of the calls in a request, and those that its results name. */
function idsIn(upstream: OpenAiUpstream, at = -1) {
  const { messages } = upstream.requests.at(at)?.json as { readonly messages: readonly Sent[] };
  return {
    calls: messages.flatMap(({ tool_calls: calls = [] }) => calls.map(({ id }) => id)),
    results: messages.flatMap(({ tool_call_id: id }) => (id === undefined ? [] : [id])),
  };
}

interface World {
  readonly upstream: OpenAiUpstream;
  readonly gateway: RunningGateway;
}

async function withUpstream(model: string, use: (world: World) => Promise<void>): Promise<void> {
  await withWorld(async (world) => {
    const upstream = await world.upstream();
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model, max_retries: 0 };
    const files = { "1.txt": "one", "2.txt": "two" };
    const gateway = await world.gateway({ config: { provider, gateway: { rate_limit_max: 0 } }, files });
    await use({ upstream, gateway });
  });
}

const clientOf = (gateway: RunningGateway, headers: Record<string, string> = PLAIN) =>
  new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token, maxRetries: 0, defaultHeaders: headers });

type Messages = OpenAI.ChatCompletionMessageParam[];

/** Asks as an OpenAI client does, and adds the reply to the messages with a result for each call. */
async function round(client: OpenAI, messages: Messages, stream: boolean): Promise<readonly string[]> {
  const body = { model: "", messages, tools: TOOLS };
  const said = stream
    ? await client.chat.completions.stream(body).finalMessage()
    : (await client.chat.completions.create(body)).choices[0]?.message;
  assert.ok(said);
  const ids = (said.tool_calls ?? []).map(({ id }) => id);
  const { role, content, tool_calls } = said;
  messages.push({ role, content, ...(tool_calls === undefined ? {} : { tool_calls }) });
  messages.push(...ids.map((id) => ({ role: "tool" as const, tool_call_id: id, content: `of ${id}` })));
  return ids;
}

for (const [what, { model, ids }] of Object.entries(VENDORS)) {
  test(`plain mode hands the ids of ${what} through, and back as they came`, () =>
    withUpstream(model, async ({ upstream, gateway }) => {
      const [first, second] = ids;
      for (const stream of [true, false]) {
        upstream.script(turn(first), turn(second), DONE);
        const client = clientOf(gateway);
        const messages: Messages = [{ role: "user", content: "Go" }];
        assert.deepEqual(await round(client, messages, stream), first);
        assert.deepEqual(await round(client, messages, stream), second);
        await round(client, messages, stream);
        assert.deepEqual(idsIn(upstream), { calls: [...first, ...second], results: [...first, ...second] });
      }
    }));

  test(`the agent sends the ids of ${what} back to it, in a run, in its conversation, and after a restart`, () =>
    withWorld(async (world) => {
      const upstream = await world.upstream();
      const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model, max_retries: 0 };
      const dataDir = await world.folder();
      const chat = async (gateway: RunningGateway, message: string) => {
        const body = { message, conversation_id: "talk" };
        assert.equal((await gateway.call("/api/chat", { body })).status, 200);
      };
      const config = { provider, gateway: { rate_limit_max: 0 } };
      const [first, second] = ids;
      const all = [...first, ...second];
      await world.during(
        world.gateway({ config, dataDir, files: { "1.txt": "one", "2.txt": "two" } }),
        async (gateway) => {
          upstream.script(turn(first), turn(second), DONE);
          await chat(gateway, "Go");
          assert.deepEqual(idsIn(upstream), { calls: all, results: all });
          await chat(gateway, "And");
          assert.deepEqual(idsIn(upstream), { calls: all, results: all });
          const { messages } = await (await gateway.call("/v1/conversations/talk")).json() as {
            readonly messages: { readonly data: readonly Sent[] };
          };
          assert.ok(messages.data.every((message) => !("vendor_ids" in message)));
        },
      );
      await world.during(world.gateway({ config, dataDir }), async (gateway) => {
        await chat(gateway, "Again");
        assert.deepEqual(idsIn(upstream), { calls: all, results: all });
      });
    }));

  test(`a client of the agent sees random ids of the gateway, and ${what} gets its own back`, () =>
    withUpstream(model, async ({ upstream, gateway }) => {
      const client = clientOf(gateway, {});
      const [first, second] = ids;
      const seen: string[] = [];
      // Two conversations in which the vendor says the very same
      for (const stream of [true, false]) {
        upstream.script(turn(first), turn(second), DONE);
        const messages: Messages = [{ role: "user", content: "Go" }];
        seen.push(...await round(client, messages, stream), ...await round(client, messages, stream));
        await round(client, messages, stream);
        assert.deepEqual(idsIn(upstream), { calls: [...first, ...second], results: [...first, ...second] });
      }
      assert.equal(new Set(seen).size, 2 * (first.length + second.length));
      for (const id of seen) assert.match(id, /^call_[0-9a-z]{24}$/);
    }));
}

test("to another vendor go ids of its form, in a conversation and in a client's history, and the first one gets its own back", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const settings = { kind: "openai_compatible", base_url: upstream.baseUrl, max_retries: 0 };
    const providers = { mistral: { ...settings, model: MISTRAL.model } };
    const config = { providers, provider: { ...settings, model: KIMI.model }, gateway: { rate_limit_max: 0 } };
    const gateway = await world.gateway({ config, files: { "1.txt": "one", "2.txt": "two" } });
    const models = { mistral: `mistral/${MISTRAL.model}`, kimi: KIMI.model };
    const chat = async (model: string) => {
      const reply = await gateway.call("/api/chat", { body: { model, message: "Go", conversation_id: "talk" } });
      assert.equal(reply.status, 200, await reply.text());
    };
    const check = ({ form }: Vendor) => {
      const { calls, results } = idsIn(upstream);
      for (const id of calls) assert.match(id, form);
      assert.equal(new Set(calls).size, calls.length);
      assert.deepEqual(results, calls);
      return calls;
    };
    upstream.script(turn(KIMI.ids[0]), DONE);
    await chat(models.kimi);
    upstream.script(turn(MISTRAL.ids[1]), DONE);
    await chat(models.mistral);
    const [a, b, c] = check(MISTRAL);
    assert.equal(c, MISTRAL.ids[1][0]);
    await chat(models.mistral);
    assert.deepEqual(check(MISTRAL), [a, b, c]);
    await chat(models.kimi);
    assert.deepEqual(check(KIMI), ["functions.read_file:0", "functions.read_file:1", "functions.read_file:2"]);

    const messages: Messages = [{ role: "user", content: "Go" }];
    upstream.script(turn(KIMI.ids[0]), DONE);
    const first = await clientOf(gateway).chat.completions.create({ model: models.kimi, messages, tools: TOOLS });
    const { tool_calls = [] } = first.choices[0]?.message ?? {};
    messages.push({ role: "assistant", content: null, tool_calls });
    for (const { id } of tool_calls) messages.push({ role: "tool", tool_call_id: id, content: "x" });
    await clientOf(gateway).chat.completions.create({ model: models.mistral, messages, tools: TOOLS });
    check(MISTRAL);
  }));

test("a fallback that answered gets its own ids back, and the first provider ids of its form", () =>
  withWorld(async (world) => {
    const [busy, upstream] = [await world.upstream(), await world.upstream()];
    const settings = { kind: "openai_compatible", max_retries: 0 };
    const provider = { ...settings, base_url: busy.baseUrl, model: "m", fallback: ["mistral"] };
    const providers = { mistral: { ...settings, base_url: upstream.baseUrl, model: MISTRAL.model } };
    const gateway = await world.gateway({ config: { provider, providers }, files: { "1.txt": "one" } });
    const [, ids] = MISTRAL.ids;
    busy.script({ kind: "status", status: 503 });
    upstream.script(turn(ids), DONE);
    assert.equal((await gateway.call("/api/chat", { body: { message: "Go", conversation_id: "talk" } })).status, 200);
    assert.deepEqual(idsIn(upstream), { calls: ids, results: ids });
    busy.script(DONE);
    assert.equal((await gateway.call("/api/chat", { body: { message: "And", conversation_id: "talk" } })).status, 200);
    const { calls, results } = idsIn(busy);
    assert.match(calls[0] ?? "", /^call_/);
    assert.deepEqual(results, calls);
  }));

test("a client's history with one id twice reaches Claude with an id for each call", () =>
  withWorld(async (world) => {
    const upstream = await startAnthropicUpstream();
    world.onEnd(() => upstream.close());
    const provider = { kind: "anthropic", base_url: upstream.baseUrl, model: "m", api_key_env: "K", max_retries: 0 };
    const gateway = await world.gateway({ config: { provider }, environment: { K: "sk-very-secret-key-0123456789" } });
    const call = { id: "call:0", type: "function" as const, function: { name: NAME, arguments: "{}" } };
    const messages: Messages = [{ role: "user", content: "Go" }];
    for (const content of ["one", "two"]) {
      messages.push({ role: "assistant", content: null, tool_calls: [call] });
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
    for (const headers of [PLAIN, {}]) {
      upstream.script([MESSAGE_START, ...contentBlock(0, { type: "text", text: "fine" }), ...messageEnd("end_turn")]);
      await clientOf(gateway, headers).chat.completions.create({ model: "", messages, tools: TOOLS });
      const sent = upstream.requests.at(-1)?.json as {
        readonly messages: readonly { readonly content: readonly Readonly<Record<string, unknown>>[] | string }[];
      };
      const blocks = sent.messages.flatMap(({ content }) => (typeof content === "string" ? [] : content));
      const uses = blocks.filter(({ type }) => type === "tool_use").map(({ id }) => String(id));
      const results = blocks.filter(({ type }) => type === "tool_result");
      assert.equal(new Set(uses).size, 2);
      for (const id of uses) assert.match(id, /^[a-zA-Z0-9_-]+$/);
      assert.deepEqual(results.map(({ tool_use_id, content }) => [tool_use_id, content]), [
        [uses[0], "one"],
        [uses[1], "two"],
      ]);
    }
  }));

test("two plain conversations whose calls have the same ids keep their own reasoning", () =>
  withUpstream(KIMI.model, async ({ upstream, gateway }) => {
    const histories = ["Alpha", "Beta"].map((content): Messages => [{ role: "user", content }]);
    upstream.script(...histories.map((_, i) => turn(["functions.read_file:0"], `thought ${i}`)), DONE);
    for (const messages of histories) await round(clientOf(gateway), messages, true);
    for (const [i, messages] of histories.entries()) {
      await round(clientOf(gateway), messages, true);
      const { messages: sent } = upstream.requests.at(-1)?.json as { readonly messages: readonly Sent[] };
      assert.deepEqual(sent.map(({ reasoning_content: thought }) => thought), [undefined, `thought ${i}`, undefined]);
    }
  }));
