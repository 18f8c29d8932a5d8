import assert from "node:assert/strict";
import process from "node:process";
import { describe, test } from "node:test";
import { fixtureServer, mcpConfig } from "../../support/mcp_bench.ts";
import { type RunningGateway, withRunningGateway } from "../../support/running_gateway.ts";
import { until } from "../../support/until.ts";

const ENVIRONMENT = { PATH: process.env["PATH"] ?? "" };

const toolsOf = async (gateway: RunningGateway) => {
  const { data } = await (await gateway.call("/v1/tools")).json() as {
    readonly data: readonly { readonly name: string; readonly access: string; readonly source: string }[];
  };
  return data.filter(({ name }) => name.startsWith("mcp__"));
};

describe("tools of MCP servers in a gateway", () => {
  test("they are offered under the server's name, with the operator's word on their access, and are called by the policy", () =>
    withRunningGateway({
      environment: ENVIRONMENT,
      config: {
        ...mcpConfig({ one: fixtureServer(), broken: fixtureServer({ dead: true, stderr: "no key\n" }) }),
        tools: { mcp__one__echo: { access: "read" } },
        autonomy: { auto_approve: ["mcp__one__echo"] },
      },
    }, async (gateway) => {
      await until(async () => (await toolsOf(gateway)).length > 0, "the tools are offered");
      const tools = await toolsOf(gateway);
      assert.deepEqual(tools.slice(4, 6).map(({ name, access, source }) => [name, access, source]), [
        ["mcp__one__echo", "read", "mcp"],
        ["mcp__one__env", "network", "mcp"],
      ]);
      const call = (name: string, input: object) =>
        gateway.call(`/v1/tools/${name}/call`, { method: "POST", body: { input: JSON.stringify(input) } });
      const called = await call("mcp__one__echo", { text: "hello" });
      assert.match(await called.text(), /hello/);
      const refused = await (await call("mcp__one__env", {})).text();
      assert.match(refused, /approval/);
      await until(
        () => gateway.log.some(({ message }) => message === "An MCP server has failed"),
        "the failure is told",
      );
      const reason = gateway.log.find(({ message }) => message === "An MCP server has failed")?.fields["reason"];
      assert.match(String(reason), /"broken".*code 7.*no key/);
    }));
});
