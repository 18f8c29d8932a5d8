import assert from "node:assert/strict";
import { test } from "node:test";
import { Validator } from "@cfworker/json-schema";
import fc from "fast-check";
import { ToolError } from "../../lib/base/errors.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import type { JsonSchema, ObjectJsonSchema } from "../../lib/base/json.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import { TOOLS } from "../contract/tools.ts";
import { toolBytes } from "../support/prompt_bytes.ts";
import { createToolBench } from "../support/tool_bench.ts";
import { schemaFaults } from "./schema_faults.ts";
import { withWorkspace } from "../support/workspace.ts";
import { triesOf } from "../support/seeded_random.ts";

/** Tools whose calls may be made at any gateway of a cluster: they need records and other machines alone. */
const ANYWHERE = [
  "agents_ipc",
  "ask_user",
  "composio",
  "cron_add",
  "cron_list",
  "cron_pause",
  "cron_remove",
  "cron_resume",
  "cron_update",
  "delegate",
  "delegate_coordination_status",
  "memory_forget",
  "memory_recall",
  "memory_store",
  "model_routing_config",
  "proxy_config",
  "pushover",
  "schedule",
  "subagent_list",
  "subagent_manage",
  "subagent_spawn",
  "task_plan",
  "tool_search",
  "url_validation",
  "web_fetch",
  "web_search",
];

/**
 * Calls whose access is wider than `read`, that are made again after a crash: they only look, or do no more the second time. A person is asked
 * about any other that was cut off.
 */
const MADE_AGAIN: Readonly<Record<string, readonly Readonly<Record<string, unknown>>[]>> = {
  agents_ipc: [{ op: "list" }],
  apply_patch: [{ patch: "*** Begin Patch\n*** Delete File: notes.txt\n*** End Patch", dry_run: true }],
  file_edit: [{ path: "notes.txt", edits: [{ old_text: "one", new_text: "two" }], dry_run: true }],
  mcp_prompt: [{}, { server: "files", name: "look" }],
  mcp_resource: [{}, { server: "files", uri: "file:///notes.txt" }],
  memory_forget: [{ key: "colour" }],
  process_tool: [{ op: "list" }, { op: "output", id: "1" }, { op: "kill", id: "1" }],
  task_plan: [
    { op: "list" },
    { op: "create", tasks: ["Open the gate"] },
    { op: "update", id: "1", status: "completed" },
    { op: "delete" },
  ],
  write_file: [{ path: "notes.txt", content: "text", dry_run: true }],
};
/** Calls of the same tools that nobody makes again. */
const MADE_ONCE: typeof MADE_AGAIN = {
  agents_ipc: [
    { op: "send", from: "a", to: "b", payload: "Begin" },
    { op: "recv", to: "b" },
    { op: "clear" },
  ],
  apply_patch: [{ patch: "*** Begin Patch\n*** Delete File: notes.txt\n*** End Patch" }],
  file_edit: [{ path: "notes.txt", edits: [{ old_text: "one", new_text: "two" }], dry_run: false }],
  process_tool: [{ op: "start", command: "ls" }],
  task_plan: [{ op: "add", title: "Open the gate" }],
  write_file: [{ path: "notes.txt", content: "text" }],
};

for (const [isRepeatable, table] of [[true, MADE_AGAIN], [false, MADE_ONCE]] as const) {
  test(`a call that was cut off is made again when that does no more: ${isRepeatable ? "these are" : "these are not"}`, () => {
    for (const [name, inputs] of Object.entries(table)) {
      const tool = BUILTIN_TOOLS.find((tool) => tool.name === name) ?? assert.fail(`There is no tool "${name}"`);
      for (const input of inputs) {
        const prepared = tool.prepare(JSON.stringify(input));
        assert.equal(prepared.repeatable, isRepeatable, `${name} ${JSON.stringify(input)}`);
      }
    }
  });
}

test("the tools are those of the table", () => {
  assert.deepEqual(BUILTIN_TOOLS.map((tool) => tool.name).sort(), Object.keys(TOOLS).sort());
});

