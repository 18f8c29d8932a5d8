import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { toDelta, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { jsonOf, until, type UpstreamReply, withWorld, type World } from "../support/world.ts";

const TEXT: UpstreamReply = { kind: "text", chunks: ["Hel", "lo"] };
const WEATHER = { type: "function" as const, name: "weather", parameters: { type: "object" }, strict: false };
const CALL: UpstreamReply = {
  kind: "chunks",
  chunks: [
    toDelta({
      tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "weather", arguments: "{}" } }],
    }),
    toDelta({}, "tool_calls"),
    USAGE_CHUNK,
  ],
};
const model = "up/upstream-model";

async function start(world: World, ...script: readonly UpstreamReply[]) {
  const upstream = await world.upstream(...script);
  const gateway = await world.gateway({ config: { providers: { up: { base_url: upstream.baseUrl } } } });
  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token, maxRetries: 0 });
  const say = (input: string | OpenAI.Responses.ResponseInput, previous?: OpenAI.Responses.Response) =>
    client.responses.create({ model, input, tools: [WEATHER], ...(previous && { previous_response_id: previous.id }) });
  /** Messages of a conversation, such as `role: text`. */
  const messagesOf = async ({ conversation }: OpenAI.Responses.Response) => {
    const { messages } = await jsonOf(gateway.call(`/v1/conversations/${conversation?.id}`));
    return messages.data.map(({ role, content }: { role: string; content: unknown }) => `${role}: ${content}`);
  };
  const asked = () =>
    (upstream.turns.at(-1)?.json as { messages: readonly { role: string; content: unknown }[] }).messages
      .filter(({ role }) => role !== "system").map(({ role, content }) => `${role}: ${content}`);
  return { upstream, gateway, client, say, messagesOf, asked };
}

test("a response that is not the last one begins a branch: a new conversation with the history up to it", () =>
  withWorld(async (world) => {
    const { say, messagesOf, asked, gateway } = await start(world, TEXT);
    const first = await say("one");
    const second = await say("two", first);
    assert.deepEqual(second.conversation, first.conversation);
    const branch = await say("three", first);
    assert.notDeepEqual(branch.conversation, first.conversation);
    assert.equal(branch.previous_response_id, first.id);
    assert.deepEqual(asked(), ["user: one", "assistant: Hello", "user: three"]);
    // Each goes on by itself, and a branch has branches
    const further = await say("four", branch);
    assert.deepEqual(further.conversation, branch.conversation);
    const twig = await say("five", branch);
    assert.deepEqual(await messagesOf(twig), [
      "user: one",
      "assistant: Hello",
      "user: three",
      "assistant: Hello",
      "user: five",
      "assistant: Hello",
    ]);
    assert.deepEqual(await messagesOf(second), ["user: one", "assistant: Hello", "user: two", "assistant: Hello"]);
    const last = await say("six", second);
    assert.deepEqual(last.conversation, first.conversation);
    const { data } = await jsonOf(gateway.call("/v1/conversations"));
    assert.deepEqual(data.map(({ title }: { title: string }) => title), ["one", "one", "one"]);
  }));

test("a branch has the agent's own work of its history once, and the outside content that was read", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      files: { "a.txt": "forty-two" },
      script: [
        { toolCalls: [{ name: "read_file", arguments: { path: "a.txt" } }, { name: "weather", arguments: {} }] },
        ...Array.from({ length: 4 }, () => ({ text: "Sunny" })),
      ],
    });
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token, maxRetries: 0 });
    const first = await client.responses.create({ input: "Look, and tell the weather", tools: [WEATHER] });
    const call = first.output.find((item) => item.type === "function_call") ?? assert.fail("no call");
    const output = { type: "function_call_output" as const, call_id: call.call_id, output: "sunny" };
    const go = (previous_response_id: string, input: OpenAI.Responses.ResponseInput) =>
      client.responses.create({ previous_response_id, input, tools: [WEATHER] });
    const taintOf = async ({ id }: { readonly id: string }) =>
      (await jsonOf(gateway.call(`/v1/runs/${id.replace("resp_", "run_")}`))).taint;
    const roles = () =>
      gateway.provider.requests.at(-1)?.messages.map(({ role }) => role).filter((role) => role !== "system");
    const second = await go(first.id, [output]);
    const branch = await go(first.id, [output]);
    assert.deepEqual(roles(), ["user", "assistant", "tool", "tool"]);
    assert.notDeepEqual(branch.conversation, second.conversation);
    assert.deepEqual([await taintOf(first), await taintOf(branch)], [undefined, ["client tool"]]);
    await go(second.id, [{ role: "user", content: "And?" }]);
    // A history that is copied brings the taint of its conversation, and no other
    const later = await go(second.id, [{ role: "user", content: "Or?" }]);
    assert.deepEqual(roles(), ["user", "assistant", "tool", "tool", "assistant", "user"]);
    assert.deepEqual(await taintOf(later), ["client tool"]);
  }));

