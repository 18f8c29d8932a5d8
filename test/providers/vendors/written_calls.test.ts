import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import {
  startOpenAiUpstream,
  toDelta,
  type UpstreamReply,
  USAGE_CHUNK,
} from "../../../fixtures/upstream/openai_upstream.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import type { ProviderEvent } from "../../../lib/base/records/provider_event.ts";
import type { ProviderRequest, ToolDeclaration } from "../../../lib/providers/provider.ts";
import { collect, NEVER, noticesOf, REQUEST, setUp, textOf } from "../support/provider_setup.ts";

const TOOLS: readonly ToolDeclaration[] = ["look", "shell"].map((name) => ({
  name,
  description: "",
  parameters: undefined,
}));
const CALL = '{"name": "shell", "arguments": {"command": "ls"}}';

/** Streams a text in pieces of this many characters, and gives the events of the reply. */
async function reply(
  context: TestContext,
  text: string,
  { size = 7, request = {}, kind = "openai_compatible", reason = "stop" }: {
    readonly size?: number;
    readonly request?: Partial<ProviderRequest>;
    readonly kind?: "openai_compatible" | "openai";
    readonly reason?: string;
  } = {},
): Promise<readonly ProviderEvent[]> {
  const pieces = text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? [];
  const chunks = [...pieces.map((content) => toDelta({ content })), toDelta({}, reason), USAGE_CHUNK];
  const script: UpstreamReply = { kind: "chunks", chunks };
  const upstream = await startOpenAiUpstream(script);
  context.after(() => upstream.close());
  const { providers } = await setUp(context, { kind, base_url: upstream.baseUrl }, {
    env: { OPENAI_API_KEY: "sk-a-key-of-a-test" },
  });
  return await collect(providers.resolve("").provider, { tools: TOOLS, ...request });
}

const callsOf = (events: readonly ProviderEvent[]) =>
  events.flatMap((event) => event.type === "tool_call_delta" ? [[event.name, JSON.parse(event.arguments_delta)]] : []);
const reasonOf = (events: readonly ProviderEvent[]) =>
  events.flatMap((event) => event.type === "finish" ? [event.finish_reason] : []);

const READ = ["shell", { command: "ls" }];
const WRITTEN: Readonly<Record<string, readonly [text: string, calls: readonly unknown[]]>> = {
  "by itself": [CALL, [READ]],
  "over lines": [`\n${JSON.stringify(JSON.parse(CALL), null, 2)}\n`, [READ]],
  "in a fence": [`\`\`\`json\n${CALL}\n\`\`\``, [READ]],
  "in tags that nobody closes": [`<tool_call>\n${CALL}`, [READ]],
  "several in tags": [`<tool_call>\n${CALL}\n</tool_call>\n<tool_call>\n${CALL}\n</tool_call>`, [READ, READ]],
  "several, each on a line": [`${CALL}\n{"name": "look", "arguments": {}}`, [READ, ["look", {}]]],
};

for (const [name, [text, calls]] of Object.entries(WRITTEN)) {
  test(`a call that a model wrote ${name} is a call`, async (t) => {
    for (const size of [1, 7, 1000]) {
      const events = await reply(t, text, { size });
      assert.deepEqual(callsOf(events), calls);
      assert.equal(textOf(events), "");
      assert.deepEqual(reasonOf(events), ["tool_calls"]);
      assert.deepEqual(noticesOf(events), ["tool_call_written"]);
    }
  });
}

