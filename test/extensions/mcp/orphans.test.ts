import assert from "node:assert/strict";
import { test } from "node:test";
import { endSessions } from "../../support/mcp_cycles.ts";

test("no program is left after sessions that end in every way", async () => {
  assert.ok(await endSessions(24) >= 24);
});
