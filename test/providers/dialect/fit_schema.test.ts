import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { JsonSchema } from "../../../lib/base/json.ts";
import { fitSchema } from "../../../lib/providers/dialect/fit_schema.ts";
import { DIALECTS } from "../../../lib/providers/dialect/schema_dialect.ts";
import { VendorForms } from "../../../lib/providers/vendors/vendor_forms.ts";
import { processorMs } from "../../support/processor_time.ts";
import { triesOf } from "../../support/seeded_random.ts";
import { misfit, refusals, type VendorRules, VENDORS_RULES } from "./dialect_rules.ts";

const VENDORS = Object.entries(VENDORS_RULES);
const ALL = VENDORS.map(([, rules]) => rules);

function fit(schema: JsonSchema, rules: VendorRules) {
  return fitSchema(schema, DIALECTS[new VendorForms(rules.target).of(rules.target.model).dialect]);
}

const rulesOf = (vendor: string): VendorRules => {
  const rules = VENDORS_RULES[vendor];
  assert.ok(rules);
  return rules;
};

/** Fits a schema for a vendor and checks it. */
function fitted(vendor: string, schema: JsonSchema): JsonSchema {
  const result = fit(schema, rulesOf(vendor)).schema ?? {};
  assert.deepEqual(refusals(result, rulesOf(vendor)), [], vendor);
  return result;
}

const object = (properties: Readonly<Record<string, unknown>>, more: JsonSchema = {}): JsonSchema => ({
  type: "object",
  properties,
  ...more,
});

test("a schema that a vendor takes stays as it is, in the same order", () => {
  const schema = object({
    path: { description: "Where", type: "string", maxLength: 20 },
    kinds: { type: "array", items: { type: "string", enum: ["a", "b"] }, minItems: 1 },
  }, { required: ["path"], additionalProperties: false });
  for (const rules of ALL.filter(({ textEnums }) => !textEnums)) {
    assert.equal(JSON.stringify(fit(schema, rules)), JSON.stringify({ schema, notes: "" }));
  }
});

describe("references", () => {
  const tree = {
    $schema: "http://json-schema.org/draft-07/schema#",
    type: "object",
    properties: { root: { $ref: "#/$defs/Node", description: "Top" } },
    $defs: {
      Node: object({ name: { type: "string" }, children: { type: "array", items: { $ref: "#/$defs/Node" } } }),
      Unused: { type: "string" },
    },
  };

  test("stay where they are taken, with the definitions that they name", () => {
    for (const vendor of ["openai", "anthropic"]) {
      const schema = fitted(vendor, tree) as Record<string, Record<string, unknown>>;
      assert.deepEqual(schema["properties"]?.["root"], { $ref: "#/$defs/Node", description: "Top" });
      assert.deepEqual(Object.keys(schema["$defs"] ?? {}), ["Node"]);
    }
  });

  test("are written out elsewhere, and a recursion is cut after two levels and says so", () => {
    for (const vendor of ["portable", "gemini"]) {
      const text = JSON.stringify(fitted(vendor, tree));
      assert.equal(text.match(/"name"/g)?.length, 2, text);
      assert.match(text, /the same form again, and so on/);
    }
  });

  test("at the top, to fields and to nothing are opened or told of", () => {
    const schema = {
      $ref: "#/definitions/Input",
      definitions: { Input: object({ a: { type: "integer" }, b: { $ref: "#/definitions/Input/properties/a" } }) },
    };
    const remote = object({ x: { $ref: "https://evil.test/schema.json" }, y: { $ref: "#/__proto__/a" } });
    for (const [vendor] of VENDORS) {
      const { properties } = fitted(vendor, schema) as { properties: Record<string, JsonSchema> };
      assert.equal(properties["b"]?.["type"], "integer", vendor);
      assert.match(JSON.stringify(fitted(vendor, remote)), /its form is defined elsewhere.*defined elsewhere/);
    }
  });

  test("that multiply end at the bound of nodes", () => {
    const defs = Object.fromEntries(
      Array.from({ length: 30 }, (_, index) => [
        `d${index}`,
        object({ a: { $ref: `#/$defs/d${index + 1}` }, b: { $ref: `#/$defs/d${index + 1}` } }, {
          allOf: [{ $ref: `#/$defs/d${index + 1}` }, { $ref: `#/$defs/d${index + 1}` }],
        }),
      ]),
    );
    const schema = { ...object({ x: { $ref: "#/$defs/d0" } }), $defs: { ...defs, d30: { type: "string" } } };
    for (const [vendor] of VENDORS) assert.ok(JSON.stringify(fitted(vendor, schema)).length <= 48_000, vendor);
  });
});

