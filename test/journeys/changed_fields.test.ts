import assert from "node:assert/strict";
import { test } from "node:test";
import { contentBlock, MESSAGE_START, startAnthropicUpstream } from "../../fixtures/upstream/anthropic_upstream.ts";
import { type RunningGateway, withWorld } from "../support/world.ts";

type Json = Readonly<Record<string, unknown>>;

const PLAIN = { "x-postern-tools": "none" };
const HI = { role: "user", content: "Hi" };
const tool = (parameters: Json, more: Json = {}) => ({
  type: "function",
  function: { name: "look", description: "Looks", parameters, ...more },
});
const OBJECT = { type: "object", properties: {} };
const ODD = { type: "object", properties: { at: { type: "string", format: "date-time", not: { const: "x" } } } };
const calling = (id: string, more: Json = {}) => [
  HI,
  {
    role: "assistant",
    content: null,
    tool_calls: [{ id, type: "function", function: { name: "look", arguments: "{}" } }],
    ...more,
  },
  { role: "tool", tool_call_id: id, content: "42" },
];

/** Bodies of chat completions, by the name of what is in them. */
const BODIES: Readonly<Record<string, Json>> = {
  "one message": { messages: [HI] },
  "fields of all kinds": {
    messages: [{ ...HI, name: "ann", cache_control: { type: "ephemeral" } }],
    ...{ temperature: 0.5, top_p: 0.9, seed: 7, stop: ["END"], user: "u", metadata: { a: "b" }, logit_bias: { 5: 1 } },
    ...{ presence_penalty: 1, frequency_penalty: 1, response_format: { type: "json_object" } },
  },
  "max_tokens": { messages: [HI], max_tokens: 50 },
  "max_completion_tokens": { messages: [HI], max_completion_tokens: 50 },
  "both limits": { messages: [HI], max_tokens: 50, max_completion_tokens: 60 },
  "no limit": { messages: [HI], max_tokens: -1 },
  "a developer": { messages: [{ role: "developer", content: "Be brief" }, HI] },
  "two instructions": { messages: [{ role: "system", content: "A" }, HI, { role: "system", content: "B" }, HI] },
  "a plain tool": { messages: [HI], tools: [tool(OBJECT)], tool_choice: "auto", parallel_tool_calls: false },
  "an odd schema": { messages: [HI], tools: [tool(ODD)] },
  "a long description": { messages: [HI], tools: [tool(OBJECT, { description: "x".repeat(2_000) })] },
  "a strict tool": { messages: [HI], tools: [tool(OBJECT, { strict: true })] },
  "a good id": { messages: calling("call_1"), tools: [tool(OBJECT)] },
  "a long id": { messages: calling(`call_${"x".repeat(80)}`), tools: [tool(OBJECT)] },
  "reasoning": { messages: calling("call_1", { reasoning_content: "I think" }), tools: [tool(OBJECT)] },
  "blanks": { messages: [HI, { role: "assistant", content: " " }, HI] },
  "an effort": { messages: [HI], reasoning_effort: "high" },
  "a hot temperature": { messages: [HI], temperature: 1.5 },
  "a picture in detail": {
    messages: [{
      role: "user",
      content: [{ type: "image_url", image_url: { url: "https://a.test/b.png", detail: "low" } }],
    }],
  },
};

/** Fields of a request that are no part of what the model reads. */
const OWN = new Set(["model", "stream", "stream_options"]);

