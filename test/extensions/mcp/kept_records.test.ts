import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { fixtureServer, mcpConfig } from "../../support/mcp_bench.ts";
import { configOf, withRunningGateway } from "../../support/running_gateway.ts";
import { until } from "../../support/until.ts";

const TOOL = (description: string) => ({
  only: [{ name: "echo", description, inputSchema: { type: "object" } }],
});

test("a server that left the configuration is kept until it is forgotten, and one of the configuration is not forgotten", () =>
  withRunningGateway({
    environment: { PATH: process.env["PATH"] ?? "" },
    config: mcpConfig({ one: fixtureServer(TOOL("Old")) }),
  }, async (gateway) => {
    const take = async (tables: Readonly<Record<string, unknown>>) =>
      void await gateway.services.reload(() => Promise.resolve(configOf({ provider: { kind: "offline" }, ...tables })));
    const json = async (path: string) => await (await gateway.call(path)).json() as Record<string, unknown>;
    const kept = async () => (await json("/v1/mcp-records"))["data"];
    const forget = (name: string) => gateway.call(`/v1/mcp-records/${name}`, { method: "DELETE" });
    const echo = () => json("/v1/tools/mcp__one__echo");
    await until(async () => (await echo())["enabled"] === true, "the tool is there");
    const record = { name: "one", object: "mcp_record", accepted_tools: 1, sign_in: false };
    assert.deepEqual(await kept(), []);
    const refused = await forget("one");
    assert.equal(refused.status, 409);
    assert.match(await refused.text(), /postern mcp remove one/);

    await take({});
    assert.deepEqual(await kept(), [record]);
    await take(mcpConfig({ one: fixtureServer(TOOL("New")) }));
    await until(async () => /postern mcp changes one/.test(String((await echo())["reason"])), "the old one counts");

    await take({});
    await until(async () => (await echo())["error"] !== undefined, "the server has ended");
    assert.equal((await forget("one")).status, 204);
    assert.deepEqual([await kept(), (await forget("one")).status], [[], 404]);
    await take(mcpConfig({ one: fixtureServer(TOOL("New")) }));
    await until(async () => (await echo())["enabled"] === true, "the server is seen for the first time");
    const { data } = await json("/v1/audit?type=mcp_server") as { data: readonly { action: string; server: string }[] };
    assert.deepEqual(data.map(({ action, server }) => [action, server]), [["forgotten", "one"]]);
  }));