describe("unions at the top", () => {
  const forms = {
    type: "object",
    properties: { project: { type: "string" }, kind: { type: "string" } },
    required: ["project"],
    anyOf: [
      { properties: { kind: { const: "file" }, path: { type: "string" } }, required: ["kind", "path"] },
      { properties: { kind: { const: "page" }, url: { type: "string" } }, required: ["kind", "url"] },
    ],
  };

  test("are merged: all fields, those required that each form requires, and the forms in words", () => {
    for (const [vendor, rules] of VENDORS) {
      const schema = fitted(vendor, forms) as { properties: Record<string, JsonSchema>; required: readonly string[] };
      assert.deepEqual(Object.keys(schema.properties), ["project", "kind", "path", "url"], vendor);
      assert.deepEqual(schema.required, ["project", "kind"]);
      assert.deepEqual(schema.properties["kind"]?.["enum"], ["file", "page"]);
      assert.equal(fit(forms, rules).notes, "one of these forms: {kind, path} or {kind, url}");
    }
  });

  test("of allOf, oneOf, if and nothing else give an object", () => {
    const branch = (name: string) => object({ [name]: { type: "string" } });
    const schema = {
      allOf: [branch("a"), { oneOf: [branch("b"), branch("c")] }],
      if: { required: ["a"] },
      then: branch("d"),
      not: { required: ["z"] },
    };
    for (const [vendor, rules] of VENDORS) {
      assert.deepEqual(Object.keys(fitted(vendor, schema)["properties"] as object), ["a", "d", "b", "c"], vendor);
      assert.match(fit(schema, rules).notes, /not: \{"required":\["z"\]\}/);
    }
  });
});

test("what a dialect cannot say is in the description", () => {
  const schema = object({
    mail: { type: "string", description: "Address", format: "email", pattern: "\\S+@\\S+", maxLength: 5000 },
    code: { type: "integer", enum: [1, 2] },
    labels: { type: "object", patternProperties: { "^x-": { type: "string" } }, additionalProperties: false },
  });
  const portable = fitted("portable", schema)["properties"] as Record<string, JsonSchema>;
  assert.deepEqual(portable["mail"], {
    type: "string",
    description: 'Address (format: "email"; pattern: "\\\\S+@\\\\S+"; maxLength: 5000)',
  });
  assert.deepEqual(portable["labels"], {
    type: "object",
    description: '(patternProperties: {"^x-":{"type":"string"}})',
  });
  const gemini = fitted("gemini", schema)["properties"] as Record<string, JsonSchema>;
  assert.deepEqual(gemini["code"], { type: "integer", description: "(one of 1, 2)" });
});

test("null is a type, a branch or `nullable`, as the dialect has it", () => {
  const schema = object({
    a: { type: ["string", "null"] },
    b: { anyOf: [{ type: "integer" }, { type: "null" }], default: null, title: "B" },
    c: { type: ["string", "number"] },
    d: { type: "null" },
  });
  assert.deepEqual(fitted("gemini", schema)["properties"], {
    a: { type: "string", nullable: true },
    b: { type: "integer", nullable: true, description: "(default: null)" },
    c: { anyOf: [{ type: "string" }, { type: "number" }] },
    d: { type: "string", nullable: true },
  });
  assert.deepEqual(fitted("openai", schema)["properties"], {
    a: { type: ["string", "null"] },
    b: { anyOf: [{ type: "integer" }, { type: "null" }], default: null, title: "B" },
    c: { type: ["string", "number"] },
    d: { type: "null" },
  });
});

test("fields whose names a vendor refuses are told in words, and allowed", () => {
  const schema = object({ "filter[id]": { type: "string" }, name: { type: "string" } }, {
    required: ["filter[id]", "name"],
    additionalProperties: false,
  });
  const { schema: anthropic, notes } = fit(schema, rulesOf("anthropic"));
  assert.deepEqual(anthropic, object({ name: { type: "string" } }, { required: ["name"] }));
  assert.equal(notes, 'more fields: "filter[id]" (required)');
  assert.deepEqual(Object.keys(fitted("openai", schema)["properties"] as object), ["filter[id]", "name"]);
});

test("forms of older drafts and nonsense become what is valid", () => {
  const schema = object({
    a: { type: "number", minimum: 1, exclusiveMinimum: true },
    b: { type: "array", items: [{ type: "string" }, { type: "number" }], additionalItems: false },
    c: { type: "float", required: true, enum: [], minLength: -1, description: 5 },
    d: true,
    e: false,
    f: { type: "array" },
  }, { required: "a" });
  assert.deepEqual(
    fitted("openai", schema),
    object({
      a: { type: "number", exclusiveMinimum: 1 },
      b: { type: "array", items: { anyOf: [{ type: "string" }, { type: "number" }] } },
      c: {},
      d: {},
      f: { type: "array", items: {} },
    }),
  );
});

