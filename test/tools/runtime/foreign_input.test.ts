import assert from "node:assert/strict";
import { test } from "node:test";
import { isRecord } from "../../../lib/base/json.ts";
import { closeObjects } from "../../../lib/tools/runtime/foreign_input.ts";
import { compileSchema, SchemaError } from "../../../lib/tools/runtime/json_schema.ts";
import { createSeededRandom, triesOf } from "../../support/seeded_random.ts";

const object = (properties: object, more: object = {}) => ({ type: "object", properties, ...more });
const ref = (name: string, more: object = {}) => ({ $ref: `#/$defs/${name}`, ...more });
const bed = object({ row: { type: "integer" } });
const herb = object({ herb: { type: "string" } });

function takes(schema: unknown, input: unknown): boolean {
  return compileSchema(schema).check(input) === undefined;
}

test("an object that one schema alone describes is closed, also by a reference and in a choice", () => {
  const rows: readonly (readonly [properties: object, $defs: object, fits: object])[] = [
    [{ at: ref("bed") }, { bed }, { at: { row: 1 } }],
    [{ at: { type: "array", items: ref("bed") } }, { bed }, { at: [{ row: 1 }] }],
    [{ at: { prefixItems: [{}, ref("bed")] } }, { bed }, { at: [1, { row: 1 }] }],
    [{ at: { type: "object", additionalProperties: ref("bed") } }, { bed }, { at: { any: { row: 1 } } }],
    [{ at: ref("a/b".replace("/", "~1"), { description: "x", default: { row: 1 } }) }, { "a/b": bed }, {
      at: { row: 1 },
    }],
    // As pydantic and zod write a field that may be null, or has a description
    [{ at: { anyOf: [ref("bed"), { type: "null" }] } }, { bed }, { at: { row: 1 } }],
    [{ at: { allOf: [ref("bed")], description: "x" } }, { bed }, { at: { row: 1 } }],
    [{ at: { oneOf: [{ const: 1 }, bed] } }, {}, { at: { row: 1 } }],
    [{ at: { anyOf: [ref("bed"), { type: "array", items: ref("bed") }] } }, { bed }, { at: [{ row: 1 }] }],
    [{ at: { ...bed, anyOf: [{ required: ["row"] }, { maxProperties: 0 }] } }, {}, { at: { row: 1 } }],
    [{ at: ref("tree") }, { tree: object({ row: {}, left: ref("tree") }) }, { at: { left: { left: { row: 1 } } } }],
    [{ at: ref("a") }, { a: object({ b: ref("b") }), b: object({ a: ref("a"), row: {} }) }, { at: { b: { row: 1 } } }],
    [{ at: { $ref: "#/definitions/bed" } }, {}, { at: { row: 1 } }],
    [{ __proto__: null, at: object(JSON.parse('{"__proto__": {"properties": {"row": {}}}}')) }, {}, {
      at: JSON.parse('{"__proto__": {"row": 1}}'),
    }],
  ];
  for (const [properties, $defs, fits] of rows) {
    const closed = closeObjects(object(properties, { $defs, definitions: { bed } }));
    assert.ok(takes(closed, fits), JSON.stringify(closed));
    const wrong = JSON.parse(JSON.stringify(fits).replace('"row":1', '"row":1,"rwo":2'));
    assert.ok(!takes(closed, wrong), JSON.stringify(closed));
    assert.deepEqual(closeObjects(closed), closed);
  }
});

