import assert from "node:assert/strict";
import { test } from "node:test";
import { checkBody } from "../../../../handlers/wire/check_body.ts";
import {
  isUsualMessage,
  isUsualMessageTool,
  messagesSchema,
  readMessagesBody,
} from "../../../../handlers/wire/messages/message_body.ts";
import { toMessageInput } from "../../../../handlers/wire/messages/to_message_input.ts";
import { seal } from "../../../../handlers/wire/sealed_fields.ts";
import { HttpError } from "../../../../lib/base/errors.ts";

type Json = Readonly<Record<string, unknown>>;

const PNG = { type: "base64", media_type: "image/png", data: "aWNv" };
const read = (body: Json, plain = false, headers: Record<string, string> = {}) =>
  toMessageInput({ max_tokens: 100, ...body }, { plain, headers: new Headers(headers) });
const ofUser = (...content: readonly Json[]) => ({ messages: [{ role: "user", content }] });
const refusalOf = (body: Json, plain = false) => {
  try {
    read(body, plain);
  } catch (error) {
    if (error instanceof HttpError) return { code: error.code, param: error.param };
    throw error;
  }
  return undefined;
};

test("a request becomes messages, tools and parameters of a completion", () => {
  const { model, messages, stream, wishes, ignored } = read({
    model: "claude-x",
    system: [{ type: "text", text: "Be brief" }, { type: "text", text: "Be kind" }],
    messages: [{ role: "user", content: "Hi" }],
    max_tokens: 50,
    temperature: 0.5,
    top_p: 0.9,
    stop_sequences: ["END"],
    stream: true,
    metadata: { user_id: "u1" },
    tools: [{ name: "look", description: "Looks", input_schema: { type: "object" } }],
    tool_choice: { type: "any", disable_parallel_tool_use: true },
    thinking: { type: "enabled", budget_tokens: 10_000 },
  });
  assert.equal(model, "claude-x");
  assert.equal(stream, true);
  assert.deepEqual(messages, [{ role: "system", content: "Be brief\n\nBe kind" }, { role: "user", content: "Hi" }]);
  assert.deepEqual(wishes, {
    givesThoughts: true,
    clientTools: [{ name: "look", description: "Looks", parameters: { type: "object" } }],
    toolChoice: "required",
    parallelToolCalls: false,
    parameters: {
      max_tokens: 50,
      temperature: 0.5,
      top_p: 0.9,
      stop: ["END"],
      user: "u1",
      reasoning_effort: "medium",
      limit_holds_thinking: true,
    },
  });
  assert.deepEqual(ignored, []);
});

test("thinking, calls and their results keep their places, and a failed result stays one", () => {
  const { messages } = read({
    messages: [
      { role: "user", content: "Go" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "I look", signature: "s" },
          { type: "text", text: "Looking" },
          { type: "tool_use", id: "t1", name: "look", input: { at: 1 } },
          { type: "tool_use", id: "t2", name: "look", input: {} },
        ],
      },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "t1",
            content: [{ type: "text", text: "a" }, { type: "text", text: "b" }],
          },
          { type: "tool_result", tool_use_id: "t2", is_error: true, content: "no" },
          { type: "text", text: "And now?" },
        ],
      },
    ],
  });
  assert.deepEqual(messages.slice(1), [
    {
      role: "assistant",
      content: "Looking",
      tool_calls: [
        { id: "t1", type: "function", function: { name: "look", arguments: '{"at":1}' } },
        { id: "t2", type: "function", function: { name: "look", arguments: "{}" } },
      ],
      extra: { reasoning_content: "I look" },
    },
    { role: "tool", tool_call_id: "t1", content: "a\nb" },
    { role: "tool", tool_call_id: "t2", content: "no", is_error: true },
    { role: "user", content: "And now?" },
  ]);
});

