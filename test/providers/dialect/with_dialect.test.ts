import assert from "node:assert/strict";
import { test } from "node:test";
import { createScriptedProvider, type Script } from "../../../fixtures/scripted_provider.ts";
import {
  contentBlock,
  MESSAGE_START,
  messageEnd,
  startAnthropicUpstream,
} from "../../../fixtures/upstream/anthropic_upstream.ts";
import { startOpenAiUpstream } from "../../../fixtures/upstream/openai_upstream.ts";
import { toDeclaration } from "../../../lib/agent/deferred_tools.ts";
import type { JsonSchema } from "../../../lib/base/json.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import { withDialect } from "../../../lib/providers/dialect/with_dialect.ts";
import { layered } from "../../../lib/providers/open_provider.ts";
import type { ProviderRequest, ToolDeclaration } from "../../../lib/providers/provider.ts";
import { VendorForms } from "../../../lib/providers/vendors/vendor_forms.ts";
import { BUILTIN_TOOLS } from "../../../lib/tools/builtin.ts";
import { callsOf, collect, KEY, NEVER, REQUEST, setUp } from "../support/provider_setup.ts";
import { refusals, VENDORS_RULES } from "./dialect_rules.ts";

const LOCAL = { kind: "openai_compatible", origin: "http://127.0.0.1:8080" };
const EMPTY = { type: "object", properties: {} };

/** Sends a request and gives what the provider got. */
async function sent(
  request: Partial<ProviderRequest>,
  { server = LOCAL, script = ["Done"] }: { readonly server?: typeof LOCAL; readonly script?: Script } = {},
) {
  const inner = createScriptedProvider(script);
  const events = await collect(layered(inner, [withDialect(new VendorForms(server))]), request);
  const [got] = inner.requests;
  assert.ok(got);
  return { got, events };
}

function tool(
  name: string,
  parameters: JsonSchema | undefined = EMPTY,
  more: Partial<ToolDeclaration> = {},
): ToolDeclaration {
  return { name, description: `Tool ${name}`, parameters, ...more };
}

function calling(name: string): Message {
  const call = { id: "call_1", type: "function" as const, function: { name, arguments: "{}" } };
  return { role: "assistant", content: null, tool_calls: [call] };
}

const DOTTED = [tool("mcp__docs__page.read"), tool("mcp__docs__page_read"), tool("mcp__docs__".padEnd(90, "y"))];

test("names that a vendor refuses go out in its form, in the history too, and calls come back under their own", async () => {
  const toolCalls = (request: ProviderRequest) => request.tools.map(({ name }) => ({ name }));
  const { got, events } = await sent({
    tools: DOTTED,
    messages: [{ role: "user", content: "Go" }, calling("mcp__docs__page.read"), calling("gone.tool")],
    toolChoice: { name: "mcp__docs__page.read" },
  }, { script: (request) => ({ toolCalls: toolCalls(request) }) });
  const names = got.tools.map(({ name }) => name);
  for (const name of names) assert.match(name, /^[a-zA-Z0-9_-]{1,64}$/);
  assert.equal(new Set(names).size, 3);
  assert.equal(names[1], "mcp__docs__page_read");
  const [, called, gone] = got.messages as readonly Extract<Message, { role: "assistant" }>[];
  assert.equal(called?.tool_calls?.[0]?.function.name, names[0]);
  assert.match(gone?.tool_calls?.[0]?.function.name ?? "", /^gone_tool_[0-9a-f]{10}$/);
  assert.deepEqual(got.toolChoice, { name: names[0] });
  assert.deepEqual(callsOf(events).map(({ name }) => name), DOTTED.map(({ name }) => name));
});

test("over the chat-completions format a call comes back under the tool's own name", async (t) => {
  const upstream = await startOpenAiUpstream();
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { base_url: upstream.baseUrl, api_key_env: "UP_KEY" }, { env: { UP_KEY: KEY } });
  const { provider } = providers.resolve("");
  await collect(provider, { tools: DOTTED });
  const { tools } = upstream.requests[0]?.json as { tools: readonly { function: { name: string } }[] };
  upstream.script({ kind: "tool_call", name: tools[0]?.function.name ?? "", arguments: ['{"a"', ":1}"] });
  const [call] = callsOf(await collect(provider, { tools: DOTTED }));
  assert.deepEqual([call?.name, call?.arguments], ["mcp__docs__page.read", '{"a":1}']);
});

