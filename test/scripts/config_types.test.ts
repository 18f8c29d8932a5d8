import assert from "node:assert/strict";
import { test } from "node:test";
import { allKeys } from "../../lib/config/schema_keys.ts";
import { configTypes } from "../../scripts/config_types.ts";

test("the type of the configuration in the package names each key of the schema, with its meaning", () => {
  const lines = configTypes().split("\n");
  const names = lines.flatMap((line, index) => {
    const [, name] = /^ +readonly (\w+)\??: /.exec(line) ?? [];
    if (name !== undefined) assert.match(lines[index - 1] ?? "", /^ +\/\*\* .+ \*\/$/, line);
    return name === undefined ? [] : [name];
  });
  const keys = allKeys().flatMap((key) => key.split(".")).filter((part) => !part.startsWith("<"));
  // Keys of another table have the names of the two parts of a secret's place
  assert.deepEqual(new Set(names), new Set(keys));
});