/** Paths at which two values differ, such as `messages[].role`: of an object that only one has, its own path. */
function differences(sent: unknown, got: unknown, path = ""): readonly string[] {
  if (Array.isArray(sent) && Array.isArray(got)) {
    if (sent.length !== got.length) return [`${path}[]`];
    return sent.flatMap((item, at) => differences(item, got[at], `${path}[]`));
  }
  if (isObject(sent) && isObject(got)) {
    const names = new Set([...Object.keys(sent), ...Object.keys(got)]);
    return [...names].flatMap((name) => differences(sent[name], got[name], path === "" ? name : `${path}.${name}`));
  }
  return JSON.stringify(sent) === JSON.stringify(got) ? [] : [path];
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

async function ask(gateway: RunningGateway, path: string, body: Json) {
  const reply = await gateway.call(path, { body, headers: PLAIN });
  const text = await reply.text();
  assert.equal(reply.status, 200, text);
  const namesIn = (header: string) => (reply.headers.get(header) ?? "").split(", ").filter((name) => name !== "");
  return { ignored: namesIn("x-postern-ignored"), changed: namesIn("x-postern-changed") };
}

/** Tells whether a name that a reply has covers a path. One limit, and one id, have two names. */
const covers = (path: string) => (name: string) => {
  const [one, other] = [path, name].map((text) =>
    text.replace("tool_call_id", "tool_calls[].id").replace("max_completion_tokens", "max_tokens")
  );
  return one?.startsWith(other ?? "") === true || other?.startsWith(one ?? "") === true;
};

const without = (body: Json) => Object.fromEntries(Object.entries(body).filter(([name]) => !OWN.has(name)));

/** Kind of the provider and name of the model, for each row of vendors. */
const VENDORS: readonly (readonly [kind: string, model: string])[] = [
  ["openai", "gpt-5"],
  ["openai_compatible", "local"],
  ["openai_compatible", "claude-x"],
  ["openai_compatible", "mistral-small"],
  ["openai_compatible", "gemini-x"],
  ["openai_compatible", "kimi-k2"],
];

for (const [kind, model] of VENDORS) {
  test(`each field of a completion that ${model} of ${kind} gets in another form is named, and no other`, () =>
    withWorld(async (world) => {
      const upstream = await world.upstream();
      const provider = { kind, base_url: upstream.baseUrl, model, max_retries: 0 };
      const gateway = await world.gateway({ config: { provider, gateway: { rate_limit_max: 0 } } });
      const wrong: string[] = [];
      for (const [what, body] of Object.entries(BODIES)) {
        for (const stream of [true, false]) {
          const { ignored, changed } = await ask(gateway, "/v1/chat/completions", { ...body, stream });
          const got = upstream.turns.at(-1)?.json as Json; // a fake upstream has read it
          const paths = differences(without(body), without(got));
          const names = [...ignored, ...changed];
          const unnamed = paths.filter((path) => !names.some(covers(path)));
          const untrue = names.filter((name) => !paths.some((path) => covers(path)(name)));
          if (unnamed.length + untrue.length > 0) wrong.push(`${what}: ${unnamed} | ${untrue}`);
        }
      }
      assert.deepEqual(wrong, []);
    }));
}

test("what Anthropic gets of a completion in another form is named", () =>
  withWorld(async (world) => {
    const upstream = await startAnthropicUpstream();
    world.onEnd(() => upstream.close());
    const provider = { kind: "anthropic", base_url: upstream.baseUrl, model: "claude-3", max_retries: 0 };
    const gateway = await world.gateway({ config: { provider, gateway: { rate_limit_max: 0 } } });
    const expected: Readonly<Record<string, string>> = {
      "one message": "",
      "fields of all kinds":
        "seed, presence_penalty, frequency_penalty, response_format, logit_bias, messages[].cache_control, messages[].name, metadata | ",
      "max_tokens": "",
      "a developer": " | messages[].role",
      "two instructions": " | messages[].role",
      "a plain tool": "",
      "an odd schema": " | tools[].function.parameters",
      "a strict tool": "tools[].function.strict | ",
      "a long id": " | messages[].tool_calls[].id",
      "blanks": " | messages[].content",
      "an effort": " | reasoning_effort",
      "a hot temperature": " | temperature",
      "a picture in detail": "messages[].content[].image_url.detail | ",
    };
    for (const [what, names] of Object.entries(expected)) {
      const { ignored, changed } = await ask(gateway, "/v1/chat/completions", BODIES[what] ?? {});
      assert.deepEqual(
        [ignored.toSorted(), changed],
        (names || " | ").split(" | ").map((list) => list.split(", ").filter((name) => name !== "").toSorted()),
        what,
      );
    }
  }));

test("Responses and Messages name in their own words what the model gets in another form", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "local", max_retries: 0 };
    const gateway = await world.gateway({ config: { provider, gateway: { rate_limit_max: 0 } } });
    const id = "call_1";
    const responses = await ask(gateway, "/v1/responses", {
      input: [{ role: "developer", content: "Be brief" }, HI],
      max_output_tokens: 50,
      tools: [
        { type: "function", name: "look", parameters: ODD },
        { type: "custom", name: "edit" },
        { type: "namespace", name: "files", tools: [{ type: "function", name: "open", parameters: OBJECT }] },
      ],
    });
    assert.deepEqual(responses, {
      ignored: [],
      changed: ["tools[].custom", "tools[].namespace", "tools[].name", "tools[].parameters", "input[].role"],
    });
    const messages = await ask(gateway, "/v1/messages", {
      max_tokens: 8_000,
      thinking: { type: "enabled", budget_tokens: 5_000 },
      tools: [{ name: "look", input_schema: ODD }],
      messages: [
        HI,
        { role: "assistant", content: [{ type: "tool_use", id, name: "look", input: {} }] },
        {
          role: "user",
          content: [{
            ...{ type: "tool_result", tool_use_id: id, is_error: true },
            content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } }],
          }],
        },
      ],
    });
    assert.deepEqual(messages, {
      ignored: ["messages[].content[].is_error"],
      changed: ["tools[].input_schema", "messages[].content[].content", "thinking"],
    });
    const same = await ask(gateway, "/v1/responses", {
      input: "Hi",
      tools: [{ type: "function", name: "look", parameters: OBJECT }],
    });
    assert.deepEqual(same, { ignored: [], changed: [] });
  }));

