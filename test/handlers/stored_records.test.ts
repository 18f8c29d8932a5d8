import assert from "node:assert/strict";
import { test } from "node:test";
import { COLLECTIONS } from "../../handlers/stored_records.ts";
import { sourceFiles } from "../support/source_files.ts";

test("every collection that the source declares or writes is in the doctor's list", () => {
  const texts = sourceFiles(["lib", "handlers"]).map(({ text }) => text).join("\n");
  const values = new Map<string, Set<string>>();
  for (const [, name = "", value = ""] of texts.matchAll(/const ([A-Z_]+) = "([a-z_]+)";/g)) {
    values.set(name, (values.get(name) ?? new Set()).add(value));
  }
  const places = [/collection: ([A-Z_]+|"[a-z_]+")/g, /store\.\w+\(\s*([A-Z_]+|"[a-z_]+"),/g];
  const used = new Set(places.flatMap((place) => [...texts.matchAll(place)].map(([, name = ""]) => name)));
  const declared = [...texts.matchAll(/new Collection\(\s*"([a-z_]+)"/g)].map(([, name = ""]) => name);
  const collections = new Set([
    ...declared,
    ...[...used].flatMap((name) => name.startsWith('"') ? [name.slice(1, -1)] : [...(values.get(name) ?? [])]),
  ]);
  assert.ok(collections.size >= 30, [...collections].join());
  assert.deepEqual([...collections].filter((name) => !Object.hasOwn(COLLECTIONS, name)), []);
});

test("what a repair removes beside a damaged record are collections of the list", () => {
  const named = Object.values(COLLECTIONS).flatMap(({ options: { onDamage } }) => [
    ...onDamage?.removes ?? [],
    ...onDamage?.removesBelow === undefined ? [] : [onDamage.removesBelow],
  ]);
  assert.ok(named.length >= 10, named.join());
  assert.deepEqual(named.filter((name) => !Object.hasOwn(COLLECTIONS, name)), []);
});
