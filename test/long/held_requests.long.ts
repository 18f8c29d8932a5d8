import assert from "node:assert/strict";
import { test } from "node:test";
import { HELD_LIMITS } from "../../handlers/mcp/held_requests.ts";
import { defineTool } from "../../handlers/mod.ts";
import { withMcpGateway } from "../support/mcp_gateway.ts";
import { until } from "../support/until.ts";

const TOKENS = 24;
const CALLS = 250;

test(`${TOKENS * CALLS} calls that ask and are left: as many wait as may, the others end, and a shutdown ends all`, async () => {
  let asked = 0;
  let aborted = 0;
  let refused = 0;
  const tool = defineTool({
    name: "ask_it",
    description: "Asks",
    access: "read",
    inputSchema: { type: "object", properties: { n: { type: "integer" } }, additionalProperties: false },
    async execute(_input, { ask, signal }) {
      asked++;
      signal.addEventListener("abort", () => aborted++);
      const { action } = await ask({ message: "Who?", schema: { type: "object", properties: {} } });
      if (action === "cancel") refused++;
      return action;
    },
  });
  const config = { gateway: { rate_limit_max: 0 }, autonomy: { approval_timeout_secs: 3_600 } };
  await withMcpGateway({ tools: [tool], config }, async ({ gateway, send, token }) => {
    const held = async () =>
      Number(/^postern_mcp_held_requests (\d+)$/m.exec(await (await gateway.request("/metrics")).text())?.[1]);
    for (let count = 0; count < TOKENS; count++) {
      const owner = await token("tools");
      const replies = Array.from({ length: CALLS }, async (_, n) => {
        const reply = await send({
          token: owner,
          headers: { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "ask_it" },
          body: {
            jsonrpc: "2.0",
            id: n,
            method: "tools/call",
            params: {
              name: "ask_it",
              arguments: { n },
              _meta: {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
                "io.modelcontextprotocol/clientCapabilities": { elicitation: {} },
              },
            },
          },
        });
        await reply.text();
      });
      await Promise.all(replies);
      assert.equal(await held(), Math.min((count + 1) * HELD_LIMITS.perToken, HELD_LIMITS.all));
    }
    assert.equal(asked - refused, HELD_LIMITS.all);
    await gateway.close();
    await until(() => aborted >= HELD_LIMITS.all);
  });
});