test("a tool without fields is declared to Gemini without parameters", () => {
  assert.equal(fit({ type: "object" }, rulesOf("gemini")).schema, undefined);
  assert.deepEqual(fitted("portable", { type: "object" }), { type: "object", properties: {} });
});

test("huge and deep schemas stay within the bounds, and say what is missing", () => {
  let deep: JsonSchema = { type: "string" };
  for (let level = 0; level < 5000; level++) deep = object({ a: deep });
  const fields = (count: number) =>
    Object.fromEntries(
      Array.from({ length: count }, (_, index) => [`f${index}`, { type: "string", description: "x".repeat(500) }]),
    );
  for (const [vendor, rules] of VENDORS) {
    for (
      const schema of [deep, object(fields(5000)), object({ a: { type: "string", description: "y".repeat(90_000) } })]
    ) {
      const { schema: result = {}, notes } = fit(schema, rules);
      assert.ok(JSON.stringify(result).length <= 48_000 && notes.length <= 4_000, vendor);
    }
    assert.match(fit(deep, rules).notes, /too large to be told/);
    assert.match(fit(object(fields(5000)), rules).notes, /^more fields: .* and \d+ more$/);
  }
});

/** A schema and a value that fits it. */
interface Pair {
  readonly schema: JsonSchema;
  readonly value: unknown;
}

const fieldName = fc.oneof(
  fc.stringMatching(/^[a-z]{1,6}$/),
  fc.constantFrom("filter[id]", "a b", "9lives", "$select", "x".repeat(70), "properties", "type", "enum"),
);

const notes = fc.constantFrom<JsonSchema>(
  {},
  { description: "Some words" },
  { title: "T", default: null, examples: [1] },
  { $comment: "c", "x-own": 1, deprecated: true },
  { not: { const: "never this" } },
);

const leaf: fc.Arbitrary<Pair> = fc.oneof(
  fc.string({ maxLength: 8 }).map((value) => ({ schema: { type: "string", maxLength: 2000, minLength: 0 }, value })),
  fc.constantFrom(["date", "2026-11-30"], ["email", "ada@example.com"]).map(([format, value]) => ({
    schema: { type: "string", format },
    value,
  })),
  fc.constant({ schema: { type: "string", pattern: "\\d+" }, value: "a1b" }),
  fc.integer({ min: -9, max: 9 }).map((value) => ({
    schema: { type: "integer", minimum: -9, exclusiveMaximum: 10 },
    value,
  })),
  fc.integer({ min: 1, max: 9 }).map((value) => ({
    schema: { type: "number", minimum: 0, exclusiveMinimum: true },
    value,
  })),
  fc.boolean().map((value) => ({ schema: { type: "boolean" }, value })),
  fc.constant({ schema: { type: "null" }, value: null }),
  fc.constantFrom(null, "text", 5).map((value) => ({ schema: { type: ["string", "null", "integer"] }, value })),
  fc.constantFrom(null, "text").map((value) => ({ schema: { type: "string", nullable: true }, value })),
  fc.constantFrom("a", "b", 3, null).map((value) => ({ schema: { enum: ["a", "b", 3, null] }, value })),
  fc.constantFrom("a", "b").map((value) => ({ schema: { type: "string", enum: ["a", "b"] }, value })),
  fc.constantFrom("one", 1, true).map((value) => ({ schema: { const: value }, value })),
  // A value that the weakest dialect can say too
  fc.constantFrom("s", 1, true, null, {}).map((value) => ({ schema: {}, value })),
);