test("with the default configuration exactly the tools that are enabled always or by default are on", () => {
  const config = defaultConfig();
  const on = BUILTIN_TOOLS.filter((tool) => tool.enabled === "always" || tool.enabled(config)).map((tool) => tool.name);
  assert.deepEqual(on.sort(), Object.keys(TOOLS).filter((name) => TOOLS[name]?.enabled !== "when configured").sort());
});

test("a tool that reaches anything of this machine says so", () => {
  const anywhere = BUILTIN_TOOLS.filter(({ local }) => !local).map(({ name }) => name);
  assert.deepEqual(anywhere.sort(), ANYWHERE);
});

test("all tools together cost a turn less than 32.5 kB", () => {
  const bytes = BUILTIN_TOOLS.reduce((sum, tool) => sum + toolBytes(tool), 0);
  assert.ok(bytes <= 32_500, `${bytes} bytes`);
});

test("paths in the effects of a tool that reads or writes files are relative to that tool's own root", () => {
  const roots = { read_file: [] as string[], write_file: [] as string[] };
  for (const tool of BUILTIN_TOOLS) {
    const { effects } = tool.prepare(JSON.stringify(TOOLS[tool.name]?.sample ?? {}));
    if (effects.root !== undefined && effects.paths !== undefined) roots[effects.root].push(tool.name);
  }
  assert.deepEqual(roots.read_file.sort(), [
    "content_search",
    "docx_read",
    "glob_search",
    "image_info",
    "pdf_read",
    "read_file",
  ]);
  assert.deepEqual(roots.write_file.sort(), ["apply_patch", "file_edit", "http_request", "screenshot", "write_file"]);
});

test("bad input comes back from the executor as an error result, and nobody is asked", () =>
  withWorkspace({}, async ({ root }) => {
    const { call } = createToolBench({ root, config: { write_file: { enabled: true } } });
    const approver = () => assert.fail("nobody is asked");
    for (const { name, inputSchema } of BUILTIN_TOOLS) {
      const field = Object.keys(inputSchema?.properties ?? {})[0] ?? "";
      const inputs = [
        "",
        "{}x".repeat(4_000_000),
        `{"${field}":${"[".repeat(10_000)}${"]".repeat(10_000)}}`,
        `{"${field}":{"a":1}}`,
        `{"${field}":7}`,
        '{"colour":1}',
      ];
      for (const input of inputs) {
        const { ran, result } = await call(name, input, { approver });
        assert.deepEqual([ran, result.isError], [false, true], `${name} ${input.slice(0, 40)}`);
        assert.match(result.output, new RegExp(`^Cannot call "${name}": .*[^.]$`, "s"));
        assert.ok(result.output.length < 1500, "it repeats the input");
      }
    }
  }));