test("Responses and Messages name in their own words what the model does not get, also beside an error", () =>
  withWorld(async (world) => {
    const upstream = await startAnthropicUpstream();
    world.onEnd(() => upstream.close());
    const other = await world.upstream();
    const config = {
      provider: { kind: "anthropic", base_url: upstream.baseUrl, model: "claude-3", max_retries: 0 },
      providers: { up: { base_url: other.baseUrl } },
      gateway: { rate_limit_max: 0 },
    };
    const gateway = await world.gateway({ config });
    const image = { type: "input_image", image_url: "data:image/png;base64,AAAA", detail: "low" };
    const body = {
      input: [{ role: "user", content: [{ type: "input_text", text: "Hi" }, image] }],
      presence_penalty: 1,
      text: { format: { type: "json_object" }, verbosity: "low" },
      tools: [{ type: "function", name: "look", parameters: OBJECT, strict: true }],
      reasoning: { effort: "low" },
      max_output_tokens: 50,
    };
    const names = ["input[].content[].detail", "presence_penalty", "text.format", "text.verbosity", "tools[].strict"];
    const told = await ask(gateway, "/v1/responses", body);
    assert.deepEqual([told.ignored.toSorted(), told.changed], [names, ["reasoning.effort"]]);
    const messages = { max_tokens: 50, messages: [HI], tool_choice: { type: "auto", disable_parallel_tool_use: true } };
    assert.deepEqual(await ask(gateway, "/v1/messages", { ...messages, model: "up/upstream-model" }), {
      ignored: ["tool_choice", "tool_choice.disable_parallel_tool_use"],
      changed: [],
    });
    // The reply breaks off in its middle
    upstream.script([
      MESSAGE_START,
      ...contentBlock(0, { type: "text", text: "" }, { type: "text_delta", text: "Hel" }),
    ]);
    const failed = await gateway.call("/v1/responses", { body, headers: PLAIN });
    assert.equal(failed.status, 502, await failed.text());
    const headers = ["x-postern-changed", "x-postern-ignored"].map((name) => failed.headers.get(name)?.split(", "));
    assert.deepEqual([headers[0], headers[1]?.toSorted()], [["reasoning.effort"], names]);
  }));

test("the agent's own requests name nothing as changed", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "local", max_retries: 0 };
    const gateway = await world.gateway({ config: { provider, gateway: { rate_limit_max: 0 } } });
    const body = { messages: [HI], max_completion_tokens: 50, tools: [tool(ODD)] };
    const reply = await gateway.call("/v1/chat/completions", { body });
    await reply.body?.cancel();
    assert.equal(reply.headers.get("x-postern-changed"), null);
  }));
