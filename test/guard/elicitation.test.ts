import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { Form, FormField } from "../../lib/base/records/elicitation.ts";
import { formSchema } from "../../lib/base/records/elicitation.ts";
import { checkContent, ELICITATION_LIMITS, parseElicitation } from "../../lib/guard/elicitation.ts";
import * as v from "valibot";
import { triesOf } from "../support/seeded_random.ts";

const parse = (params: unknown) =>
  parseElicitation(params, { server: "crm", redact: (text) => text.replaceAll("s3cret", "[masked]") });
const object = (properties: Record<string, unknown>, required: readonly string[] = []) => ({
  message: "Who?",
  requestedSchema: { type: "object", properties, required },
});

/** Returns the form of a request that is accepted. */
function formOf(params: unknown): Form {
  const parsed = parse(params);
  assert.ok(!("refused" in parsed), JSON.stringify(parsed));
  return parsed.schema ?? assert.fail("no form");
}

/** Returns why a request is refused. */
function refusalOf(params: unknown): string {
  const parsed = parse(params);
  return "refused" in parsed ? parsed.refused : assert.fail(`accepted: ${JSON.stringify(parsed)}`);
}

describe("parseElicitation()", () => {
  test("keeps what a form can show, in one form for each kind of field", () => {
    const { properties, required } = formOf(object({
      name: { type: "string", title: "Name", description: "Yours", minLength: 1, maxLength: 9, pattern: "(a+)+$" },
      mail: { type: "string", format: "email", default: "nobody" },
      age: { type: "integer", minimum: 0, maximum: 150, default: 7 },
      weight: { type: "number" },
      sure: { type: "boolean", default: true },
      colour: { type: "string", enum: ["r", "g"], enumNames: ["Red", "Green"], default: "g" },
      size: { type: "string", oneOf: [{ const: "s", title: "Small" }] },
      days: { type: "array", items: { enum: ["mo", "tu"] }, minItems: 1 },
      places: { type: "array", items: { anyOf: [{ const: "a", title: "A" }] }, default: ["a"] },
    }, ["name", "name"]));
    assert.deepEqual(required, ["name"]);
    assert.deepEqual(properties, {
      name: { type: "string", title: "Name", description: "Yours", minLength: 1, maxLength: 9 },
      mail: { type: "string", format: "email" },
      age: { type: "integer", minimum: 0, maximum: 150, default: 7 },
      weight: { type: "number" },
      sure: { type: "boolean", default: true },
      colour: { type: "string", oneOf: [{ const: "r", title: "Red" }, { const: "g", title: "Green" }], default: "g" },
      size: { type: "string", oneOf: [{ const: "s", title: "Small" }] },
      days: {
        type: "array",
        items: { anyOf: [{ const: "mo", title: "mo" }, { const: "tu", title: "tu" }] },
        minItems: 1,
      },
      places: { type: "array", items: { anyOf: [{ const: "a", title: "A" }] }, default: ["a"] },
    });
  });

  test("refuses what nobody could fill in, and what is over a bound, with the reason", () => {
    const many = Object.fromEntries(
      Array.from({ length: ELICITATION_LIMITS.fields + 1 }, (_, i) => [`f${i}`, { type: "boolean" }]),
    );
    const rows: readonly (readonly [params: unknown, why: RegExp])[] = [
      [undefined, /"message" must be a text/],
      [{ message: "x".repeat(ELICITATION_LIMITS.messageCharacters + 1) }, /over 4000 characters/],
      [{ message: "?", mode: "voice" }, /"mode" is neither/],
      [{ message: "?" }, /object schema/],
      [object(many), /over 32 fields/],
      [object({ a: { type: "object", properties: {} } }), /the field "a", which no form can show/],
      [object({ a: { $ref: "#/x" } }), /no form can show/],
      [object({ a: { type: "integer", minimum: 2, maximum: 1 } }), /no form can show/],
      [object({ a: { type: "string", minLength: 2, maxLength: 1 } }), /no form can show/],
      [object({ a: { type: "string", enum: [] } }), /no form can show/],
      [object({ a: { type: "string", enum: ["x", "x"] } }), /no form can show/],
      [object({ a: { type: "string", enum: Array.from({ length: 201 }, String) } }), /no form can show/],
      [object({ a: { type: "array", items: { enum: ["x"] }, minItems: 2 } }), /no form can show/],
      [object({}, ["a"]), /a field that is not there/],
      [object({ ["__proto__"]: { type: "boolean" } }), /a name that is not accepted/],
      [object({ "a\u202eb": { type: "boolean" } }), /a name that is not accepted/],
    ];
    for (const [params, why] of rows) assert.match(refusalOf(params), why);
  });

  test("takes an address of the web alone, whole, and none that hides its host or holds a secret", () => {
    const url = (address: unknown) => ({ mode: "url", message: "Sign in", elicitationId: "1", url: address });
    const parsed = parse(url("https://crm.example/sign?state=1"));
    assert.deepEqual(parsed, {
      server: "crm",
      message: "Sign in",
      schema: null,
      url: "https://crm.example/sign?state=1",
    });
    for (const address of ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "crm.example", 7, ""]) {
      assert.match(refusalOf(url(address)), /an address of the web/);
    }
    assert.match(refusalOf(url(`https://crm.example/${"x".repeat(2048)}`)), /at most 2048 characters/);
    assert.match(refusalOf(url("https://bank.example@crm.example/")), /user name/);
    assert.match(refusalOf(url("https://crm.example/?key=s3cret")), /known secret/);
  });

  test("masks known secrets in what a person is shown", () => {
    const parsed = parse({
      ...object({ a: { type: "string", title: "s3cret?", description: "s3cret" } }),
      message: "s3cret",
    });
    assert.doesNotMatch(JSON.stringify(parsed), /s3cret/);
  });

  test("gives a form that the record's schema takes, or a refusal, whatever comes", () => {
    const field = fc.record({
      type: fc.constantFrom("string", "integer", "number", "boolean", "array", "null"),
      enum: fc.array(fc.oneof(fc.string(), fc.integer())),
      items: fc.anything(),
      minLength: fc.anything(),
      maximum: fc.anything(),
      default: fc.anything(),
      title: fc.string({ unit: "binary" }),
    }, { requiredKeys: ["type"] });
    const params = fc.record({
      message: fc.string(),
      requestedSchema: fc.record({
        type: fc.constant("object"),
        properties: fc.dictionary(fc.string(), fc.oneof(field, fc.anything())),
      }),
    });
    fc.assert(
      fc.property(fc.oneof(params, fc.anything()), (given) => {
        const parsed = parse(given);
        return "refused" in parsed || parsed.schema === null || v.is(formSchema, parsed.schema);
      }),
      { numRuns: triesOf(10) },
    );
  });
});

