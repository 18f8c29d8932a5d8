import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { jsonOf, withWorld } from "../support/world.ts";

const PAGE = readFileSync(join(PROJECT_ROOT, "docs/responses.md"), "utf8");
const ROWS = [...PAGE.matchAll(/^\| `(\w+)` \| (\w+ ?o?n?)\b.*? \| (\w+ ?o?n?)\b.*? \|$/gm)].map((
  [, field = "", ...words],
) => ({
  field,
  words: words.map((word) => word.trim()),
}));

/** Fields of the specification that the types of OpenAI's client do not have. */
const OF_SPECIFICATION = ["presence_penalty", "frequency_penalty"];

const TOOLS = [{ type: "function", name: "look" }];

/** A value of each field that asks for more than its default. */
const VALUES: Readonly<Record<string, unknown>> = {
  background: true,
  include: ["postern:tool_calls"],
  input: "Hi",
  model: "plain/up/upstream-model",
  max_output_tokens: 20,
  max_tool_calls: 2,
  metadata: { a: "b" },
  parallel_tool_calls: false,
  presence_penalty: 1,
  frequency_penalty: 1,
  prompt: { id: "pmpt_1" },
  reasoning: { effort: "low" },
  store: true,
  stream: true,
  stream_options: { include_obfuscation: true },
  temperature: 0.5,
  text: { format: { type: "json_object" } },
  tool_choice: "required",
  tools: TOOLS,
  top_logprobs: 2,
  top_p: 0.5,
  truncation: "auto",
};

test("docs/responses.md has a row for each field of OpenAI's client and of the specification", () => {
  const types = readFileSync(join(PROJECT_ROOT, "node_modules/openai/resources/responses/responses.d.ts"), "utf8");
  const [, body = ""] = /export interface ResponseCreateParamsBase \{(.*?)^\}/ms.exec(types) ?? [];
  const fields = [...body.matchAll(/^ {4}(\w+)\?:/gm)].map(([, field = ""]) => field);
  assert.ok(fields.length > 20, `${fields.length} fields were found`);
  assert.deepEqual(ROWS.map(({ field }) => field), [...fields, ...OF_SPECIFICATION].sort());
});

test("what docs/responses.md says of each field is what becomes of it", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const { call } = await world.gateway({ config: { providers: { up: { base_url: upstream.baseUrl } } } });
    for (const { field, words } of ROWS) {
      for (const [at, word] of words.entries()) {
        const model = at === 0 ? "plain/up/upstream-model" : "up/upstream-model";
        const body = { model, input: "Hi", tools: TOOLS, [field]: VALUES[field] ?? "value" };
        if (STATEFUL.has(field)) {
          const before = await jsonOf(call("/v1/responses", { body: { model: "up/upstream-model", input: "Hi" } }));
          const { id, conversation } = before as { readonly id: string; readonly conversation: unknown };
          Object.assign(body, { [field]: field === "conversation" ? conversation : id });
        }
        if (field === "model") body.model = model;
        const turns = upstream.turns.length;
        const reply = await call("/v1/responses", { body });
        const ignored = (reply.headers.get("x-postern-ignored") ?? "").split(", ");
        const said = `${field}, ${model}: ${await reply.text()}`;
        const isNamed = ignored.some((name) => name === field || name.startsWith(`${field}.`));
        if (word === "refused") {
          assert.equal(reply.status, 400, said);
          assert.match(said, new RegExp(`"param":"${field}"`));
          continue;
        }
        assert.equal(reply.status, 200, said);
        assert.equal(isNamed, word === "ignored", said);
        assert.ok(["honoured", "handed on", "ignored"].includes(word), word);
        // A field that is handed on reaches the model's server
        if (word === "honoured") continue;
        const sent = Object.keys(upstream.turns[turns]?.json as object);
        const name = NAMES[field] ?? field;
        if (word === "handed on") assert.ok(sent.includes(name), `${field}: ${sent}`);
        if (word === "ignored") assert.ok(!sent.includes(name) || field.startsWith("stream"), `${field}: ${sent}`);
      }
    }
  }));

/** Fields whose value is a thing that is stored. */
const STATEFUL: ReadonlySet<string> = new Set(["previous_response_id", "conversation"]);

/** Names of fields in the format of chat completions, where they differ. */
const NAMES: Readonly<Record<string, string>> = {
  max_output_tokens: "max_tokens",
  reasoning: "reasoning_effort",
  text: "response_format",
};