test("a picture in a result follows it in the user's message, where every vendor takes it", () => {
  const { messages } = read(ofUser({
    type: "tool_result",
    tool_use_id: "t1",
    content: [{ type: "text", text: "shot" }, { type: "image", source: PNG }],
  }));
  assert.deepEqual(messages, [
    { role: "tool", tool_call_id: "t1", content: "shot" },
    {
      role: "user",
      content: [
        { type: "text", text: '[Postern] Of the result of the tool call "t1":' },
        { type: "image_url", image_url: { url: "data:image/png;base64,aWNv" } },
      ],
    },
  ]);
});

test("a tool that a search of the client found is named in words, where the vendor has no place for it", () => {
  const found = {
    type: "tool_result",
    tool_use_id: "t1",
    content: [{ type: "tool_reference", tool_name: "mcp__up__look" }],
  };
  for (const plain of [false, true]) {
    const { messages } = toMessageInput(ofUser(found), { plain, headers: new Headers() });
    const content = "This tool can be called from now on: mcp__up__look";
    assert.deepEqual(messages, [{ role: "tool", tool_call_id: "t1", content }]);
  }
});

test("documents become texts and files", () => {
  const { messages } = read(ofUser(
    { type: "document", title: "Notes", source: { type: "text", media_type: "text/plain", data: "a note" } },
    { type: "document", source: { type: "base64", media_type: "application/pdf", data: "JVBERi0=" } },
    { type: "image", source: { type: "url", url: "https://example.com/a.png" } },
    { type: "search_result", title: "T", source: "S", content: [{ type: "text", text: "found" }] },
  ));
  assert.deepEqual(messages, [{
    role: "user",
    content: [
      { type: "text", text: "Notes\na note" },
      { type: "file", file: { filename: "document.pdf", file_data: "data:application/pdf;base64,JVBERi0=" } },
      { type: "image_url", image_url: { url: "https://example.com/a.png" } },
      { type: "text", text: "T\nS\nfound" },
    ],
  }]);
});

test("what has no place is named, each once", () => {
  const cache = { cache_control: { type: "ephemeral" } };
  const { messages, wishes, ignored } = read({
    system: [{ type: "text", text: "x-anthropic-billing-header: cc_version=2; cch=1f;" }, {
      type: "text",
      text: "S",
      ...cache,
    }],
    messages: [{
      role: "user",
      content: [{ type: "text", text: "Hi", ...cache }, { type: "text", text: "you", ...cache }],
    }],
    tools: [{ name: "look", input_schema: {}, ...cache }, { type: "web_search_20250305", name: "web_search" }],
    top_k: 5,
    context_management: { edits: [] },
    thinking: { type: "adaptive" },
    output_config: { effort: "low" },
  });
  assert.deepEqual(messages, [{ role: "system", content: "S" }, { role: "user", content: "Hi\n\nyou" }]);
  assert.deepEqual(wishes.clientTools.map(({ name }) => name), ["look"]);
  assert.equal(wishes.parameters.reasoning_effort, "low");
  assert.deepEqual(ignored.toSorted(), [
    "context_management",
    "messages[].content[].cache_control",
    "system[].cache_control",
    "system[x-anthropic-billing-header]",
    "tools[].cache_control",
    "tools[web_search_20250305]",
    "top_k",
  ]);
});

test("in plain mode the body goes along as it came, with the headers of its format", () => {
  const body = {
    max_tokens: 1,
    model: "m",
    messages: [{ role: "user", content: [{ type: "text", text: "Hi", cache_control: null, later: 1 }] }],
    stop_sequences: null,
    later: { a: 1 },
  };
  const before = structuredClone(body);
  const { wishes: { parameters: { passed } }, ignored } = read(body, true, {
    "anthropic-beta": "one,two",
    "anthropic-version": "2023-06-01",
    "x-other": "1",
  });
  assert.deepEqual(passed, {
    body: {},
    changed: [],
    names: ["later", "messages[].content[].later"],
    sent: {
      format: "messages",
      body: before,
      headers: { "anthropic-beta": "one,two", "anthropic-version": "2023-06-01" },
    },
  });
  assert.deepEqual(ignored, []);
});