for (const tool of BUILTIN_TOOLS) {
  const row = TOOLS[tool.name];
  if (row === undefined) continue;
  const schema = schemaOf(tool);
  const optional = row.fields.filter((field) => field.endsWith("?")).map((field) => field.slice(0, -1));
  const required = row.fields.filter((field) => !field.endsWith("?"));
  const refusal = (input: unknown): ToolError => {
    try {
      tool.prepare(typeof input === "string" ? input : JSON.stringify(input));
    } catch (error) {
      assert.ok(error instanceof ToolError, String(error));
      assert.match(error.message, /^[A-Z].*[^.]$/s);
      assert.ok(error.message.length < 1000, "the message repeats the input");
      return error;
    }
    throw new assert.AssertionError({ message: `${tool.name} accepts ${JSON.stringify(input).slice(0, 100)}` });
  };

  test(`${tool.name}: access, fields and text form are the table's`, () => {
    assert.equal(tool.access, row.access);
    assert.equal(tool.enabled === "always", row.enabled === "always");
    assert.equal(tool.enabled === "always", tool.enabledBy === undefined);
    assert.deepEqual(Object.keys(schema.properties), [...row.fields.map((field) => field.replace("?", ""))]);
    assert.deepEqual([...schema.required ?? []].sort(), [...required].sort());
    const prepared = tool.prepare(JSON.stringify(row.sample));
    assert.equal(prepared.access, row.sampleAccess ?? row.access);
    assert.deepEqual(prepared.input, row.sample);
    assert.match(prepared.digest, /^[0-9a-f]{64}$/);
    if (row.textField !== undefined) {
      assert.equal(row.textField, Object.keys(schema.properties)[0]);
      const { textSample = "plain text" } = row;
      assert.deepEqual(tool.prepare(textSample).input, { [row.textField]: textSample });
    }
    if (row.textForm !== undefined) assert.deepEqual(tool.prepare(row.textForm.text).input, row.textForm.input);
  });

  test(`${tool.name}: the model is told of it in few bytes, and of every field`, () => {
    assert.ok(toolBytes(tool) <= row.maxBytes, `${toolBytes(tool)} bytes`);
    const told = tool.modelSchema ?? assert.fail("The model is told of the whole schema");
    assert.deepEqual(schemaFaults(told), []);
    assert.deepEqual(fieldsOf(told), fieldsOf(schema));
    const validator = validatorOf(told);
    assert.equal(validator.validate(row.sample).valid, true);
    assert.equal(validator.validate({ ...row.sample, unknown: 1 }).valid, false);
  });

  test(`${tool.name}: the schema is one that OpenAI, Anthropic and a validator take`, () => {
    assert.match(tool.name, /^[a-z][a-z0-9_]{0,63}$/);
    assert.ok(tool.description.length >= 20 && tool.description.length <= 1024);
    assert.deepEqual(schemaFaults(schema), []);
    assert.deepEqual(openPlaces(schema), row.open ?? []);
    const validator = validatorOf(schema);
    assert.equal(validator.validate(row.sample).valid, true);
    assert.equal(validator.validate({ ...row.sample, unknown: 1 }).valid, false);
    for (const field of required) assert.equal(validator.validate(without(row.sample, field)).valid, false, field);
  });

  test(`${tool.name}: bad input is a clear ToolError that names the field`, () => {
    const first = Object.keys(schema.properties)[0] ?? "";
    if (first === "") return assert.match(refusal("").message, /the input must be the JSON object \{\}/);
    assert.match(refusal("").message, new RegExp(`"${first}"`));
    const huge = refusal("x".repeat(10_000_000));
    assert.equal(huge.code, "input_too_large");
    assert.match(huge.message, new RegExp(`"${required[0] ?? first}"`));
    assert.equal(refusal(`{"${first}":"${"x".repeat(10_000_000)}"}`).code, "input_too_large");
    const deep = refusal(`{"${first}":${"[".repeat(5000)}${"]".repeat(5000)}}`);
    assert.match(deep.message, new RegExp(`"${first}" is nested deeper`));
    assert.match(refusal({ ...row.sample, colour: 1 }).message, /"colour" is not one of its fields: they are "/);
    for (const field of Object.keys(schema.properties)) {
      if (isOpenObject(schema.properties[field])) continue;
      assert.match(refusal({ ...row.sample, [field]: { no: 1 } }).message, new RegExp(`"${field}"`), field);
    }
    for (const field of required) {
      assert.match(refusal(without(row.sample, field)).message, new RegExp(`"${field}" is missing`), field);
      assert.match(refusal({ ...row.sample, [field]: null }).message, new RegExp(`"${field}"`), field);
    }
    if (row.textField === undefined) {
      for (const input of ["text", "[1]", '"text"', "{", "null", "1"]) {
        assert.equal(refusal(input).code, "invalid_input", input);
      }
    }
  });

  test(`${tool.name}: what the schema refuses is refused, naming the field, and what it takes is not refused by type`, () => {
    const validator = validatorOf(schema);
    const values: readonly unknown[] = [
      "",
      " ",
      0,
      -1,
      1.5,
      1e300,
      true,
      [],
      [""],
      [[]],
      [1],
      {},
      { a: 1 },
      "x".repeat(70_000),
    ];
    for (const field of Object.keys(schema.properties)) {
      for (const value of values) {
        const input = { ...row.sample, [field]: value };
        if (!validator.validate(input).valid) {
          const { code, message } = refusal(input);
          assert.equal(code, "invalid_input");
          assert.ok(message.includes(`"${field}`), `${field} = ${JSON.stringify(value).slice(0, 40)}: ${message}`);
        } else {
          // The fields of one operation and the meaning of a text are not in the schema
          const message = attempt(tool, JSON.stringify(input));
          assert.doesNotMatch(message, /must be (a )?(string|number|boolean|array|object)/i, field);
        }
      }
    }
  });

  test(`${tool.name}: null means absent in an optional field, and the order of fields changes nothing`, () => {
    const nulls = Object.fromEntries(optional.map((field) => [field, null]));
    const plain = Object.fromEntries(required.map((field) => [field, row.sample[field]]));
    const accepted = attempt(tool, JSON.stringify(plain));
    assert.equal(attempt(tool, JSON.stringify({ ...plain, ...nulls })), accepted);
    const reversed = Object.fromEntries(Object.entries(row.sample).reverse());
    assert.equal(tool.prepare(JSON.stringify(reversed)).digest, tool.prepare(JSON.stringify(row.sample)).digest);
    assert.equal(
      tool.prepare(`  ${JSON.stringify(row.sample)}\n`).digest,
      tool.prepare(JSON.stringify(row.sample)).digest,
    );
  });

  test(`${tool.name}: any input is a prepared call or a ToolError`, () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json(),
          fc.dictionary(fc.constantFrom("colour", ...Object.keys(schema.properties)), fc.jsonValue()),
        ),
        (input) => {
          try {
            const prepared = tool.prepare(typeof input === "string" ? input : JSON.stringify(input));
            if (row.sampleAccess === undefined) assert.equal(prepared.access, row.access);
          } catch (error) {
            assert.ok(error instanceof ToolError, String(error));
          }
        },
      ),
      { numRuns: triesOf(30) },
    );
  });

  if ("op" in schema.properties) {
    test(`${tool.name}: operation and action mean op`, () => {
      const { op, ...rest } = row.sample;
      for (const alias of ["operation", "action"]) {
        const prepared = tool.prepare(JSON.stringify({ [alias]: op, ...rest }));
        assert.equal(prepared.digest, tool.prepare(JSON.stringify(row.sample)).digest);
      }
      assert.match(refusal({ op: "explode" }).message, /"op" must be one of "/);
    });
  }
}

