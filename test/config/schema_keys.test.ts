import assert from "node:assert/strict";
import { test } from "node:test";
import { Validator } from "@cfworker/json-schema";
import { configJsonSchema } from "../../lib/config/schema_keys.ts";

// The validator's own type wants mutable lists
const validator = new Validator(configJsonSchema() as ConstructorParameters<typeof Validator>[0], "2020-12");

test("the JSON Schema accepts what the gateway accepts and refuses what it refuses", () => {
  for (
    const good of [{}, { gateway: { port: 0 } }, { providers: { a: { kind: "offline" } } }, {
      model_routes: [{ hint: "a", provider: "b", model: "c" }],
    }]
  ) {
    assert.equal(validator.validate(good).valid, true, JSON.stringify(good));
  }
  for (
    const bad of [{ x: 1 }, { gateway: { port: 70000 } }, { gateway: { port: 1.5 } }, { provider: { kind: "?" } }, {
      providers: { "A b": {} },
    }, { model_routes: [{}] }]
  ) {
    assert.equal(validator.validate(bad).valid, false, JSON.stringify(bad));
  }
});

test("the JSON Schema names the defaults and says what each key means", () => {
  const text = JSON.stringify(configJsonSchema());
  assert.match(text, /"default":42617,"description":"Port to listen at/);
});