test("over the Messages API too, where a history is closed without tools", async (t) => {
  const upstream = await startAnthropicUpstream();
  t.after(() => upstream.close());
  const { providers } = await setUp(t, {
    kind: "anthropic",
    base_url: upstream.baseUrl,
    model: "m",
    api_key_env: "UP_KEY",
  }, {
    env: { UP_KEY: KEY },
  });
  const { provider } = providers.resolve("");
  const messages: readonly Message[] = [{ role: "user", content: "Go" }, calling("mcp__docs__page.read"), {
    role: "tool",
    tool_call_id: "call_1",
    content: "x",
  }];
  await collect(provider, { messages });
  const { tools: [closed] } = upstream.requests[0]?.json as { tools: readonly { name: string }[] };
  assert.match(closed?.name ?? "", /^mcp__docs__page_read_[0-9a-f]{10}$/);
  upstream.script([
    MESSAGE_START,
    ...contentBlock(0, { type: "tool_use", id: "toolu_1", name: closed?.name, input: {} }),
    ...messageEnd("tool_use"),
  ]);
  const union = tool("mcp__docs__find", { type: "object", anyOf: [{ properties: { a: { type: "string" } } }] });
  const [call] = callsOf(await collect(provider, { messages, tools: [...DOTTED, union] }));
  assert.equal(call?.name, "mcp__docs__page.read");
  const { tools } = upstream.requests[1]?.json as { tools: readonly { input_schema: JsonSchema }[] };
  assert.deepEqual(tools[3]?.input_schema, { type: "object", properties: { a: { type: "string" } } });
});

test("a request whose tools every vendor takes is passed on as it is, as one with the tools that are always offered", async () => {
  const tools = BUILTIN_TOOLS.filter(({ alwaysOffered }) => alwaysOffered === true).map(toDeclaration);
  const request: ProviderRequest = { ...REQUEST, tools, messages: [...REQUEST.messages, calling("read_file")] };
  const passed: ProviderRequest[] = [];
  const inner = createScriptedProvider(["Done"]);
  const provider = layered({
    ...inner,
    stream(given, options) {
      passed.push(given);
      return inner.stream(given, options);
    },
  }, [withDialect(new VendorForms(LOCAL))]);
  for await (const _ of provider.stream(request, { signal: NEVER }));
  assert.ok(tools.length > 5);
  assert.equal(passed[0], request);
});

for (const [vendor, rules] of Object.entries(VENDORS_RULES)) {
  test(`${vendor} takes each built-in tool`, async () => {
    const { target: { kind, origin, model } } = rules;
    const { got } = await sent({ tools: BUILTIN_TOOLS.map(toDeclaration), model }, { server: { kind, origin } });
    for (const { name, parameters = EMPTY } of got.tools) assert.deepEqual(refusals(parameters, rules), [], name);
  });
}

test("the dialect follows the server and the model", async () => {
  const schema = {
    type: "object",
    properties: { "a[]": {}, b: { $ref: "#/$defs/B" }, on: { type: ["string", "null"] } },
    $defs: { B: { type: "string", format: "uri" } },
  };
  const of = async (kind: string, origin: string, model: string) => {
    const { got } = await sent({ tools: [tool("t", schema)], model }, { server: { kind, origin } });
    const text = JSON.stringify(got.tools[0]?.parameters);
    return [/\$ref/, /a\[\]/, /"null"/, /"format"/].map((part) => (part.test(text) ? 1 : 0)).join("");
  };
  const google = "https://generativelanguage.googleapis.com";
  assert.equal(await of("openai", "https://api.openai.com", "gpt-5-mini"), "1111");
  assert.equal(await of("anthropic", "https://api.anthropic.com", "claude-sonnet-4-5"), "1011");
  assert.equal(await of("openai_compatible", google, "any"), "0000");
  assert.equal(await of("openrouter", "https://openrouter.ai", "google/gemini-3-flash"), "0000");
  assert.equal(await of("openrouter", "https://openrouter.ai", "anthropic/claude-sonnet-4.5"), "0010");
  assert.equal(await of("openrouter", "https://openrouter.ai", "openai/gpt-5-mini"), "0110");
  assert.equal(await of("ollama", "http://127.0.0.1:11434", "qwen3"), "0110");
});