describe("checkContent()", () => {
  const check = (field: FormField, value: unknown) =>
    checkContent({ type: "object", properties: { a: field }, required: ["a"] }, { a: value }).ok;

  test("takes what fits, and nothing else", () => {
    const choice = [{ const: "x", title: "X" }, { const: "y", title: "Y" }];
    const rows: readonly (readonly [field: FormField, good: readonly unknown[], bad: readonly unknown[]])[] = [
      [{ type: "string", minLength: 1, maxLength: 2 }, ["a", "😀😀"], ["", "abc", 1, null, ["a"], "\ud800"]],
      [{ type: "string" }, ["", "x".repeat(10_000)], ["x".repeat(10_001)]],
      [{ type: "string", format: "email" }, ["a@b.example"], ["a", "a b@c.example", "@"]],
      [{ type: "string", format: "uri" }, ["https://a.example/", "urn:x:y"], ["a.example", "https://", "no scheme"]],
      [{ type: "string", format: "date" }, ["2026-02-28"], ["2026-02-30", "28.2.2026", "2026-2-8"]],
      [{ type: "string", format: "date-time" }, ["2026-02-28T09:30:00Z", "2026-02-28T09:30:00.5+02:00"], [
        "2026-02-28",
        "2026-02-30T09:30:00Z",
        "2026-02-28T25:00:00Z",
      ]],
      [{ type: "string", oneOf: choice }, ["x"], ["X", "z", ""]],
      [{ type: "integer", minimum: 1, maximum: 3 }, [1, 3], [0, 4, 1.5, "2", NaN]],
      [{ type: "number", maximum: 1 }, [0.5, -7], [1.1, Infinity, true]],
      [{ type: "boolean" }, [true, false], ["true", 1, 0]],
      [{ type: "array", items: { anyOf: choice }, minItems: 1, maxItems: 2 }, [["x"], ["x", "y"]], [
        [],
        ["x", "x"],
        ["z"],
        "x",
        [1],
      ]],
    ];
    for (const [field, good, bad] of rows) {
      for (const value of good) {
        assert.ok(check(field, value), `${JSON.stringify(field)} takes ${JSON.stringify(value)}`);
      }
      for (const value of bad) {
        assert.ok(!check(field, value), `${JSON.stringify(field)} refuses ${JSON.stringify(value)}`);
      }
    }
  });

  test("names the field and what it takes, and never repeats a value", () => {
    const form: Form = {
      type: "object",
      properties: { age: { type: "integer", minimum: 0, maximum: 150 }, name: { type: "string" } },
      required: ["name"],
    };
    const wrong = checkContent(form, { age: 4711, name: "Ada" });
    assert.deepEqual(wrong, { ok: false, field: "age", reason: "it must be an integer from 0 to 150" });
    assert.deepEqual(checkContent(form, { age: 1 }), { ok: false, field: "name", reason: "it is required: a text" });
    const unknown = checkContent(form, { name: "Ada", admin: true });
    assert.deepEqual([unknown.ok, !unknown.ok && unknown.field], [false, "admin"]);
    assert.equal(checkContent(form, { name: "Ada", toString: "x" }).ok, false);
    assert.deepEqual(checkContent(form, { name: "Ada", age: null }), { ok: true, content: { name: "Ada" } });
  });
});
