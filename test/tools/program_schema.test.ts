import assert from "node:assert/strict";
import { test } from "node:test";
import { toStandardJsonSchema } from "@valibot/to-json-schema";
import * as v from "valibot";
import { defineTool } from "../../handlers/mod.ts";
import { createTestGateway } from "../../handlers/testing/mod.ts";

const BASE = { description: "x", access: "read", outside: false } as const;
const planted = v.object({
  plant: v.pipe(v.string(), v.description("Name of the plant"), v.transform((name) => name.toUpperCase())),
  beds: v.optional(v.array(v.object({ row: v.pipe(v.number(), v.integer()) })), []),
});
const json = {
  type: "object",
  properties: {
    plant: { $ref: "#/$defs/name" },
    bed: { type: "object", properties: { row: { type: "integer" } } },
    beds: { type: "array", items: { $ref: "#/$defs/bed" } },
  },
  required: ["plant"],
  $defs: { name: { type: "string", minLength: 2 }, bed: { type: "object", properties: { row: { type: "integer" } } } },
};

async function withTools(tools: readonly ReturnType<typeof defineTool>[], use: (call: Call) => Promise<void>) {
  const gateway = await createTestGateway({ tools });
  try {
    await use(gateway.tools.call);
  } finally {
    await gateway.close();
  }
}
type Call = Awaited<ReturnType<typeof createTestGateway>>["tools"]["call"];

test("a tool takes a valibot schema, wrapped or bare, with its types, defaults and checks", async () => {
  const wrapped = defineTool({
    ...BASE,
    name: "wrapped",
    input: toStandardJsonSchema(planted),
    execute: ({ plant }) => plant,
  });
  const noWeeds = { value: "weed", issues: [{ message: "no weeds", path: ["plant"] }] };
  const picky = defineTool({
    ...BASE,
    name: "picky",
    input: { "~standard": { version: 1, vendor: "x", validate: () => noWeeds, jsonSchema: { input: () => json } } },
    execute: () => "",
  });
  const bare = defineTool({
    ...BASE,
    name: "bare",
    input: planted,
    execute: ({ plant, beds }) => ({ plant, rows: beds.map(({ row }) => row) }),
  });
  await withTools([wrapped, bare, picky], async (call) => {
    assert.equal((await call("wrapped", { plant: "bean" })).output, "BEAN");
    assert.match((await call("picky", { plant: "weed" })).output, /Cannot call "picky": "plant": no weeds/);
    assert.deepEqual((await call("bare", { plant: "bean", beds: [{ row: 1 }] })).data, { plant: "BEAN", rows: [1] });
    assert.deepEqual((await call("bare", { plant: "bean" })).data, { plant: "BEAN", rows: [] });
    const refused: readonly (readonly [object, RegExp])[] = [
      [{}, /"plant" is missing/],
      [{ plant: 1 }, /"plant" must be of type string/],
      [{ plant: "bean", bed: 1 }, /"bed" is not one of its fields/],
      [{ plant: "bean", beds: [{ row: 1, rwo: 2 }] }, /"beds\[0\]\.rwo" is not one of its fields/],
      [{ plant: "bean", beds: [{ row: 1.5 }] }, /"beds\[0\]\.row" must be of type integer/],
    ];
    for (const [input, message] of refused) {
      const { is_error, output } = await call("bare", { ...input });
      assert.equal(is_error, true, output);
      assert.match(output, message);
    }
  });
});

test("a tool takes a JSON Schema with definitions, and closes its objects", async () => {
  const tool = defineTool({ ...BASE, name: "plain", input: json, execute: (input) => input["plant"] });
  await withTools([tool], async (call) => {
    assert.equal((await call("plain", { plant: "bean", bed: { row: 1 } })).output, "bean");
    assert.match((await call("plain", { plant: "b" })).output, /"plant" must have a length of at least 2/);
    for (const [more, field] of [[{ bed: { rwo: 1 } }, "bed.rwo"], [{ beds: [{ rwo: 1 }] }, "beds[0].rwo"]] as const) {
      const { output } = await call("plain", { plant: "bean", ...more });
      assert.ok(output.includes(`"${field}" is not one of its fields`), output);
    }
  });
});