test("a body that is wrong is refused by the name of its field", () => {
  const file = { type: "image", source: { type: "url", url: "file:///etc/passwd" } };
  const rows: readonly (readonly [body: Json, param: string])[] = [
    [{ messages: [] }, "messages"],
    [ofUser({ type: "text" }), "messages[0].content[0].text"],
    [ofUser(file), "messages[0].content[0].source.url"],
    [
      ofUser({ type: "tool_result", tool_use_id: "t", content: [file] }),
      "messages[0].content[0].content[0].source.url",
    ],
    [ofUser({ type: "container_upload", file_id: "f" }), "messages[0].content[0]"],
    [ofUser({ type: "image", source: { type: "file", file_id: "f" } }), "messages[0].content[0]"],
    [{ ...ofUser(), tools: [{ name: "a" }, { name: "a" }] }, "tools[1].name"],
    [{ ...ofUser(), tools: [{ name: "a b" }] }, "tools[0].name"],
    [{ ...ofUser(), temperature: 2 }, "temperature"],
    [{ ...ofUser(), max_tokens: 0 }, "max_tokens"],
    [
      {
        ...ofUser(),
        tools: [{ type: "bash_20250124", name: "bash" }],
        tool_choice: { type: "tool", name: "bash" },
      },
      "tool_choice.name",
    ],
  ];
  for (const [body, param] of rows) assert.deepEqual(refusalOf(body), { code: "invalid_request", param });
});

test("in plain mode a block that nobody knows goes on, but no address of the model server's own disk", () => {
  assert.equal(refusalOf(ofUser({ type: "container_upload", file_id: "f" }), true), undefined);
  assert.deepEqual(refusalOf(ofUser({ type: "later", at: { url: "file:///etc/passwd" } }), true), {
    code: "invalid_request",
    param: "messages[0].content[0].at.url",
  });
});

test("thinking that the gateway has sealed goes back to its provider with the call, and no further", () => {
  const sealed = (text: string) => seal({ provider: "up", reasoning_details: [{ text }] });
  const call = { type: "tool_use", id: "t1", name: "look", input: {} };
  const content = [
    { type: "thinking", thinking: "Hm", signature: sealed("Hm") },
    { type: "thinking", thinking: "So", signature: sealed("So") },
    { type: "redacted_thinking", data: seal({ provider: "up", reasoning_details: "altered" }) },
    call,
  ];
  const body = { messages: [{ role: "user", content: "Go" }, { role: "assistant", content }] };
  const { messages: [, said], ignored } = read(body);
  const opaque = { up: { message: { reasoning_details: [{ text: "So" }] } } };
  assert.deepEqual([said?.role === "assistant" && said.opaque, ignored], [opaque, []]);
  const { wishes: { parameters: { passed } } } = read(body, true);
  const sent = passed?.sent?.body["messages"] as readonly { readonly content: unknown }[];
  assert.deepEqual(sent.at(-1)?.content, [call]);
});

test("thinking without a signature, as the gateway tells that of other vendors, does not go to the vendor", () => {
  const content = [{ type: "thinking", thinking: "Hm", signature: "" }, { type: "text", text: "So" }];
  const signed = [{ type: "thinking", thinking: "Hm", signature: "sig" }, { type: "text", text: "So" }];
  const messages = [{ role: "user", content: "Go" }, { role: "assistant", content }, { role: "user", content: "On" }, {
    role: "assistant",
    content: signed,
  }, { role: "user", content: "And" }];
  const { wishes: { parameters: { passed } } } = read({ messages }, true);
  const sent = passed?.sent?.body["messages"] as readonly { readonly content: unknown }[];
  assert.deepEqual(sent.map((message) => message.content), ["Go", [{ type: "text", text: "So" }], "On", signed, "And"]);
});

