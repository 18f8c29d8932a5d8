import assert from "node:assert/strict";
import process from "node:process";
import { describe, test } from "node:test";
import { outliveHttp } from "../support/hostile_http_journey.ts";
import { MCP_ERAS } from "../support/mcp_gateway.ts";

/** Bytes that the process may grow by over all attacks: the servers and the gateway are in it. */
const MAX_GROWTH = 900 * 1_048_576;

describe("the gateway outlives every attack of a server by url at every step", () => {
  const before = process.memoryUsage().rss;
  for (const era of MCP_ERAS) {
    for (const at of ["discover", "initialize", "list", "call", "stream", "close"] as const) {
      test(`${at}, ${era}`, async (t) => {
        await outliveHttp(at, era);
        const grown = process.memoryUsage().rss - before;
        t.diagnostic(`the process has grown by ${Math.round(grown / 1_048_576)} MiB`);
        assert.ok(grown < MAX_GROWTH, `the process has grown by ${grown} bytes`);
      });
    }
  }
});
