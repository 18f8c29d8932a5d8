import assert from "node:assert/strict";
import { test } from "node:test";
import { type Schema, Validator } from "@cfworker/json-schema";
import fc from "fast-check";
import { compileSchema, SchemaError } from "../../../lib/tools/runtime/json_schema.ts";

const object = (value: object, more: object = {}) => ({
  type: "object",
  properties: { value },
  additionalProperties: false,
  ...more,
});

/** Schemas of one field, values that fit, and values that do not. */
const CASES: readonly (readonly [schema: object, fits: readonly unknown[], faults: readonly unknown[]])[] = [
  [{}, [1, null, "x", {}], []],
  [{ type: "string" }, [""], [1, null, {}, []]],
  [{ type: ["string", "null"] }, ["", null], [1]],
  [{ type: "integer" }, [1, -0, 1e20], [1.5, "1"]],
  [{ type: "array", items: { type: "number" }, minItems: 1, maxItems: 2 }, [[1]], [[], [1, 2, 3], ["1"]]],
  [{ uniqueItems: true }, [[1, 2], "aa"], [[1, 1], [{ a: 1, b: 2 }, { b: 2, a: 1 }]]],
  [{ enum: [1, "a", { b: 1 }] }, [1, "a", { b: 1 }], ["1", { b: 2 }]],
  [{ const: [1] }, [[1]], [[1, 1], 1]],
  [{ minimum: 1, exclusiveMaximum: 3 }, [1, 2.9, "x"], [0.9, 3]],
  [{ exclusiveMinimum: 1, maximum: 3 }, [3], [1, 3.1]],
  [{ minLength: 2, maxLength: 3 }, ["ab", "😀😀😀"], ["a", "abcd"]],
  [{ pattern: "^a+$" }, ["aa", 1], ["b", ""]],
  [
    {
      type: "object",
      properties: { a: { type: "string" } },
      required: ["a"],
      additionalProperties: { type: "number" },
    },
    [{ a: "" }, { a: "", b: 1 }],
    [{}, { a: 1 }, { a: "", b: "" }],
  ],
  [{ minProperties: 1, maxProperties: 1 }, [{ a: 1 }], [{}, { a: 1, b: 1 }]],
  [{ anyOf: [{ type: "string" }, { minimum: 2 }] }, ["", 2], [1]],
  [{ oneOf: [{ type: "number" }, { type: "integer" }] }, [1.5], [1, "x"]],
  [{ allOf: [{ type: "number" }, { minimum: 2 }] }, [2], [1, "x"]],
  [{ not: { type: "null" } }, [1], [null]],
  [{ items: false }, [[]], [[1]]],
  [{ prefixItems: [{ type: "string" }, { type: "number" }] }, [[], ["a"], ["a", 1, null]], [[1], ["a", "b"]]],
  [{ prefixItems: [{ type: "string" }], items: false }, [[], ["a"]], [[1], ["a", 1]]],
  [{ propertyNames: { maxLength: 2 } }, [{}, { ab: 1 }, 1], [{ abc: 1 }]],
  [{ format: "date" }, ["2024-02-29", 1], ["2023-02-29", "2024-2-1", ""]],
  [{ format: "date-time" }, ["2024-02-29T10:00:00Z", "2024-02-29T10:00:00.5+01:00"], [
    "2024-02-30T10:00:00Z",
    "2024-02-29T25:00:00Z",
  ]],
  [{ format: "time" }, ["10:00:00Z"], ["10:00", "24:00:00Z"]],
  [{ format: "email" }, ["a@b.example"], ["a", "a@b@c"]],
  [{ format: "uri" }, ["https://a.example/b", "urn:x:y"], ["a/b", "https://a b"]],
  [{ format: "uuid" }, ["2a6e8c1e-0c3f-4f3b-9d0e-8a1f2b3c4d5e"], ["2a6e8c1e"]],
  [{ format: "ipv4" }, ["127.0.0.1"], ["127.0.0.256", "127.0.0.1.", "1"]],
  [{ format: "ipv6" }, ["::1", "2001:db8::1"], ["1", "127.0.0.1", ":::"]],
  [{ format: "a-format-of-others" }, ["x"], []],
];

