import assert from "node:assert/strict";
import { test } from "node:test";
import { BUILTIN_TOOLS } from "../../../lib/tools/builtin.ts";
import { createToolRegistry, matchesPatterns } from "../../../lib/tools/runtime/registry.ts";
import type { Tool } from "../../../lib/tools/runtime/tool.ts";

const [sample] = BUILTIN_TOOLS;
const named = (name: string): Tool => ({ ...(sample as Tool), name });

test("a registry knows its tools by name and refuses two of one name", () => {
  const registry = createToolRegistry([named("b"), named("a")]);
  assert.deepEqual(registry.tools.map((tool) => tool.name), ["a", "b"]);
  assert.equal(registry.byName.get("b")?.name, "b");
  assert.equal(registry.byName.get("constructor"), undefined);
  assert.throws(() => createToolRegistry([named("a"), named("a")]), /registered twice/);
});

test("a registry refuses names that models cannot call", () => {
  for (const name of ["", "1a", "a b", "a.b", "ä", "a\n", "a".repeat(65)]) {
    assert.throws(() => createToolRegistry([named(name)]), TypeError, JSON.stringify(name));
  }
  createToolRegistry([named("mcp__server__read-file")]);
});

test("a tool of others whose name is wrong or taken is left out, and the others stay", () => {
  const other = (name: string): Tool => ({ ...named(name), source: "mcp", origin: "mcp files" });
  const reasons: string[] = [];
  const foreign = [other("a"), other("m"), other("m"), other("b.c"), other("z")];
  const registry = createToolRegistry([named("a")], foreign, (reason) => reasons.push(reason));
  assert.deepEqual(registry.tools.map((tool) => tool.name), ["a", "m", "z"]);
  assert.equal(registry.byName.get("a")?.source, "builtin");
  assert.equal(registry.byName.get("m"), foreign[1]);
  assert.equal(reasons.length, 3);
  assert.equal(reasons[0], 'Tool "a" is registered twice; the tool of mcp files is left out');
  assert.match(reasons[2] ?? "", /^Tool name "b\.c" is not of .*; the tool of mcp files is left out$/);
});

test("patterns name tools whole or by their start; none means no tool", () => {
  const cases: readonly (readonly [name: string, patterns: readonly string[], matches: boolean])[] = [
    ["read_file", ["*"], true],
    ["read_file", ["read_file"], true],
    ["read_file", ["read_*"], true],
    ["read_file", ["read"], false],
    ["read_file", ["READ_FILE"], false],
    ["read_file", ["*file"], false],
    ["read_file", [], false],
    ["read_file", ["a", "read*"], true],
  ];
  for (const [name, patterns, matches] of cases) {
    assert.equal(matchesPatterns(name, patterns), matches, patterns.join());
  }
});