const { pair } = fc.letrec<{ pair: Pair; object: Pair }>((tie) => ({
  pair: fc.oneof(
    // The checker takes 16 schemas in each other at most, and a list with a form for each place becomes two
    { depthSize: "small", maxDepth: 5, withCrossShrink: true },
    leaf,
    tie("object"),
    fc.array(tie("pair"), { minLength: 1, maxLength: 3 }).map((pairs) => ({
      schema: { type: "array", items: pairs.map(({ schema }) => schema) },
      value: pairs.map(({ value }) => value),
    })),
    fc.tuple(tie("pair"), fc.nat(3)).map(([{ schema, value }, count]) => ({
      schema: { type: "array", items: schema, maxItems: 500 },
      value: Array.from({ length: count }, () => value),
    })),
    fc.tuple(fc.array(tie("pair"), { minLength: 1, maxLength: 3 }), fc.constantFrom("anyOf", "oneOf"), notes).map(
      ([pairs, union, more]) => ({
        schema: { ...more, [union]: pairs.map(({ schema }) => schema) },
        value: pairs[0]?.value,
      }),
    ),
    fc.tuple(tie("pair"), notes).map(([{ schema, value }, more]) => ({ schema: { allOf: [schema, more] }, value })),
  ),
  object: fc.tuple(
    fc.uniqueArray(fc.tuple(fieldName, tie("pair"), fc.boolean(), fc.boolean()), {
      maxLength: 4,
      selector: ([name]) => name,
    }),
    fc.constantFrom<JsonSchema>({}, { additionalProperties: false }, { additionalProperties: {} }, {
      patternProperties: { "^x-": { type: "string" } },
      additionalProperties: false,
    }),
    fc.constantFrom("properties", "allOf"),
  ).map(([fields, openness, way]) => {
    const inner = object(Object.fromEntries(fields.map(([name, { schema }]) => [name, schema])), {
      required: fields.flatMap(([name, , isRequired]) => (isRequired ? [name] : [])),
    });
    const schema = way === "properties" ? { ...inner, ...openness } : { allOf: [inner], type: "object" };
    const value = Object.fromEntries(
      fields.flatMap(([name, { value }, isRequired, isThere]) => (isRequired || isThere ? [[name, value]] : [])),
    );
    return { schema, value };
  }),
}));

const top: fc.Arbitrary<Pair> = fc.tuple(
  fc.array(pair, { minLength: 1, maxLength: 3 }),
  fc.constantFrom("plain", "anyOf", "allOf", "$ref"),
).map(([pairs, way]) => {
  const [first] = pairs;
  const named = Object.fromEntries(pairs.map(({ schema }, index) => [`f${index}`, schema]));
  const schema = object(named, { required: ["f0"] });
  const value = { f0: first?.value };
  switch (way) {
    case "anyOf":
      return {
        schema: { type: "object", anyOf: pairs.map((each) => object({ f0: each.schema }, { required: ["f0"] })) },
        value,
      };
    case "allOf":
      return { schema: { allOf: [schema, { properties: { g: { type: "string" } } }] }, value };
    case "$ref":
      return { schema: { $ref: "#/$defs/a~1b", $defs: { "a/b": schema } }, value };
    default:
      return { schema, value };
  }
});

for (const [vendor, rules] of VENDORS) {
  test(`${vendor}: whatever a schema holds, the vendor takes the result, and inputs that fitted still fit`, () => {
    fc.assert(
      fc.property(top, ({ schema, value }) => {
        const before = JSON.stringify(schema);
        const { schema: result = { type: "object", properties: {} } } = fit(schema, rules);
        assert.deepEqual(refusals(result, rules), []);
        assert.equal(misfit(result, value), undefined, `${before}\n${JSON.stringify(result)}`);
        assert.equal(JSON.stringify(schema), before, "the original is not changed");
      }),
      { numRuns: triesOf(300) },
    );
  });

  test(`${vendor}: any JSON in place of a schema gives one that the vendor takes`, () => {
    const keyword = fc.constantFrom(
      ...["type", "properties", "items", "anyOf", "allOf", "$ref", "required", "enum", "additionalProperties", "if"],
      ...["then", "minLength", "format", "description", "$defs", "prefixItems", "const", "nullable", "pattern"],
    );
    const { json } = fc.letrec<{ json: unknown }>((tie) => ({
      json: fc.oneof(
        { depthSize: "small" },
        fc.constantFrom(null, true, false, 1, -1, 1e400, "", "object", "array", "string", "#", "#/$defs/type", [], {}),
        fc.array(tie("json"), { maxLength: 3 }),
        fc.dictionary(keyword, tie("json"), { maxKeys: 4 }),
      ),
    }));
    fc.assert(
      fc.property(fc.dictionary(keyword, json, { maxKeys: 6 }), (schema) => {
        const { schema: result = { type: "object", properties: {} } } = fit(schema, rules);
        assert.deepEqual(refusals(result, rules), [], JSON.stringify(result));
      }),
      { numRuns: triesOf(300) },
    );
  });
}

test("a schema with very many required fields is fitted in the time of its length", () => {
  const required = Array.from({ length: 60_000 }, (_, i) => `field ${i}`);
  const properties = Object.fromEntries(required.map((name) => [name, {}]));
  const start = processorMs();
  fitted("anthropic", { type: "object", properties, required });
  fitted("anthropic", { type: "object", anyOf: [{ required }, { required: required.toReversed() }] });
  assert.ok(processorMs() - start < 10_000);
});