test("compileSchema() finds the same faults as the standard's validator", () => {
  for (const [schema, fits, faults] of CASES) {
    const { check } = compileSchema(object(schema));
    const told = JSON.stringify(schema);
    for (const value of fits) assert.equal(check({ value }), undefined, `${told} takes ${JSON.stringify(value)}`);
    for (const value of faults) assert.ok(check({ value }), `${told} refuses ${JSON.stringify(value)}`);
    // Two readings of a format differ on texts such as "!@!"
    if ("format" in schema) continue;
    const oracle = new Validator(object(schema) as Schema, "2020-12");
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 2 }), (value) => {
        assert.equal(
          check({ value }) === undefined,
          oracle.validate({ value }).valid,
          `${told}: ${JSON.stringify(value)}`,
        );
      }),
      { numRuns: 50 },
    );
  }
});

test("a reference is read in the place where it stands, beside the keywords that stand there", () => {
  const $defs = { "a/b": { type: "object", properties: { n: { $ref: "#/$defs/n" } } }, n: { maximum: 3 } };
  const schema = object({ type: "array", items: { $ref: "#/$defs/a~1b", minProperties: 1 } }, { $defs });
  const { check } = compileSchema(schema);
  assert.equal(check({ value: [{ n: 3 }, { n: 1 }] }), undefined);
  assert.deepEqual(check({ value: [{ n: 4 }] }), { path: "value[0].n", reason: "must be at most 3" });
  assert.deepEqual(check({ value: [{}] }), { path: "value[0]", reason: "must have a length of at least 1" });
  const oracle = new Validator(schema as Schema, "2020-12");
  for (const value of [[{ n: 3 }], [{ n: 4 }], [{}], [1]]) {
    assert.equal(check({ value }) === undefined, oracle.validate({ value }).valid, JSON.stringify(value));
  }
});

test("a schema that refers to itself checks trees, lists of lists and values of each other", () => {
  const tree = {
    type: "object",
    properties: { name: { type: "string" }, children: { type: "array", items: { $ref: "#/$defs/tree" } } },
    required: ["name"],
    additionalProperties: false,
  };
  const list = { anyOf: [{ type: "number" }, { type: "array", items: { $ref: "#/$defs/list" } }] };
  const json = {
    text: { type: "string" },
    table: { type: "object", additionalProperties: { $ref: "#/$defs/any" } },
    any: { anyOf: [{ $ref: "#/$defs/text" }, { $ref: "#/$defs/table" }] },
  };
  const shapes: readonly (readonly [name: string, $defs: object, values: readonly unknown[]])[] = [
    ["tree", { tree }, [
      { name: "a" },
      { name: "a", children: [{ name: "b", children: [{ name: "c" }] }] },
      { name: "a", children: [{ name: "b", children: [{ name: 3 }] }] },
      { name: "a", children: [{ children: [] }] },
      { name: "a", children: {} },
    ]],
    ["list", { list }, [1, [], [1, [2, [[3]]]], [1, [2, [["3"]]]], "x"]],
    ["whole", { whole: { properties: { a: { $ref: "#" } } } }, [{}, { a: {} }, { a: { value: { a: 1 } } }, { a: 1 }]],
    ["any", json, ["x", { a: { b: { c: "x" } } }, { a: { b: { c: 1 } } }, []]],
  ];
  for (const [name, $defs, values] of shapes) {
    const schema = object({ $ref: `#/$defs/${name}` }, { $defs });
    const { check } = compileSchema(schema);
    const oracle = new Validator(schema as Schema, "2020-12");
    const verdicts = values.map((value) => check({ value }) === undefined);
    assert.deepEqual(verdicts, values.map((value) => oracle.validate({ value }).valid), name);
    assert.ok(verdicts.includes(true) && verdicts.includes(false));
  }
  const { check } = compileSchema(object({ $ref: "#/$defs/tree" }, { $defs: { tree } }));
  const fault = check({ value: { name: "a", children: [{ name: "b" }, { name: "c", children: [{ name: 1 }] }] } });
  assert.deepEqual(fault, { path: "value.children[1].children[0].name", reason: "must be of type string" });
});

