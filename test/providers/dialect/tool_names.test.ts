import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createToolNames } from "../../../lib/providers/dialect/tool_names.ts";

const FORM = /^[a-zA-Z0-9_-]{1,64}$/;
const LONG = "mcp__everything__".padEnd(80, "x");

test("names of the vendor's form stay, and others keep their beginning", () => {
  const names = createToolNames(["read_file", "mcp__a__b.c", "Über das", "", `${LONG}1`], FORM);
  assert.equal(names.toVendor("read_file"), "read_file");
  assert.match(names.toVendor("mcp__a__b.c"), /^mcp__a__b_c_[0-9a-f]{10}$/);
  assert.match(names.toVendor(""), /^[a-zA-Z0-9_-]{1,64}$/);
  assert.equal(names.changed, 4);
  assert.equal(names.toOwn("made_up_by_the_model"), "made_up_by_the_model");
});

test("names that differ in a dot, a blank, a letter that looks alike or beyond 64 characters stay apart", () => {
  const given = ["a.b", "a_b", "a b", "a-b", "\u0430_b", "a..b", `${LONG}1`, `${LONG}2`];
  const names = createToolNames(given, FORM);
  assert.equal(new Set(given.map(names.toVendor)).size, given.length);
  assert.deepEqual(given.map(names.toVendor).map(names.toOwn), given);
});

test("a tool that has the name another one would get does not become that one", () => {
  const first = createToolNames(["a.b"], FORM).toVendor("a.b");
  const names = createToolNames(["a.b", first], FORM);
  assert.equal(names.toVendor(first), first);
  assert.equal(names.toOwn(first), first);
  assert.notEqual(names.toVendor("a.b"), first);
  assert.equal(names.toOwn(names.toVendor("a.b")), "a.b");
});

test("any names are mapped to names of the form, each to its own, whatever comes beside them", () => {
  const form = /^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$/;
  const name = fc.oneof(
    fc.string({ unit: "grapheme", maxLength: 12 }),
    fc.stringMatching(/^[a-z_.-]{1,4}$/),
    fc.stringMatching(/^[a-z]\.?[a-z]{60,70}$/),
  );
  fc.assert(fc.property(fc.array(name, { maxLength: 20 }), (given) => {
    const names = createToolNames(given, form);
    const mapped = given.map(names.toVendor);
    for (const vendor of mapped) assert.match(vendor, form);
    assert.deepEqual(mapped.map(names.toOwn), given);
    assert.equal(new Set(mapped).size, new Set(given).size);
    for (const one of given.filter((each) => form.test(each))) assert.equal(names.toVendor(one), one);
    const again = createToolNames([...given].reverse(), form);
    assert.deepEqual(given.map(again.toVendor), mapped, "the order does not count");
  }));
});
