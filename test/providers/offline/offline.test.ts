import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { CancelError } from "../../../lib/base/cancel.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import type { ProviderEvent } from "../../../lib/base/records/provider_event.ts";
import { SELF } from "../../../lib/providers/offline/small_talk.ts";
import { createOfflineProvider } from "../../../lib/providers/offline/offline.ts";
import type { ModelParameters, ProviderRequest, ToolDeclaration } from "../../../lib/providers/provider.ts";
import { anyCharacter } from "../../support/any_character.ts";

const tool = (name: string, first: string): ToolDeclaration => ({
  name,
  description: `Does ${name}. In full.`,
  parameters: { type: "object", properties: { [first]: { type: "string" } }, additionalProperties: false },
});
const READ_TOOLS = [
  tool("content_search", "pattern"),
  tool("glob_search", "pattern"),
  tool("read_file", "path"),
  tool("memory_recall", "query"),
];
/** Sunday, 22 November 2026, 12:00 UTC */
const NOW = 1_795_348_800_000;
const user = (content: string): Message => ({ role: "user", content });

interface Turn {
  readonly arrays: readonly (readonly ProviderEvent[])[];
  readonly text: string;
  readonly calls: readonly { readonly id: string; readonly name: string; readonly input: unknown }[];
  readonly finish: Extract<ProviderEvent, { type: "finish" }>;
}

async function turn(messages: readonly Message[], options: Partial<ProviderRequest> = {}): Promise<Turn> {
  const request: ProviderRequest = { model: "assistant", messages, tools: READ_TOOLS, parameters: {}, ...options };
  const arrays: (readonly ProviderEvent[])[] = [];
  const signal = new AbortController().signal;
  for await (const events of createOfflineProvider({ now: () => NOW }).stream(request, { signal })) arrays.push(events);
  const events = arrays.flat();
  const finish = events.at(-1);
  assert.ok(finish?.type === "finish");
  return {
    arrays,
    text: events.map((event) => (event.type === "text_delta" ? event.delta : "")).join(""),
    calls: events.flatMap((event) =>
      event.type === "tool_call_delta"
        ? [{ id: event.call_id ?? "", name: event.name ?? "", input: JSON.parse(event.arguments_delta) }]
        : []
    ),
    finish,
  };
}

/** The messages after a turn whose calls were answered with `outputs`, in order. */
function answered(messages: readonly Message[], { calls }: Turn, outputs: Readonly<Record<string, string>>): Message[] {
  return [
    ...messages,
    {
      role: "assistant",
      content: null,
      tool_calls: calls.map(({ id, name, input }) => ({
        id,
        type: "function" as const,
        function: { name, arguments: JSON.stringify(input) },
      })),
    },
    ...calls.map(({ id, name }): Message => ({ role: "tool", tool_call_id: id, content: outputs[name] ?? "" })),
  ];
}