test("as many blocks as a body has room for are read", () => {
  const many = <T>(block: T) => Array.from({ length: 150_000 }, () => block);
  const text = { type: "text", text: "a" };
  const { messages } = read(ofUser(
    { type: "document", source: { type: "content", content: many(text) } },
    { type: "tool_result", tool_use_id: "t", content: many({ type: "image", source: PNG }) },
  ));
  assert.equal(messages[0]?.role, "tool");
  assert.equal(messages[1]?.content?.length, 300_001);
  const results = read({ messages: [{ role: "user", content: many({ type: "tool_result", tool_use_id: "t" }) }] });
  assert.equal(results.messages.length, 150_000);
});

test("messages and tools that are checked by hand are those that the schema takes", () => {
  const some = [undefined, null, "", "text", 5, true, {}, [], [{}], "user", "a b"];
  const spoiled = (whole: Json) =>
    Object.keys(whole).flatMap((key) => some.map((value) => ({ ...whole, [key]: value })));
  const blocks: readonly Json[] = [
    { type: "text", text: "Hi", cache_control: {} },
    { type: "image", source: PNG },
    { type: "image", source: { type: "url", url: "https://x.test/a.png" } },
    { type: "document", source: { type: "text", data: "x" } },
    { type: "tool_use", id: "t", name: "look", input: {} },
    { type: "tool_result", tool_use_id: "t", content: "x", is_error: true },
    { type: "tool_result", tool_use_id: "t", content: [{ type: "text", text: "x" }, { type: "image", source: PNG }] },
    { type: "thinking", thinking: "x", signature: "s" },
    { type: "redacted_thinking", data: "x" },
    { type: "later" },
  ];
  const sources = spoiled(PNG).map((source) => ({ type: "image", source }));
  const messages = [
    ...spoiled({ role: "assistant", content: "Hi" }),
    ...[...blocks, ...blocks.flatMap(spoiled), ...sources].map((block) => ({ role: "user", content: [block] })),
  ];
  const usual = messages.filter(isUsualMessage);
  assert.ok(usual.length > 30 && usual.length < messages.length);
  const check = (body: Json) => checkBody(messagesSchema, { messages: [{ role: "user", content: "" }], ...body }, []);
  for (const message of usual) assert.doesNotThrow(() => check({ messages: [message] }), JSON.stringify(message));
  const tools = spoiled({ name: "look", type: "custom", description: "d", input_schema: {}, strict: true });
  const usualTools = tools.filter(isUsualMessageTool);
  assert.ok(usualTools.length > 10 && usualTools.length < tools.length);
  for (const tool of usualTools) assert.doesNotThrow(() => check({ tools: [tool] }), JSON.stringify(tool));
});

test("fields of the body that are checked by hand are those that the schema takes", () => {
  const given = [null, "", "text", 0, -1, 0.5, 1, 2, 1e300, true, {}, [], [{}], ["x"], [{ type: "text", text: "x" }], {
    user_id: 5,
  }, { user_id: "x" }];
  const isTaken = (read: () => unknown) => {
    try {
      return read() !== undefined;
    } catch {
      return false;
    }
  };
  let refusals = 0;
  for (const name of Object.keys(messagesSchema.entries)) {
    for (const value of given) {
      const body = () => structuredClone({ messages: [{ role: "user", content: "" }], [name]: value });
      const expected = isTaken(() => checkBody(messagesSchema, body(), []));
      assert.equal(isTaken(() => readMessagesBody(body())), expected, `${name}: ${JSON.stringify(value)}`);
      if (!expected) refusals++;
    }
  }
  assert.ok(refusals > 50);
  assert.equal(isTaken(() => readMessagesBody({ model: "m" })), false, "messages are required");
});

test("a refusal names the place of a block and of a tool that stand among others", () => {
  const hi = { role: "user", content: "Hi" };
  const wrong = { role: "user", content: [{ type: "text", text: "x" }, { type: "tool_result", content: "x" }] };
  assert.equal(refusalOf({ messages: [hi, hi, wrong, hi] })?.param, "messages[2].content[1].tool_use_id");
  assert.equal(
    refusalOf({ ...ofUser(), tools: [{ name: "a" }, { name: "a b" }, { name: "c" }] })?.param,
    "tools[1].name",
  );
  assert.equal(refusalOf({ messages: [] })?.param, "messages");
});