test("a schema that comes back to itself at the same value is refused, by whichever way", () => {
  const b = { $ref: "#/$defs/b" };
  const refused: readonly object[] = [
    { a: { $ref: "#/$defs/a" } },
    { a: { not: b }, b: { allOf: [{ $ref: "#/$defs/a" }] } },
    // The way through a part is met first, and is no excuse for the other one
    { a: { properties: { part: b }, anyOf: [b] }, b: { oneOf: [{ $ref: "#/$defs/a" }] } },
  ];
  for (const $defs of refused) {
    const compile = () => compileSchema(object({ $ref: "#/$defs/a" }, { $defs }));
    assert.throws(compile, /refers to itself for the same value/, JSON.stringify($defs));
  }
});

test("references are bounded in depth and in work, also within what must not fit", () => {
  const doubled = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [
      `d${at}`,
      at === count - 1 ? { type: "null" } : { anyOf: Array(2).fill({ $ref: `#/$defs/d${at + 1}` }) },
    ]));
  const twice = {
    a: { type: "object", properties: { a: { oneOf: Array(2).fill({ $ref: "#/$defs/a" }) } } },
    list: { type: "array", items: { $ref: "#/$defs/list" } },
  };
  const nested = (depth: number): unknown => depth === 0 ? {} : { a: nested(depth - 1) };
  const lists = (depth: number): unknown => {
    let value: readonly unknown[] = [];
    for (let level = 0; level < depth; level++) value = [value];
    return value;
  };
  const rows: readonly (readonly [schema: object, $defs: object, value: unknown, reason: RegExp])[] = [
    [{ $ref: "#/$defs/d0" }, doubled(40), 1, /takes too long/],
    [{ not: { $ref: "#/$defs/d0" } }, doubled(40), 1, /takes too long/],
    [{ $ref: "#/$defs/a" }, twice, nested(40), /takes too long/],
    [{ $ref: "#/$defs/list" }, twice, lists(100), /deeper than 64 references/],
    [{ not: { $ref: "#/$defs/list" } }, twice, lists(100), /deeper than 64 references/],
    [{ $ref: "#/$defs/list" }, twice, lists(20_000), /deeper than 1000/],
  ];
  for (const [schema, $defs, value, reason] of rows) {
    assert.match(
      compileSchema(object(schema, { $defs })).check({ value })?.reason ?? "",
      reason,
      JSON.stringify(schema),
    );
  }
  // Nothing of a check is left for the next one
  const { check } = compileSchema(object({ $ref: "#/$defs/list" }, { $defs: twice }));
  for (let time = 0; time < 3; time++) assert.notEqual(check({ value: lists(100) }), undefined);
  assert.equal(check({ value: lists(50) }), undefined);
  // A wide list costs by its parts
  assert.equal(check({ value: [Array.from({ length: 20_000 }, () => [])] }), undefined);
});

test("a fault names the place and the reason", () => {
  const { check } = compileSchema(
    object({ type: "array", items: { type: "object", properties: { n: { maximum: 3 } } } }),
  );
  assert.deepEqual(check({ value: [{}, { n: 4 }] }), { path: "value[1].n", reason: "must be at most 3" });
  assert.deepEqual(check({ other: 1 }), { path: "other", reason: "is not one of its fields: they are value" });
  assert.deepEqual(compileSchema(object({}, { required: ["value"] })).check({}), {
    path: "value",
    reason: "is missing",
  });
});

