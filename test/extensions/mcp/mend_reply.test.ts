import assert from "node:assert/strict";
import { test } from "node:test";
import { isSpecType } from "@modelcontextprotocol/client";
import { LEFT_OUT, mendResult } from "../../../lib/extensions/mcp/mend_reply.ts";

test("an entry with millions of faults is not shown to the SDK, which would write an issue for each", () => {
  const inputSchema = { type: "object" };
  const tools = [{ name: "a", inputSchema }, { name: "vast", inputSchema, icons: new Array(1_000_000).fill(1) }];
  const types = {
    ...isSpecType,
    Tool(value: unknown) {
      assert.doesNotMatch(JSON.stringify(value), /vast/);
      return isSpecType.Tool(value);
    },
  } as typeof isSpecType;
  const { tools: kept, _meta: meta } = mendResult(
    "tools/list",
    { tools, _meta: { own: 1, [LEFT_OUT]: ["forged"] } },
    types,
  );
  assert.deepEqual(kept, tools.slice(0, 1));
  assert.deepEqual(meta, { own: 1, [LEFT_OUT]: ['"vast" is left out: it is larger than 524288 characters'] });
});

test("prompts and resources that break the protocol do not hide the others", () => {
  const rows: readonly (readonly [method: string, field: string, good: object])[] = [
    ["prompts/list", "prompts", { name: "a" }],
    ["resources/list", "resources", { name: "a", uri: "memo://a" }],
    ["resources/templates/list", "resourceTemplates", { name: "a", uriTemplate: "memo://{a}" }],
  ];
  for (const [method, field, good] of rows) {
    const mended = mendResult(method, { [field]: [good, { ...good, description: null }, 5] }, isSpecType);
    assert.deepEqual(mended[field], [good]);
    assert.equal((mended["_meta"] as Record<string, readonly string[]>)[LEFT_OUT]?.length, 2);
  }
});