test("requests that go on after one response at the same moment become branches, none with a turn of another", () =>
  withWorld(async (world) => {
    const { upstream, say, messagesOf } = await start(world, CALL);
    const first = await say("The weather?");
    upstream.script(TEXT);
    const outputs = Array.from({ length: 6 }, (_, index) => `sunny ${index}`);
    const answers = await Promise.all(
      outputs.map((output) => say([{ type: "function_call_output", call_id: callOf(first), output }], first)),
    );
    const ids = new Set(answers.map(({ conversation }) => conversation?.id));
    assert.equal(ids.size, outputs.length);
    assert.ok(ids.has(first.conversation?.id), "one of them goes on in the conversation itself");
    for (const [index, output] of outputs.entries()) {
      const messages = await messagesOf(answers[index] ?? assert.fail());
      assert.deepEqual(messages, ["user: The weather?", "assistant: null", `tool: ${output}`, "assistant: Hello"]);
    }
  }));

test("a request that was refused leaves the conversation to the next one, and no branch behind", () =>
  withWorld(async (world) => {
    const { upstream, gateway, client, say, messagesOf } = await start(world, TEXT);
    const first = await say("one");
    const count = async () => (await jsonOf(gateway.call("/v1/conversations"))).data.length;
    const isStatus = (status: number) => (error: { status?: number }) => error.status === status;
    const refused = async (previous: OpenAI.Responses.Response) => {
      upstream.script({ kind: "status", status: 422, body: { error: { message: "No", code: "bad", param: null } } });
      await assert.rejects(say("two", previous), isStatus(422));
      upstream.script(TEXT);
      const body = { model: "nobody/model", previous_response_id: previous.id, input: "two" };
      await assert.rejects(client.responses.create(body), isStatus(404));
    };
    await refused(first);
    const second = await say("two", first);
    assert.deepEqual(second.conversation, first.conversation);
    await refused(first);
    assert.equal(await count(), 1);
    assert.equal((await messagesOf(second)).length, 4);
  }));

test("a branch goes with its only response; nobody goes on in one that has said nothing", () =>
  withWorld(async (world) => {
    const { upstream, gateway, client, say, messagesOf } = await start(world, TEXT);
    const first = await say("one");
    await say("two", first);
    const statusOf = async (id: string) => (await gateway.call(`/v1/conversations/${id}`)).status;
    const branch = await say("three", first);
    const further = await say("four", branch);
    // Something else was said in it
    await client.responses.delete(further.id);
    assert.equal((await messagesOf(branch)).length, 6);
    const short = await say("five", first);
    await client.responses.delete(short.id);
    assert.equal(await statusOf(short.conversation?.id ?? ""), 404);

    upstream.script({ kind: "hang" });
    const body = { model, previous_response_id: first.id, input: "six", background: true };
    const begun = await client.responses.create(body);
    const id = begun.conversation?.id ?? assert.fail("no conversation");
    const turns = upstream.turns.length;
    for (
      const [path, body] of [
        ["/v1/responses", { model, conversation: id, input: "seven" }],
        ["/api/chat", { message: "seven", conversation_id: id }],
      ] as const
    ) {
      const refused = await gateway.call(path, { body });
      assert.equal(refused.status, 409, path);
      assert.match(await refused.text(), /its first response is at work, or has failed; wait for its end/);
    }
    await client.responses.cancel(begun.id);
    await until(async () => await statusOf(id) === 404);
    assert.ok(upstream.turns.length <= turns + 1, "nothing but the first response of the branch asked the model");
  }));

test("a response that said nothing, or whose conversation is gone, is 409 with the way out; a repeat is the same reply", () =>
  withWorld(async (world) => {
    const { upstream, gateway, say } = await start(world, TEXT);
    const first = await say("one");
    const ask = (headers: Record<string, string> = {}) =>
      gateway.call("/v1/responses", { body: { model, previous_response_id: first.id, input: "two" }, headers });
    const again = { "idempotency-key": "once" };
    const reply = await (await ask(again)).text();
    assert.equal(await (await ask(again)).text(), reply);
    await gateway.call(`/v1/conversations/${first.conversation?.id}`, { method: "DELETE" });
    const turns = upstream.turns.length;
    const gone = await ask();
    assert.equal(gone.status, 409);
    assert.match(await gone.text(), /send the whole history as \\"input\\""/);
    assert.equal(gone.headers.get("x-should-retry"), "false");
    assert.equal(upstream.turns.length, turns);
  }));

test("a compaction after a response condenses its history, which stays as it is", () =>
  withWorld(async (world) => {
    const { upstream, client, say, messagesOf } = await start(world, TEXT);
    const first = await say("I want a cat");
    const second = await say("And a dog", first);
    upstream.script({ kind: "text", chunks: ["A cat."] });
    const text = () => JSON.stringify(upstream.turns.at(-1)?.json);
    const compacted = await client.responses.compact({ model, previous_response_id: first.id });
    assert.deepEqual(compacted.output.map(({ type }) => type), ["compaction"]);
    assert.match(text(), /User: I want a cat/);
    assert.doesNotMatch(text(), /And a dog/);
    const input = [{ type: "compaction_trigger" as const }];
    const triggered = await client.responses.create({ model, previous_response_id: second.id, input });
    assert.deepEqual([triggered.output.map(({ type }) => type), triggered.conversation], [["compaction"], undefined]);
    assert.match(text(), /And a dog/);
    upstream.script(TEXT);
    const third = await say("three", second);
    assert.deepEqual(third.conversation, first.conversation);
    assert.equal((await messagesOf(third)).length, 6);
  }));

function callOf({ output }: OpenAI.Responses.Response): string {
  const call = output.find((item) => item.type === "function_call") ?? assert.fail("no call");
  return call.call_id;
}
