import assert from "node:assert/strict";
import { test } from "node:test";
import { defineTool } from "../../../handlers/mod.ts";
import { MCP_ERAS, withMcpGateway } from "../../support/mcp_gateway.ts";
import { until } from "../../support/until.ts";

const MANY = Array.from({ length: 70 }, (_, at) =>
  defineTool({
    name: `fruit_${at}`,
    description: at === 7 ? "Counts the kumquats" : "Does something",
    access: "read",
    outside: false,
    inputSchema: { type: "object" },
    execute: () => `fruit ${at}`,
  }));

for (const era of MCP_ERAS) {
  test(`a client of a gateway with many tools gets few, finds the others, and calls them by name (${era})`, () =>
    withMcpGateway({ tools: MANY }, async ({ token, connect }) => {
      const client = await connect({ token: await token("tools"), era });
      const other = await connect({ token: await token("tools"), era });
      const names = async (of = client) =>
        (await of.listTools({}, { cacheMode: "refresh" })).tools.map(({ name }) => name);
      const first = await names();
      assert.ok(first.length <= 60 && first.includes("tool_search") && first.includes("read_file"), first.join());
      assert.ok(!first.some((name) => name.startsWith("fruit_")));
      const call = async (name: string, input: Record<string, unknown> = {}) =>
        JSON.stringify((await client.callTool({ name, arguments: input })).content);
      assert.match(await call("tool_search", { query: "kumquats" }), /fruit_7: Counts the kumquats/);
      assert.deepEqual((await names()).filter((name) => !first.includes(name)), ["fruit_7"]);
      assert.match(await call("fruit_9"), /fruit 9/);
      assert.deepEqual((await names()).filter((name) => !first.includes(name)), ["fruit_7", "fruit_9"]);
      assert.deepEqual(await names(other), first, "another token found nothing");
    }));

  test(`[mcp.server] tools and the patterns of a token bound what a client sees, finds and calls (${era})`, () =>
    withMcpGateway({ config: { mcp: { server: { tools: ["echo", "fetched", "tool_search"] } } } }, async (gateway) => {
      const create = (body: object) => gateway.ask("POST", "/v1/tokens", { scopes: ["tools"], ...body });
      const { token, tools } = await create({ tools: ["echo", "read_*"] }) as { token: string; tools: unknown };
      assert.deepEqual(tools, ["echo", "read_*"]);
      const client = await gateway.connect({ token, era });
      assert.deepEqual((await client.listTools()).tools.map(({ name }) => name), ["echo"]);
      const call = (name: string) => client.callTool({ name, arguments: { text: "hi" } });
      assert.match(JSON.stringify(await call("echo")), /hi/);
      for (const name of ["fetched", "read_file"]) await assert.rejects(call(name), /there is no such tool/);
      const found = await client.callTool({ name: "tool_search", arguments: { query: "text" } });
      assert.doesNotMatch(JSON.stringify(found), /fetched:/);
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const direct = await gateway.gateway.request("/v1/tools/fetched/call", {
        method: "POST",
        headers,
        body: '{"input":{"text":"hi"}}',
      });
      const { error: refusal } = await direct.json() as { error: { message: string } };
      assert.deepEqual([direct.status, refusal.message], [
        403,
        'Cannot call "fetched": the tools of this token do not name it',
      ]);
      const { data } = await (await gateway.gateway.request("/v1/tools", { headers })).json() as {
        data: readonly { name: string }[];
      };
      assert.ok(data.every(({ name }) => name === "echo" || name.startsWith("read_")));
      for (const bad of [{ tools: [] }, { tools: ["*x"] }, { scopes: ["tools", "runs"], tools: ["echo"] }]) {
        const { error } = await create(bad) as { error?: { param?: string } };
        assert.equal(error?.param, "tools", JSON.stringify(bad));
      }
    }));
}

test("a client that listens is told when a search has found more", () =>
  withMcpGateway({ tools: MANY }, async ({ token, connect }) => {
    let told = 0;
    const client = await connect({ token: await token("tools"), era: "2025-11-25" }, (made) => {
      made.setNotificationHandler("notifications/tools/list_changed", () => void told++);
    });
    await client.listTools();
    // The list is looked at once a second
    await until(async () => {
      await client.callTool({ name: `fruit_${told}`, arguments: {} });
      return told > 0;
    }, "it is told");
  }));