test("a strict tool of a client keeps what strict schemas have, and stays strict", async () => {
  const strict = {
    type: "object",
    properties: { next: { anyOf: [{ $ref: "#/$defs/Node" }, { type: "null" }] } },
    required: ["next"],
    additionalProperties: false,
    $defs: { Node: { type: "object", properties: {}, required: [], additionalProperties: false } },
  };
  const server = { kind: "openai", origin: "https://api.openai.com" };
  const { got } = await sent({ tools: [tool("t", strict, { strict: true })] }, { server });
  assert.deepEqual(got.tools[0], tool("t", strict, { strict: true }));
});

test("OpenAI reads the end of a long description in the schema, other vendors in one piece", async () => {
  const long = tool("t", EMPTY, { description: `${"Word ".repeat(300)}END` });
  const { got } = await sent({ tools: [long] }, { server: { kind: "openai", origin: "https://api.openai.com" } });
  const [fitted] = got.tools;
  assert.equal(fitted?.description.length, 1024);
  assert.match(String(fitted?.parameters?.["description"]), /END$/);
  assert.equal((await sent({ tools: [long] })).got.tools[0]?.description, long.description);
});

test("whoever leaves early ends the provider's stream, and an error before the first event arrives", async () => {
  const inner = createScriptedProvider([{ text: ["a", "b"], hang: "after" }, { errorBefore: new Error("Refused") }]);
  const provider = layered(inner, [withDialect(new VendorForms(LOCAL))]);
  const request = { ...REQUEST, tools: DOTTED };
  for await (const _ of provider.stream(request, { signal: NEVER })) break;
  assert.deepEqual([inner.aborted, inner.active], [1, 0]);
  await assert.rejects(collect(provider, { tools: DOTTED }), /Refused/);
});

/** Returns a schema of some KB that is written out as 16 ** 4 nodes where references are not taken. */
function layeredSchema(): JsonSchema {
  const fieldsOf = (level: number) =>
    Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`field_${i}`, { $ref: `#/$defs/l${level}` }]));
  const levels = [1, 2, 3, 4].map((level) => [`l${level}`, { type: "object", properties: fieldsOf(level + 1) }]);
  return {
    type: "object",
    properties: fieldsOf(1),
    $defs: { ...Object.fromEntries(levels), l5: { type: "string" } },
  };
}

test("of many large schemas in a request the first are told, and the rest by a note, the same in each request", async () => {
  const tools = Array.from({ length: 400 }, (_, i) => tool(`layered_${i}`, layeredSchema()));
  const inner = createScriptedProvider(["Done", "Done", "Done"]);
  const provider = layered(inner, [withDialect(new VendorForms(LOCAL))]);
  await collect(provider, { tools });
  await collect(provider, { tools });
  await collect(provider, { tools: tools.slice(-1) });
  const [first, second, alone] = inner.requests.map((request) => request.tools);
  const told = first?.filter(({ parameters }) => Object.keys(parameters?.["properties"] ?? {}).length > 0) ?? [];
  assert.ok(told.length >= 5 && told.length < 40, String(told.length));
  assert.match(first?.at(-1)?.description ?? "", /form is too large to be told/);
  assert.deepEqual(second, first);
  assert.deepEqual(alone?.[0]?.parameters, first?.[0]?.parameters);
});

test("hundreds of usual tools are told in whole, beside one large schema too", async () => {
  const usual: JsonSchema = {
    type: "object",
    properties: Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`field_${i}`, { type: ["string", "null"] }])),
  };
  const tools = Array.from({ length: 500 }, (_, i) => tool(`usual_${i}`, { ...usual }));
  const { got } = await sent({ tools: [tool("large", layeredSchema()), ...tools] });
  assert.deepEqual(got.tools.slice(1).map(({ parameters }) => parameters), tools.map(() => usual));
});
