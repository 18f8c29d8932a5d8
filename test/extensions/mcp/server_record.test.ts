import assert from "node:assert/strict";
import { test } from "node:test";
import type { McpToolDefinition } from "../../../lib/extensions/mcp/mcp_connection.ts";
import { KnownServers, NOTHING_KNOWN } from "../../../lib/extensions/mcp/server_record.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { createFakeServices } from "../../support/fake_services.ts";
import { fixtureServer, mcpConfig } from "../../support/mcp_bench.ts";
import { configOf } from "../../support/running_gateway.ts";

const TOOL: McpToolDefinition = {
  name: "echo",
  title: undefined,
  description: "Gives its text back",
  inputSchema: {},
  outputSchema: undefined,
  hints: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  digest: "0".repeat(64),
};

test("a list of tools that is too large is not kept, which the log says once for each server", async () => {
  const { log, logged } = createFakeServices();
  const store = createMemoryStore();
  const config = configOf(mcpConfig({ one: fixtureServer(), two: fixtureServer() }));
  const read = () => KnownServers.read({ store, log, config: () => config });
  const listOf = (description: string) => ({ tools: [{ ...TOOL, description }], at: 1, ttlMs: undefined, leftOut: [] });
  const known = await read();
  const large = { ...NOTHING_KNOWN, list: listOf("x".repeat(2 * 1_048_576)) };
  await known.write("one", large);
  await known.write("one", large);
  await known.write("two", { ...NOTHING_KNOWN, list: listOf("Small") });
  assert.deepEqual(logged.map(({ level, fields }) => [level, fields["server"]]), [["warn", "one"]]);
  assert.match(logged[0]?.message ?? "", /too large to be kept/);
  const next = await read();
  assert.deepEqual([next.of("one").list, next.of("two").list?.tools.length], [undefined, 1]);
});
