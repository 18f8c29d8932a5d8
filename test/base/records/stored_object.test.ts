import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import {
  storedObject,
  toStoredJson,
  UNKNOWN_FIELDS,
  unknownFieldsOf,
} from "../../../lib/base/records/stored_object.ts";

const schema = storedObject({
  v: v.literal(1),
  name: v.string(),
  part: v.optional(storedObject({ one: v.number() })),
  list: v.optional(v.array(storedObject({ id: v.string() }))),
});

test("fields that a schema does not know are written back, and stand in nothing that is sent", () => {
  const stored = {
    ...{ v: 1, name: "a", new: { deep: [1] } },
    part: { one: 1, new: 2 },
    list: [{ id: "x", new: 3 }, { id: "y" }],
  };
  const record = v.parse(schema, stored);
  assert.equal(JSON.stringify(record), '{"v":1,"name":"a","part":{"one":1},"list":[{"id":"x"},{"id":"y"}]}');
  assert.deepEqual(JSON.parse(toStoredJson({ ...record, name: "b" }) ?? ""), { ...stored, name: "b" });
  const { v: _version, ...rest } = record;
  assert.deepEqual(JSON.parse(toStoredJson({ v: 1, ...rest }) ?? ""), stored, "also by the rest of a record");
  assert.deepEqual(JSON.parse(toStoredJson({ v: 1, name: "c", list: record.list }) ?? "").list, stored.list);
  assert.deepEqual(JSON.parse(toStoredJson({ ...unknownFieldsOf(record), v: 1, name: "c" }) ?? ""), {
    ...{ v: 1, name: "c", new: { deep: [1] } },
  });
});

test("a record without unknown fields is as its schema parses it", () => {
  const record = v.parse(schema, { v: 1, name: "a" });
  assert.deepEqual(Reflect.ownKeys(record), ["v", "name"]);
  assert.deepEqual([unknownFieldsOf(record), unknownFieldsOf(undefined)], [{}, {}]);
  assert.equal(toStoredJson(record), '{"v":1,"name":"a"}');
  assert.equal(toStoredJson(undefined), undefined);
  assert.throws(() => v.parse(schema, { v: 2, name: "a" }), v.ValiError);
});

test("a known field that a newer record has twice is the known one", () => {
  const record = { [UNKNOWN_FIELDS]: { name: "other" }, v: 1, name: "a" };
  assert.equal(JSON.parse(toStoredJson(record) ?? "").name, "a");
});