test("what several schemas describe together stays open, with a definition that is used there", () => {
  const rows: readonly (readonly [properties: object, $defs: object, fits: object])[] = [
    [{ at: { allOf: [ref("bed"), ref("herb")] } }, { bed, herb }, { at: { row: 1, herb: "x" } }],
    [{ at: { allOf: [ref("bed")], properties: { herb: {} } } }, { bed }, { at: { row: 1, herb: "x" } }],
    [{ at: ref("bed", { properties: { herb: {} } }) }, { bed }, { at: { row: 1, herb: "x" } }],
    [{ at: { anyOf: [bed, herb] } }, {}, { at: { row: 1, herb: "x" } }],
    [{ at: { ...bed, not: object({ herb: { const: "y" } }, { required: ["herb"] }) } }, {}, {
      at: { row: 1, herb: "x" },
    }],
    // The field describes it alone, the branch does not
    [{ at: ref("bed"), or: { allOf: [ref("bed"), herb] } }, { bed }, { or: { row: 1, herb: "x" } }],
    [{ at: ref("a") }, { a: { allOf: [ref("b"), object({ in: herb })] }, b: object({ in: bed }) }, {
      at: { in: { row: 1, herb: "x" } },
    }],
    [{ at: object({ in: bed }, { allOf: [object({ in: herb })] }) }, {}, { at: { in: { row: 1, herb: "x" } } }],
    [{ at: { ...bed, additionalProperties: { type: "string" } } }, {}, { at: { row: 1, herb: "x" } }],
    [{ at: { type: "object" } }, {}, { at: { row: 1 } }],
  ];
  for (const [properties, $defs, fits] of rows) {
    const schema = object(properties, { $defs });
    assert.ok(takes(closeObjects(schema), fits), JSON.stringify(closeObjects(schema)));
  }
  const never = object({ at: { not: object({ row: { type: "string" } }) } });
  assert.ok(!takes(closeObjects(never), { at: { row: "x", herb: 1 } }), "what is refused stays refused");
  // A definition that no reference reaches stays as it is
  assert.deepEqual(closeObjects(object({}, { $defs: { bed } })), object({}, { $defs: { bed } }));
});

const NAMES = ["a", "b", "__proto__", "constructor"];
type Fields = Readonly<Record<string, unknown>>;

/** Makes schemas, and inputs out of the names in them. */
function createMaker(seed: number) {
  const { bytes } = createSeededRandom(seed);
  const pick = (count: number) => (bytes(1)[0] ?? 0) % count;
  const name = () => NAMES[pick(NAMES.length)] ?? "";
  const fieldsOf = (make: () => unknown) =>
    Object.fromEntries(Array.from({ length: 1 + pick(2) }, () => [name(), make()]));
  const schema = (depth: number): Fields => {
    const inner = () => schema(depth + 1);
    switch (depth > 2 ? pick(2) : pick(9)) {
      case 0:
        return [{}, { type: "null" }, { const: null }][pick(3)] ?? {};
      case 1:
      case 2:
        return ref(name());
      case 3:
        return { type: "array", items: inner() };
      case 4:
      case 5: {
        const keyword = ["allOf", "anyOf", "oneOf"][pick(3)] ?? "";
        const others = [{ type: "null" }, ref(name()), object(fieldsOf(inner))];
        return { [keyword]: [ref(name()), ...pick(4) === 0 ? [] : [others[pick(3)]]] };
      }
      case 6:
        return {
          ...inner(),
          [pick(2) === 0 ? "anyOf" : "not"]: pick(2) === 0 ? [inner(), { required: [name()] }] : inner(),
        };
      default:
        return object(fieldsOf(inner));
    }
  };
  const value = (said: readonly Fields[], whole: Fields, depth = 0): unknown => {
    const all = withForms(said, whole);
    if (depth > 4 || pick(12) === 0) return null;
    const inner = (parts: readonly unknown[]) => value(parts.filter(isRecord), whole, depth + 1);
    if (all.some(({ items }) => items !== undefined)) return [inner(all.map(({ items }) => items))];
    const named = [...new Set(all.flatMap(({ properties }) => isRecord(properties) ? Object.keys(properties) : []))];
    const fields = named.filter(() => pick(4) > 0).map((name) => [name, inner(namedIn(all, name))] as const);
    return Object.fromEntries(pick(3) === 0 ? [...fields, [name(), 1]] : fields);
  };
  const whole = object(fieldsOf(() => schema(0)), {
    $defs: Object.fromEntries(NAMES.map((name) => [name, pick(4) > 0 ? object(fieldsOf(() => schema(1))) : schema(1)])),
  });
  return { whole, input: () => value([whole], whole) };
}