test("access may be a function of the input, and one that says nothing lets nothing run", async () => {
  const tool = defineTool({
    ...BASE,
    name: "either",
    input: v.object({ write: v.boolean() }),
    access: ({ write }) => write ? "write" : "read",
    execute: () => "done",
  });
  const wrong = defineTool({
    ...BASE,
    name: "wrong",
    input: json,
    access: () => "all" as "read",
    execute: () => "done",
  });
  await withTools([tool, wrong], async (call) => {
    assert.equal((await call("either", { write: false })).output, "done");
    assert.match((await call("either", { write: true })).approval_id ?? "", /^apr_/);
    const { is_error, output } = await call("wrong", { plant: "bean" });
    assert.deepEqual([is_error, /access\(\) must give one of/.test(output)], [true, true], output);
  });
});

test("what a tool returns is checked by its output", async () => {
  const output = v.object({ euros: v.number() });
  const good = defineTool({ ...BASE, name: "good", input: json, output, execute: () => ({ euros: 3 }) });
  const bad = defineTool({ ...BASE, name: "bad", input: json, output, execute: () => ({ euros: "3" }) });
  const text = { type: "string", maxLength: 3 };
  const long = defineTool({ ...BASE, name: "long", input: json, output: text, execute: () => "long" });
  await withTools([good, bad, long], async (call) => {
    assert.deepEqual((await call("good", { plant: "bean" })).data, { euros: 3 });
    assert.match((await call("bad", { plant: "bean" })).output, /Cannot use the result of "bad": "euros"/);
    assert.match((await call("long", { plant: "bean" })).output, /Cannot use the result of "long"/);
  });
});

interface Bed {
  readonly plant: string;
  readonly beds?: readonly Bed[] | undefined;
}

test("a tool takes and gives trees: a schema that refers to itself", async () => {
  const bed: v.GenericSchema<Bed> = v.object({
    plant: v.string(),
    beds: v.optional(v.array(v.lazy(() => bed))),
  });
  const count = ({ beds = [] }: Bed): number => beds.reduce((sum, inner) => sum + count(inner), 1);
  const tree = defineTool({
    ...BASE,
    name: "tree",
    input: v.object({ bed }),
    output: v.object({ count: v.number(), bed }),
    execute: ({ bed }) => ({ count: count(bed), bed }),
  });
  // zod names the whole of a schema by "#"
  const whole = { type: "object", properties: { plant: { type: "string" }, bed: { $ref: "#" } } };
  const self = defineTool({ ...BASE, name: "self", input: whole, output: whole, execute: ({ bed }) => bed });
  const grown = { plant: "bean", beds: [{ plant: "pea", beds: [{ plant: "leek" }] }, { plant: "kale" }] };
  await withTools([tree, self], async (call) => {
    assert.deepEqual((await call("tree", { bed: grown })).data, { count: 4, bed: grown });
    const wrong = { bed: { plant: "bean", beds: [{ plant: "pea", beds: [{ plant: 1 }] }] } };
    assert.match((await call("tree", wrong)).output, /"bed\.beds\[0\]\.beds\[0\]/);
    assert.deepEqual((await call("self", { bed: { plant: "a", bed: { plant: "b" } } })).data, {
      plant: "a",
      bed: { plant: "b" },
    });
    assert.match((await call("self", { bed: { plant: "a", bed: { plant: 1 } } })).output, /"bed\.bed\.plant"/);
  });
});

test("a schema that gives no JSON Schema is refused with the way out", () => {
  const define = (input: unknown) => () =>
    defineTool({ ...BASE, name: "x", input: input as typeof json, execute: () => "" });
  const standard = (more: object) => ({
    "~standard": { version: 1, vendor: "zod", validate: () => ({ value: 1 }), ...more },
  });
  assert.throws(
    define(standard({})),
    /take a release of "zod" that has "~standard"\.jsonSchema, or give a JSON Schema/,
  );
  assert.throws(define(v.object({ at: v.date() })), /its input cannot be written as JSON Schema/);
  assert.throws(define(undefined), /it needs a schema in input/);
  assert.throws(define("text"), /must be a Standard Schema or a JSON Schema/);
  assert.throws(define(v.string()), /the tool "x": its input cannot be used: its "type" must be "object"/);
  // The JSON Schema of others is taken as they give it, with the one target
  const seen: unknown[] = [];
  const jsonSchema = { input: (options: unknown) => (seen.push(options), json) };
  define(Object.assign(() => {}, standard({ jsonSchema })))();
  assert.deepEqual(seen, [{ target: "draft-2020-12" }]);
});