describe("offline provider, searching", () => {
  const question = [user("How is the kettle switch burned?")];
  const LINES = { pattern: "\\bkettl|\\bswitch|\\bburn", case_insensitive: true, limit: 400 };

  test("asks the workspace and memory for the question's own words", async () => {
    const { calls, finish, text } = await turn(question);
    assert.deepEqual(calls.map(({ name, input }) => ({ name, input })), [
      { name: "content_search", input: { ...LINES, glob: "**/*.{md,mdx,markdown,txt,rst,adoc}" } },
      { name: "content_search", input: LINES },
      { name: "memory_recall", input: { query: "kettle switch burned", limit: 5 } },
    ]);
    assert.equal(finish.finish_reason, "tool_calls");
    assert.equal(text, "");
  });

  test("reads the files that hold most of the words, prose first, and quotes their best paragraphs", async () => {
    const first = answered(question, await turn(question), {
      content_search: "src/a.ts:3: kettle switch\nb.md:9: kettle\na.md:2: the kettle switch is burned\nc.md:1: nothing",
      memory_recall: "kettle: bought on Monday",
    });
    const second = await turn(first);
    assert.deepEqual(second.calls.map(({ name, input }) => [name, input]), [
      ["read_file", { path: "a.md" }],
      ["read_file", { path: "b.md" }],
      ["read_file", { path: "src/a.ts" }],
    ]);
    const text =
      "# Kitchen\n\nAbout cups.\n\n## Heating\n\nThe kettle switch is burned by dry heating.\n\n## Other\n\nTea.";
    const { text: said, finish } = await turn([...first, ...answered(first, second, { read_file: text }).slice(-4)]);
    assert.match(said, /^From "Heating", a\.md:7\n\nThe kettle switch is burned by dry heating\./);
    assert.match(said, /In memory:\n\n {4}kettle: bought on Monday/);
    assert.match(said, /no language model is connected, and \/help says how to connect one\.$/);
    assert.doesNotMatch(said, /About cups|Tea|tokens/);
    assert.equal(finish.finish_reason, "stop");
  });

  test("where files cannot be read, quotes the lines of the search", async () => {
    const tools = READ_TOOLS.filter(({ name }) => name !== "read_file");
    const lines = "a.md:1: a subkettle\nb.md:2: the kettle, a switch";
    const first = await turn(question, { tools });
    const { text } = await turn(answered(question, first, { content_search: lines, memory_recall: "No matches" }), {
      tools,
    });
    assert.match(text, /^From b\.md:2\n\nthe kettle, a switch/);
    assert.doesNotMatch(text, /subkettle/);
  });

  test("says in one sentence that it found nothing", async () => {
    const first = await turn(question);
    const { text } = await turn(answered(question, first, { content_search: "No matches", memory_recall: "" }));
    assert.equal(
      text,
      "I cannot answer that: no language model is connected (/help says how), and I found nothing about " +
        '"kettle", "switch", "burned" in this folder, in memory or in Postern\'s documentation.',
    );
  });

  test("never quotes the question itself, nor the result of a tool that failed", async () => {
    const messages = [user("How is the kettle switch burned?")];
    const first = answered(messages, await turn(messages), {
      content_search: "a.md:1: kettle switch",
      memory_recall: "",
    });
    const second = await turn(first);
    const own = answered(first, second, { read_file: "# Questions\n\n- How is the kettle switch burned?\n" });
    assert.match((await turn(own)).text, /^I cannot answer that/);
    const failed = answered(first, second, { read_file: 'Cannot read "a.md": the kettle switch is burned' })
      .map((message) => message.role === "tool" ? { ...message, is_error: true as const } : message);
    assert.match((await turn(failed)).text, /^I cannot answer that/);
  });

  test("prose comes before a program that holds the same words, a program where there is no prose", async () => {
    const messages = [user("kettle_switch limit")];
    const first = answered(messages, await turn(messages), {
      content_search: "a.md:1: kettle_switch limit\nb.ts:1: kettle_switch",
    });
    const second = await turn(first);
    const [prose, code] = ["The kettle_switch has a limit of 5.", "const kettle_switch = limit;"];
    const reply = (files: readonly string[]): Message[] => [
      ...answered(first, second, {}).slice(0, -second.calls.length),
      ...second.calls.map(({ id }, at): Message => ({ role: "tool", tool_call_id: id, content: files[at] ?? "" })),
    ];
    assert.match((await turn(reply([prose, code]))).text, /^From a\.md:1\n\nThe kettle_switch has/);
    assert.match((await turn(reply(["", code]))).text, /^From b\.ts:1\n\n```\nconst kettle_switch/);
  });

  test("reads a file that is named and looks for it by name", async () => {
    const messages = [user("What does README.md say?")];
    const first = await turn(messages);
    assert.deepEqual(first.calls.map(({ name, input }) => ({ name, input })), [
      { name: "read_file", input: { path: "README.md" } },
      { name: "glob_search", input: { pattern: "**/README.md", limit: 20 } },
    ]);
    const lines = Array.from({ length: 50 }, (_, i) => `line ${i + 1}`).join("\n");
    const { text } = await turn(answered(messages, first, { read_file: lines, glob_search: "README.md" }));
    assert.match(
      text,
      /^README\.md:\n\n {4}line 1\n[\s\S]* {4}line 40\n\n\(10 more lines: \/read_file README\.md shows them\)/,
    );
  });

  test("lists files when asked which there are", async () => {
    const { calls } = await turn([user("What files are here?")]);
    assert.deepEqual(calls.map(({ name }) => name), ["glob_search"]);
  });

  test("calls no tool it does not know, and none that is off", async () => {
    const { calls, text } = await turn(question, { tools: [tool("memory_recall", "query"), tool("rm_rf", "path")] });
    assert.deepEqual(calls.map(({ name }) => name), ["memory_recall"]);
    assert.equal(text, "");
    const none = await turn(question, { toolChoice: "none" });
    assert.deepEqual(none.calls, []);
    assert.match(none.text, /^I cannot answer that: no language model is connected/);
  });

  test("escapes what would be a pattern", async () => {
    const { calls } = await turn([user("version 1.2.3 x_y über")]);
    assert.deepEqual(calls[0]?.input, {
      pattern: "\\bversion|\\b1\\.2\\.3|\\bx_y|über",
      case_insensitive: true,
      limit: 400,
      glob: "**/*.{md,mdx,markdown,txt,rst,adoc}",
    });
  });
});

describe("offline provider, commands", () => {
  test("passes a JSON object on as it is", async () => {
    const { calls } = await turn([user('/read_file {"path": "a.txt", "start_line": 2}')]);
    assert.deepEqual(calls[0]?.input, { path: "a.txt", start_line: 2 });
  });

  test("reads the last part of the message: those before it are context", async () => {
    const parts = [{ type: "text", text: "/tools" }, { type: "text", text: "/read_file a.txt" }] as const;
    const { calls } = await turn([{ role: "user", content: [...parts] }]);
    assert.deepEqual(calls.map(({ name, input }) => ({ name, input })), [{
      name: "read_file",
      input: { path: "a.txt" },
    }]);
  });

  test("puts other text into the property that stands first", async () => {
    const { calls } = await turn([user("/read_file docs/a b.txt")]);
    assert.deepEqual(calls.map(({ name, input }) => ({ name, input })), [{
      name: "read_file",
      input: { path: "docs/a b.txt" },
    }]);
    assert.deepEqual((await turn([user("/read_file {broken")])).calls[0]?.input, { path: "{broken" });
    assert.deepEqual((await turn([user("/read_file")])).calls[0]?.input, {});
  });

  test("reaches a tool of the client too, and shows its result unchanged", async () => {
    const messages = [user("/get_weather Oslo")];
    const tools = [...READ_TOOLS, tool("get_weather", "city")];
    const first = await turn(messages, { tools });
    assert.deepEqual(first.calls[0]?.input, { city: "Oslo" });
    const { text } = await turn(answered(messages, first, { get_weather: "  4 degrees\n\nand rain" }), { tools });
    assert.equal(text, "get_weather:\n\n```\n  4 degrees\n\nand rain\n```");
    const lines = await turn(answered(messages, first, { get_weather: "4 degrees ```\n" }), { tools });
    assert.equal(lines.text, "get_weather:\n\n````\n4 degrees ```\n````");
  });

  test("names the tools there are when asked for another", async () => {
    const { text, calls } = await turn([user("/shell ls")]);
    assert.deepEqual(calls, []);
    assert.match(text, /^There is no tool "shell" in this request\./);
    assert.match(text, /- \/content_search: Does content_search\.\n/);
  });

  test("calls the tool that tool_choice names", async () => {
    const { calls } = await turn([user("Oslo")], {
      tools: [tool("get_weather", "city")],
      toolChoice: { name: "get_weather" },
    });
    assert.deepEqual(calls[0]?.input, { city: "Oslo" });
  });

  test("a greeting and /help explain how to connect a model", async () => {
    for (const content of ["Hello!", "help", "/help", "", "Hi there"]) {
      const { text } = await turn([user(content)]);
      assert.match(text, /OPENAI_API_KEY[\s\S]*Ollama[\s\S]*\[provider\]/, content);
    }
  });

  test("call ids differ within a turn and between turns, and are the same for the same request", async () => {
    const messages = [user("pairing code")];
    const first = await turn(messages);
    const again = [...answered(messages, first, {}), user("pairing code")];
    const ids = [...first.calls, ...(await turn(again)).calls].map(({ id }) => id);
    assert.equal(new Set(ids).size, 6);
    assert.deepEqual((await turn(messages)).calls, first.calls);
  });
});

describe("offline provider, the reply's form", () => {
  const hello = [user("hello")];
  const withParameters = (parameters: ModelParameters) => turn(hello, { parameters });

  test("comes in many small deltas, one an array, and is the same each time", async () => {
    const first = await turn(hello);
    assert.ok(first.arrays.length > 10);
    assert.ok(first.arrays.every((events) => events.length === 1));
    assert.deepEqual((await turn(hello)).arrays, first.arrays);
  });

  test("is cut after white space where there is some, and never within a character", async () => {
    const messages = [user("/read_file a")];
    const called = await turn(messages);
    const deltasOf = async (output: string) => {
      const { arrays } = await turn(answered(messages, called, { read_file: output }));
      return arrays.flat().flatMap((event) => (event.type === "text_delta" ? [event.delta] : []));
    };
    const words = await deltasOf("seven letters of it ".repeat(20));
    assert.ok(
      words.slice(0, -1).every((delta) => /^\S[\s\S]{23,47}$/.test(delta) && /\s$/.test(delta)),
      words.join("|"),
    );
    for (let before = 0; before < 48; before++) {
      const deltas = await deltasOf(`${"a".repeat(before)}\u{1F600}${"a".repeat(48)}`);
      assert.ok(deltas.every((delta) => delta.isWellFormed() && delta.length <= 49), `${before}: ${deltas.join("|")}`);
    }
  });

  test("echoes any model name and estimates usage", async () => {
    const { finish, text } = await turn(hello, { model: "gpt-anything" });
    assert.equal(finish.model, "gpt-anything");
    assert.equal(finish.usage?.estimated, true);
    assert.equal(finish.usage?.completion_tokens, Math.ceil(new TextEncoder().encode(text).length / 4));
    assert.equal(finish.usage?.total_tokens, finish.usage!.prompt_tokens + finish.usage!.completion_tokens);
  });

  test("stops at max_tokens with reason length, on a whole character", async () => {
    const { text, finish } = await withParameters({ max_tokens: 5 });
    assert.equal(new TextEncoder().encode(text).length, 20);
    assert.equal(finish.finish_reason, "length");
    const messages = [user("/read_file a")];
    const read = answered(messages, await turn(messages), { read_file: "\u{1F600}".repeat(40) });
    const cut = await turn(read, { parameters: { max_completion_tokens: 5 } });
    assert.equal(cut.text, "read_file:\n\n```\n\u{1F600}");
  });

  test("ends before the first stop sequence", async () => {
    for (const stop of [["cannot", " model", ""], " model"]) {
      const { text, finish } = await withParameters({ stop });
      assert.equal(text, `${SELF} I have no language`);
      assert.equal(finish.finish_reason, "stop");
    }
  });

  test("wraps the answer as a JSON object when asked to", async () => {
    const { text } = await withParameters({ response_format: { type: "json_object" } });
    assert.match(JSON.parse(text).answer, /offline assistant/);
  });

  test("refuses a JSON Schema instead of pretending", async () => {
    await assert.rejects(withParameters({ response_format: { type: "json_schema", json_schema: {} } }), {
      code: "provider_rejected",
      status: 400,
      param: "response_format",
    });
  });

  test("aborts between two deltas", async () => {
    const controller = new AbortController();
    const request: ProviderRequest = { model: "x", messages: hello, tools: [], parameters: {} };
    const seen: unknown[] = [];
    await assert.rejects(async () => {
      for await (
        const events of createOfflineProvider({ now: () => NOW }).stream(request, { signal: controller.signal })
      ) {
        seen.push(events);
        controller.abort(new CancelError("client_gone"));
      }
    }, { name: "CancelError", reason: "client_gone" });
    assert.equal(seen.length, 1);
  });

  test("whatever a tool answers, the deltas join to well-formed text of bounded length", async () => {
    const messages = [user("alpha beta")];
    const first = await turn(messages);
    const output = fc.string({ unit: anyCharacter, maxLength: 400 }).map((line) => `a:1: alpha ${line}\n${line}`);
    await fc.assert(
      fc.asyncProperty(output, async (content_search) => {
        const { text, arrays } = await turn(
          answered(messages, first, { content_search, memory_recall: content_search }),
        );
        assert.ok(text.isWellFormed());
        assert.ok(arrays.flat().every((event) => event.type !== "text_delta" || event.delta.isWellFormed()));
      }),
      { numRuns: 100 },
    );
  });

  test("lists its one model", async () => {
    const models = await createOfflineProvider({ now: () => NOW }).listModels(new AbortController().signal);
    assert.deepEqual(models, [{ id: "assistant", object: "model", created: 0, owned_by: "postern" }]);
  });
});