test("a schema is closed where it names properties and says nothing of others", () => {
  const rows: readonly (readonly [schema: object, takesAny: boolean, takesText: boolean])[] = [
    [{}, true, true],
    [{ properties: {} }, false, false],
    [{ properties: { a: {} } }, false, false],
    [{ properties: { a: {} }, additionalProperties: true }, true, true],
    [{ additionalProperties: false }, false, false],
    [{ additionalProperties: { type: "string" } }, false, true],
  ];
  for (const [schema, takesAny, takesText] of rows) {
    const { check } = compileSchema({ type: "object", ...schema });
    const takes = [{ b: 1 }, { b: "text" }].map((input) => check(input) === undefined);
    assert.deepEqual(takes, [takesAny, takesText], JSON.stringify(schema));
  }
});

test("a multiple is one of people's decimals, whatever their binary form", () => {
  const { check } = compileSchema(object({ multipleOf: 0.1 }));
  assert.equal(check({ value: 0.3 }), undefined);
  assert.equal(check({ value: "x" }), undefined);
  assert.ok(check({ value: 0.35 }));
});

test("compileSchema() refuses what it would not check", () => {
  const refused: readonly (readonly [unknown, RegExp])[] = [
    [null, /an object/],
    [{ type: "string" }, /"object"/],
    [{ type: "object", properties: [] }, /"properties"/],
    [object({}, { anyOf: [{}] }), /"anyOf"/],
    [object({ $ref: "#/properties/value" }), /"properties.value.\$ref" must name a definition/],
    [object({}, { $ref: "#" }), /refers to itself/],
    [object({ $ref: "#/$defs/b" }, { $defs: { a: {} } }), /"properties.value.\$ref" must name a definition/],
    [object({ $ref: "https://a.example/b" }), /must name a definition/],
    [object({ $ref: "#/$defs/a" }, { $defs: { a: { anyOf: [{ $ref: "#/$defs/a" }] } } }), /refers to itself/],
    [object({ $ref: "#/$defs/a" }, { $defs: { a: { if: {} } } }), /"properties.value.\$ref.if"/],
    [object({ prefixItems: [] }), /not empty/],
    [object({ format: 1 }), /a text/],
    [object({ if: {} }), /"properties.value.if"/],
    [object({ patternProperties: {} }), /patternProperties/],
    [object({ type: "text" }), /must be one of/],
    [object({ type: [] }), /must be one of/],
    [object({ minLength: -1 }), /whole number/],
    [object({ minLength: "1" }), /whole number/],
    [object({ maximum: "1" }), /a number/],
    [object({ multipleOf: 0 }), /above 0/],
    [object({ enum: [] }), /not empty/],
    [object({ required: [1] }), /list of names/],
    [object({ pattern: "(?=a)" }), /RE2/],
    [object({ pattern: "((a{0,30}){0,30}){0,30}" }), /too large|RE2/],
    [object({ properties: [] }), /an object/],
    [object({ items: 1 }), /a schema/],
  ];
  for (const [schema, message] of refused) {
    assert.throws(
      () => compileSchema(schema),
      (error) => error instanceof SchemaError && message.test(error.message),
      `${JSON.stringify(schema)}`,
    );
  }
  let deep: object = {};
  for (let depth = 0; depth < 20; depth++) deep = { items: deep };
  assert.throws(() => compileSchema(object(deep)), /nested deeper/);
  assert.throws(() => compileSchema(object({ anyOf: Array(600).fill({}) })), /over 500/);
});

test("no pattern of a schema hangs: a repetition within a repetition takes time by the text alone", () => {
  const { check } = compileSchema(object({ pattern: "^(a+)+$" }));
  assert.equal(check({ value: "a".repeat(5_000) }), undefined);
  assert.ok(check({ value: `${"a".repeat(5_000)}b` }));
  assert.match(check({ value: "a".repeat(30_000_000) })?.reason ?? "", /length of at most/);
});
