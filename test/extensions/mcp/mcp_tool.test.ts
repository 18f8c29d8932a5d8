import assert from "node:assert/strict";
import { test } from "node:test";
import { mcpToolName } from "../../../lib/extensions/mcp/mcp_tool.ts";

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