function schemaOf(tool: Tool): ObjectJsonSchema {
  assert.ok(tool.inputSchema !== undefined);
  return tool.inputSchema;
}

/** The validator's own schema type is wider than ours. */
function validatorOf(schema: JsonSchema): Validator {
  return new Validator(JSON.parse(JSON.stringify(schema)), "2020-12");
}

/** Takes any properties. */
function isOpenObject(schema: JsonSchema | undefined): boolean {
  const { type, additionalProperties } = schema as { readonly type?: unknown; readonly additionalProperties?: unknown };
  return type === "object" && additionalProperties !== false;
}

/** Returns the places of a schema that take any properties, such as `input` or `steps[].input`. */
function openPlaces(schema: JsonSchema, place = ""): string[] {
  const { properties = {}, items } = schema as {
    readonly properties?: Readonly<Record<string, JsonSchema>>;
    readonly items?: JsonSchema;
  };
  return [
    ...(isOpenObject(schema) ? [place] : []),
    ...Object.entries(properties).flatMap(([name, inner]) =>
      openPlaces(inner, place === "" ? name : `${place}.${name}`)
    ),
    ...(items === undefined ? [] : openPlaces(items, `${place}[]`)),
  ];
}

function without(sample: Readonly<Record<string, unknown>>, field: string): Record<string, unknown> {
  return Object.fromEntries(Object.entries(sample).filter(([name]) => name !== field));
}

/** The digest of a call, or the message it is refused with. */
function attempt(tool: Tool, input: string): string {
  try {
    return tool.prepare(input).digest;
  } catch (error) {
    return String(error);
  }
}

/** Names, types and descriptions of all fields, by their place. */
function fieldsOf(schema: JsonSchema, place = ""): readonly unknown[] {
  const { type, description, properties, items, required, enum: values, pattern } = schema as JsonSchema & {
    readonly properties?: Readonly<Record<string, JsonSchema>>;
    readonly items?: JsonSchema;
  };
  return [
    { place, type, description, required, values, pattern },
    ...Object.entries(properties ?? {}).flatMap(([name, field]) => fieldsOf(field, `${place}.${name}`)),
    ...(items === undefined ? [] : fieldsOf(items, `${place}[]`)),
  ];
}