test("closing refuses nothing but fields that no schema of their object names, and takes nothing that was refused", () => {
  let refused = 0;
  for (let seed = 0; seed < triesOf(150); seed++) {
    const { whole, input: make } = createMaker(seed);
    const [open, closed] = [checkOf(whole), checkOf(closeObjects(whole))];
    assert.equal(open === undefined, closed === undefined, JSON.stringify(whole));
    for (let at = 0; at < 8 && open !== undefined; at++) {
      const input = make();
      const fits = open(input) === undefined;
      if (fits === (closed?.(input) === undefined)) continue;
      refused++;
      const told = JSON.stringify([whole, input]);
      assert.ok(fits, told);
      assert.ok(hasUnnamed(input, [whole], whole), told);
    }
  }
  assert.ok(refused > 10, `${refused} inputs were refused for a field`);
});

/** Returns undefined for a schema that is refused itself. */
function checkOf(schema: unknown): ((input: unknown) => unknown) | undefined {
  try {
    return compileSchema(schema).check;
  } catch (error) {
    if (error instanceof SchemaError) return undefined;
    throw error;
  }
}

/** Returns schemas with those that see the same value. */
function withForms(given: readonly Fields[], { $defs }: Fields): readonly Fields[] {
  const all = [...given];
  for (const one of all) {
    const forms = ["allOf", "anyOf", "oneOf"].flatMap((keyword) => Array.isArray(one[keyword]) ? one[keyword] : []);
    const name = typeof one["$ref"] === "string" ? one["$ref"].slice("#/$defs/".length) : "";
    const target = isRecord($defs) && Object.hasOwn($defs, name) ? [$defs[name]] : [];
    for (const next of [...forms, ...target]) if (isRecord(next) && !all.includes(next)) all.push(next);
  }
  return all;
}

function namedIn(all: readonly Fields[], name: string): readonly unknown[] {
  return all.flatMap(({ properties }) =>
    isRecord(properties) && Object.hasOwn(properties, name) ? [properties[name]] : []
  );
}

/** Tells whether a value has, at any depth, a field that none of the schemas of its object names. */
function hasUnnamed(value: unknown, given: readonly unknown[], whole: Fields): boolean {
  const all = withForms(given.filter(isRecord), whole);
  if (Array.isArray(value)) return value.some((item) => hasUnnamed(item, all.map(({ items }) => items), whole));
  return isRecord(value) && Object.entries(value).some(([name, part]) => {
    const named = namedIn(all, name);
    return named.length === 0 || hasUnnamed(part, named, whole);
  });
}

test("a schema that requires what it does not name stays open: nothing would fit it any more", () => {
  const beds = { bed: object({ row: { type: "integer" } }, { required: ["row", "side"] }) };
  for (const at of [ref("bed"), beds.bed, { anyOf: [ref("bed"), { type: "null" }] }]) {
    const closed = closeObjects(object({ at }, { $defs: beds }));
    assert.ok(takes(closed, { at: { row: 1, side: "left" } }), JSON.stringify(at));
    assert.equal(takes(closed, { at: { row: 1 } }), false);
  }
});

test("a schema with more parts than are understood is looked at once, and left as it is", () => {
  let looks = 0;
  const form = new Proxy({}, { get: (_, name) => void (name === "items" && looks++) });
  const properties = Object.fromEntries(Array.from({ length: 3_000 }, (_, i) => [`f${i}`, {}]));
  const schema = object({ at: { properties, anyOf: Array(1_000).fill(form) } });
  assert.equal(closeObjects(schema), schema);
  assert.ok(looks < 10, `the forms were looked at ${looks} times`);
});

test("a program's schema that holds itself is copied once, and refused by its depth", () => {
  const itself: Record<string, unknown> = { type: "object" };
  itself["properties"] = { left: itself, right: itself };
  assert.throws(() => compileSchema(closeObjects(object({ at: itself }))), SchemaError);
});
