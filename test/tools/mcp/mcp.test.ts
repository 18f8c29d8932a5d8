import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { mcpToolName } from "../../../lib/tools/mcp/mcp.ts";

test("a tool keeps its name where that is plainly its server's, and no two tools have one name", () => {
  assert.equal(mcpToolName("files", "read"), "mcp__files__read");
  assert.equal(mcpToolName("files", "read__all"), "mcp__files__read__all");
  assert.equal(mcpToolName("files", "_read"), "mcp__files___read");
  const tools = [
    ...[["files", "read"], ["files__read", "all"], ["files", "read__all"], ["files_", "read"], ["files", "_read"]],
    ...[["files", "read.all"], ["files", "read all"], ["files", "read_all"], ["files.", "read"], ["filés", "read"]],
    ...[["files", "a".repeat(64)], ["files", `${"a".repeat(64)}b`], ["f".repeat(80), "a"], ["f".repeat(80), "b"]],
  ] as const;
  const names = tools.map(([server = "", tool = ""]) => mcpToolName(server, tool));
  assert.deepEqual(names.filter((name) => !/^[a-zA-Z0-9_-]{1,64}$/.test(name)), []);
  assert.equal(new Set(names).size, tools.length, names.join("\n"));
});

test("no server can call a tool so that it gets the name of another tool, of its own or of another server", () => {
  const targets = [["files", "read.all"], ["files__read", "all"], ["a", "x".repeat(80)]] as const;
  for (const [server, tool] of targets) {
    const name = mcpToolName(server, tool);
    for (const squatter of ["files", "a", server]) {
      const crafted = name.slice(`mcp__${squatter}__`.length);
      assert.notEqual(mcpToolName(squatter, crafted), name, `${squatter} ${crafted}`);
    }
  }
});

test("whatever servers and tools are called, each name is valid and there once", () => {
  const name = fc.oneof(
    fc.string({ unit: "grapheme", minLength: 1, maxLength: 90 }),
    fc.stringMatching(/^[a_]{1,4}$/),
    fc.stringMatching(/^[a-c._-]{1,5}$/),
  );
  const tools = fc.uniqueArray(fc.tuple(name, name), { maxLength: 20, selector: (pair) => JSON.stringify(pair) });
  fc.assert(fc.property(tools, (pairs) => {
    const names = pairs.map(([server, tool]) => mcpToolName(server, tool));
    for (const each of names) assert.match(each, /^[a-zA-Z0-9_-]{1,64}$/);
    assert.equal(new Set(names).size, pairs.length, names.join(" "));
  }));
});
