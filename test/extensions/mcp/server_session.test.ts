import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "@modelcontextprotocol/client";
import { loadSdk } from "../../../lib/extensions/mcp/load_sdk.ts";
import { McpError } from "../../../lib/extensions/mcp/mcp_error.ts";
import { ServerSession } from "../../../lib/extensions/mcp/server_session.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

test("a request in a session that is over says why it ended, and that nothing was sent", async () => {
  const session = new ServerSession(
    new Client({ name: "postern", version: "1" }, { capabilities: { elicitation: {} } }),
    {
      server: "noisy",
      sdk: await loadSdk("noisy"),
      clock: createFakeClock(),
      timeoutMs: 1_000,
      onEvent: () => {},
      onLog: () => {},
      fault: () => "it sent more than 10000 messages of no use",
    },
  );
  session.ended();
  const { signal } = new AbortController();
  await assert.rejects(session.request("tools/call", { name: "echo" }, { signal }), (error) => {
    assert.ok(error instanceof McpError);
    assert.equal(error.code, "mcp_lost");
    assert.equal(error.written, false);
    assert.match(error.message, /"noisy": it sent more than 10000 messages of no use$/);
    return true;
  });
});
