/** Questions of MCP servers whose tools a client of our own `/mcp` calls. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fixtureServer, mcpConfig } from "../support/mcp_bench.ts";
import { MCP_ERAS, type McpGateway, withMcpGateway } from "../support/mcp_gateway.ts";
import { until } from "../support/until.ts";

const CONFIG = {
  ...mcpConfig({
    legacy: fixtureServer({ era: "legacy" }),
    modern: fixtureServer({ era: "modern" }),
    sampling: { ...fixtureServer({ era: "legacy" }), sampling: true },
  }),
  autonomy: { auto_approve: ["mcp__*"], level: "full" as const },
};

const textOf = ({ content }: { content?: unknown }) =>
  (content as { text: string }[]).map(({ text }) => text).join("\n");

async function waitForTools({ ask }: McpGateway): Promise<void> {
  await until(async () => {
    const { data } = await ask("GET", "/v1/tools") as { data: { name: string }[] };
    return ["legacy", "modern", "sampling"].every((name) => data.some((tool) => tool.name === `mcp__${name}__ask`));
  }, "the servers have told their tools");
}

test("what an MCP server asks is put to the client that called, or to the dashboard, and no call hangs", () =>
  withMcpGateway({ config: CONFIG }, async (started) => {
    await waitForTools(started);
    for (const era of MCP_ERAS) {
      for (const server of ["legacy", "modern"]) {
        const what = `${era} client, ${server} server`;
        const token = await started.token("tools");
        const messages: unknown[] = [];
        const able = await started.connect({ token, era, capabilities: { elicitation: { form: {} } } }, (client) => {
          client.setRequestHandler("elicitation/create", ({ params }) => {
            messages.push(params.message);
            return { action: "accept" as const, content: { colour: "green" } };
          });
        });
        const answered = await able.callTool({ name: `mcp__${server}__ask`, arguments: {} });
        assert.match(textOf(answered), /"action":"accept","content":\{"colour":"green"\}/, what);
        assert.deepEqual(messages, [`The MCP server "${server}" asks: Which colour?`], what);

        const silent = await started.connect({ token, era });
        const waiting = silent.callTool({ name: `mcp__${server}__ask`, arguments: {} });
        await until(async () => {
          const { data } = await started.ask("GET", "/v1/approvals?status=pending") as { data: { id: string }[] };
          if (data[0] === undefined) return false;
          await started.ask("POST", `/v1/approvals/${data[0].id}`, { decision: "deny" });
          return true;
        }, `${what}: the dashboard asks`);
        assert.match(textOf(await waiting), /"action":"decline"/, what);
      }
    }
  }));

test("a server that may sample asks the model of the client that called; any other is refused", () =>
  withMcpGateway({ config: CONFIG }, async (started) => {
    await waitForTools(started);
    for (const era of MCP_ERAS) {
      const token = await started.token("tools");
      let sampled = 0;
      const able = await started.connect({ token, era, capabilities: { sampling: {} } }, (client) => {
        client.setRequestHandler("sampling/createMessage", () => {
          sampled++;
          return { role: "assistant" as const, content: { type: "text" as const, text: "Hello" }, model: "theirs" };
        });
      });
      const text = textOf(await able.callTool({ name: "mcp__sampling__sample", arguments: {} }));
      assert.match(text, /"model":"theirs".*"text":"Hello"/s, era);
      for (const server of ["legacy", "modern"]) {
        const refused = await able.callTool({ name: `mcp__${server}__sample`, arguments: {} });
        assert.doesNotMatch(textOf(refused), /Hello/, `${era}, ${server}`);
      }
      const silent = await started.connect({ token, era });
      const refused = await silent.callTool({ name: "mcp__sampling__sample", arguments: {} });
      assert.doesNotMatch(textOf(refused), /Hello/);
      assert.equal(sampled, 1, "the model is asked for the server that may");
    }
  }));
