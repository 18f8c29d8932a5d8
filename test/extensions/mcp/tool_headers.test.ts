import assert from "node:assert/strict";
import { test } from "node:test";
import { checkTools } from "../../../lib/extensions/mcp/read_lists.ts";

const offered = (properties: Readonly<Record<string, object>>) =>
  checkTools([{ name: "a", inputSchema: { type: "object", properties: properties as Record<string, never> } }]).tools
    .length;

test("a tool is left out whose x-mcp-header is no name, twice there, or for more than a plain value", () => {
  const header = (name: unknown, type: string = "string") => ({ type, "x-mcp-header": name });
  assert.equal(offered({ a: header("Region"), b: header("Zone", "integer"), c: { type: "object" } }), 1);
  for (const name of ["", "a b", "a:b", "é", "a\n", 7]) assert.equal(offered({ a: header(name) }), 0);
  for (const type of ["object", "array", "null", "number"]) assert.equal(offered({ a: header("Region", type) }), 0);
  assert.equal(offered({ a: header("Region"), b: header("REGION") }), 0);
  assert.equal(offered({ a: header("Region"), b: { type: "object", properties: { c: header("Region") } } }), 0);
});