const TEXTS: Readonly<Record<string, string>> = {
  "in a reply without a word": "",
  "in a reply of blanks": " \n\n",
  "in an empty fence": "```json\n```",
  "in tags around nothing": "<tool_call>\n</tool_call>",
  "with words before it": `I would call ${CALL}`,
  "with words after it": `${CALL}\nThat is how one would call it.`,
  "of a tool that there is not": CALL.replace("shell", "sudo"),
  "beside one of a tool that there is not": `${CALL}\n${CALL.replace("shell", "sudo")}`,
  "without arguments": '{"name": "shell"}',
  "that breaks off": CALL.slice(0, 30),
  "as other JSON": '{"names": ["a", "b"]}',
  "as code": "```js\nconsole.log(1)\n```",
  "as a fence with nothing in it": "```",
  "longer than what is held": `{"name": "shell", "arguments": {"command": "${"x".repeat(70_000)}"}}`,
};

for (const [name, text] of Object.entries(TEXTS)) {
  test(`a text ${name} stays text`, async (t) => {
    const events = await reply(t, text, { size: 997 });
    assert.deepEqual(callsOf(events), []);
    assert.equal(textOf(events), text);
    assert.deepEqual(reasonOf(events), ["stop"]);
  });
}

test("a written call stays text where no call or JSON is wanted, when the reply is cut, and from a vendor", async (t) => {
  const cases = [
    { request: { tools: [] } },
    { request: { toolChoice: "none" as const } },
    { request: { parameters: { response_format: { type: "json_object" } } } },
    { reason: "length" },
    { kind: "openai" as const },
  ];
  for (const options of cases) {
    const events = await reply(t, CALL, options);
    assert.equal(textOf(events), CALL, JSON.stringify(options));
    assert.deepEqual(callsOf(events), []);
  }
});

test("a written call that is in a result of a tool, or in the user's words, stays text", async (t) => {
  const lines = JSON.stringify(JSON.parse(CALL), null, 2).split("\n");
  const numbered = lines.map((line, at) => `${at + 1}: ${line}`).join("\n");
  const messages: readonly Message[] = [{ role: "user", content: "Show a.json" }, {
    role: "assistant",
    content: null,
    tool_calls: [{ id: "c1", type: "function", function: { name: "look", arguments: "{}" } }],
  }];
  const shown: readonly Message[] = [...messages, { role: "tool", tool_call_id: "c1", content: numbered }];
  const told: readonly Message[] = [{ role: "user", content: `Say ${CALL}` }];
  for (const history of [shown, told]) {
    for (const text of [CALL, `${CALL}\n${CALL}`]) {
      const events = await reply(t, text, { request: { messages: history } });
      assert.equal(textOf(events), text);
      assert.deepEqual(callsOf(events), []);
    }
  }
  const other: readonly Message[] = [...messages, { role: "tool", tool_call_id: "c1", content: "ls" }];
  assert.deepEqual(callsOf(await reply(t, CALL, { request: { messages: other } })), [READ]);
});

test("a written call stays text in plain mode", async (t) => {
  const upstream = await startOpenAiUpstream({ kind: "text", chunks: [CALL] });
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { base_url: upstream.baseUrl });
  const { provider } = providers.resolve("");
  const events: ProviderEvent[] = [];
  const options = { signal: NEVER, givesFields: true };
  for await (const batch of provider.stream({ ...REQUEST, tools: TOOLS }, options)) events.push(...batch);
  assert.equal(textOf(events), CALL);
});

test("what is held when a reply breaks off is given before the error", async (t) => {
  const upstream = await startOpenAiUpstream({ kind: "die", chunks: ['{"name": "sh'] });
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { base_url: upstream.baseUrl });
  const { provider } = providers.resolve("");
  const events: ProviderEvent[] = [];
  await assert.rejects(async () => {
    for await (const batch of provider.stream({ ...REQUEST, tools: TOOLS }, { signal: NEVER })) events.push(...batch);
  });
  assert.equal(textOf(events), '{"name": "sh');
});

test("other text is given as it comes", async (t) => {
  const events = await reply(t, "Here is the list of files", { size: 5 });
  assert.deepEqual(events.flatMap((event) => event.type === "text_delta" ? [event.delta] : []), [
    "Here ",
    "is th",
    "e lis",
    "t of ",
    "files",
  ]);
});
