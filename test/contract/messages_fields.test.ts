import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { toMessageInput } from "../../handlers/wire/messages/to_message_input.ts";

const ROOT = join(import.meta.dirname, "../..");
const TYPES = readFileSync(join(ROOT, "node_modules/@anthropic-ai/sdk/resources/messages/messages.d.ts"), "utf8");
const PAGE = readFileSync(join(ROOT, "docs/messages.md"), "utf8");

/** Returns the words of the page for each name in one of its tables. */
function rowsOf(head: string): ReadonlyMap<string, string> {
  const [, table = ""] = PAGE.split(`| ${head} | what becomes of it |\n|---|---|\n`);
  const [rows = ""] = table.split("\n\n");
  return new Map([...rows.matchAll(/^\| `(\w+)` \| (.+) \|$/gm)].map(([, name = "", what = ""]) => [name, what]));
}

/** Names of fields that the package's type of a request has. */
function fieldsOfTypes(): readonly string[] {
  const [, body = ""] = /^export interface MessageCreateParamsBase \{\n([^]*?)^\}/m.exec(TYPES) ?? [];
  return [...body.matchAll(/^ {4}(\w+)\??:/gm)].map(([, name = ""]) => name);
}

/** A value that makes sense for each field that is honoured. */
const SAMPLES: Readonly<Record<string, unknown>> = {
  model: "m",
  messages: [{ role: "user", content: "Hi" }],
  max_tokens: 10,
  system: "S",
  stream: true,
  stop_sequences: ["END"],
  temperature: 0.5,
  top_p: 0.5,
  top_k: 5,
  tools: [{ name: "look", input_schema: {} }],
  tool_choice: { type: "auto" },
  thinking: { type: "adaptive" },
  output_config: { format: { type: "json_schema", schema: {} } },
  metadata: { user_id: "u" },
};

const read = (body: Readonly<Record<string, unknown>>) =>
  toMessageInput({ messages: [{ role: "user", content: "Hi" }], ...body }, { plain: false, headers: new Headers() });

test("the page has a row for each field of the package's types", () => {
  const fields = fieldsOfTypes();
  assert.ok(fields.length > 10 && fields.includes("messages"));
  const rows = rowsOf("field");
  assert.deepEqual(fields.filter((name) => !rows.has(name)), []);
});

test("a field becomes what its row says", () => {
  const bare = read({});
  for (const [name, what] of rowsOf("field")) {
    const told = read({ [name]: SAMPLES[name] ?? { any: 1 } });
    assert.match(what, /^(?:honoured|left out)/, name);
    assert.equal(told.ignored.includes(name), what.startsWith("left out"), name);
    if (what.startsWith("honoured") && name !== "messages" && name !== "tool_choice") {
      assert.notDeepEqual(told, bare, name);
    }
  }
});

test("the page has a row for each block of a user's message and of the model's own that a client sends back", () => {
  const [, union = ""] = /^export type ContentBlockParam = (.+);$/m.exec(TYPES) ?? [];
  const own = ["Text", "Image", "Document", "SearchResult", "Thinking", "RedactedThinking", "ToolUse", "ToolResult"];
  const types = union.split(" | ").map((name) => name.replace("BlockParam", ""));
  assert.deepEqual(own.filter((name) => !types.includes(name)), []);
  const rows = [...rowsOf("block").keys()].toSorted();
  assert.deepEqual(rows, own.map((name) => name.replaceAll(/(?!^)[A-Z]/g, "_$&").toLowerCase()).toSorted());
});
