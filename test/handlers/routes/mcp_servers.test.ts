import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import process from "node:process";
import { test } from "node:test";
import { createTestGateway } from "../../../handlers/testing/mod.ts";
import type { McpServerInfo } from "../../../lib/base/records/extension_views.ts";
import { fixtureServer, mcpConfig } from "../../support/mcp_bench.ts";
import { type RunningGateway, withRunningGateway } from "../../support/running_gateway.ts";
import { errorOf } from "../../support/test_router.ts";
import { until } from "../../support/until.ts";

const VALUE = 'the "forge" key/7+8';
const LEAK = {
  name: "leak",
  description: `Uses ${VALUE}, in JSON ${JSON.stringify(VALUE)}`,
  inputSchema: { type: "object", properties: { key: { type: "string", description: btoa(VALUE) } } },
};
const NAMED = { name: "named-the-forge-key-9", description: "Its name is a secret", inputSchema: { type: "object" } };
const CONFIG = {
  ...mcpConfig({
    one: { ...fixtureServer({ tools: [LEAK, NAMED], stderr: `key ${VALUE}\n` }), env: { TOKEN: { secret: "forge" } } },
    broken: fixtureServer({ dead: true, stderr: `no ${VALUE}\n` }),
    poor: { ...fixtureServer(), env: { TOKEN: { secret: "none" } } },
    outside: fixtureServer(),
  }),
  security: { mcp: { enabled: true, allowed_servers: ["one", "broken", "poor"] } },
  secrets: {
    forge: { env: "FORGE", mcp: ["one"] },
    none: { env: "NOT_SET", mcp: ["poor"] },
    name: { env: "NAME", mcp: ["one"] },
  },
  autonomy: { level: "full" },
};
const ENVIRONMENT = { PATH: process.env["PATH"] ?? "", FORGE: VALUE, NAME: "named-the-forge-key-9" };

const serverOf = async (gateway: RunningGateway, name: string) =>
  await (await gateway.call(`/v1/mcp-servers/${name}`)).json() as McpServerInfo;
const post = async (gateway: RunningGateway, path: string) => {
  const reply = await gateway.call(`/v1/mcp-servers/${path}`, { method: "POST" });
  return { status: reply.status, body: await reply.json() as McpServerInfo & { error?: { message: string } } };
};
const toolsOf = async (gateway: RunningGateway) => await (await gateway.call("/v1/tools")).text();

test("servers are shown, turned off and on, and restarted, and no secret that they send back is shown", () =>
  withRunningGateway({ environment: ENVIRONMENT, config: CONFIG }, async (gateway) => {
    const seen: string[] = [];
    await until(async () => (await serverOf(gateway, "one")).state === "ready", "one is ready");
    await until(async () => (await serverOf(gateway, "broken")).state === "failed", "broken has failed");
    await until(async () => (await serverOf(gateway, "poor")).state === "failed", "poor has failed");

    const list = await (await gateway.call("/v1/mcp-servers")).json() as { readonly data: readonly McpServerInfo[] };
    seen.push(JSON.stringify(list));
    assert.deepEqual(list.data.map(({ name, state }) => [name, state]), [
      ["broken", "failed"],
      ["one", "ready"],
      ["outside", "disabled"],
      ["poor", "failed"],
    ]);
    const [broken, one, outside, poor] = list.data;
    assert.deepEqual([one?.transport, one?.era, one?.sandbox], ["stdio", "legacy", "off"]);
    assert.match(one?.rights ?? "", /with your rights/);
    assert.equal(one?.log_tail, "key [redacted]\n");
    const leak = one?.tools.find(({ name }) => name === "leak");
    assert.deepEqual([leak?.tool, leak?.description], ["mcp__one__leak", 'Uses [redacted], in JSON "[redacted]"']);
    assert.ok(one?.tools.every(({ name }) => name !== NAMED.name));
    assert.match(broken?.last_error?.message ?? "", /code 7.*no \[redacted\]/s);
    assert.match(poor?.last_error?.message ?? "", /\[secrets\.none\]: it cannot be read or is empty/);
    assert.match(outside?.reason ?? "", /add "outside" to \[security\.mcp\] allowed_servers/);

    const called = await gateway.call("/v1/tools/mcp__one__env/call", { method: "POST", body: { input: "{}" } });
    seen.push(await called.text(), await toolsOf(gateway), JSON.stringify(gateway.log));
    assert.match(seen.at(-3) ?? "", /TOKEN.*\[redacted\]/);

    const refused = await post(gateway, "outside/enable");
    assert.deepEqual([refused.status, /allowed_servers/.test(refused.body.error?.message ?? "")], [409, true]);
    assert.match((await post(gateway, "outside/restart")).body.error?.message ?? "", /it is off; add "outside"/);
    assert.equal((await post(gateway, "none/enable")).status, 404);

    const off = await post(gateway, "one/disable");
    assert.deepEqual([off.status, off.body.state], [200, "disabled"]);
    assert.match(off.body.reason ?? "", /run postern mcp enable one/);
    assert.doesNotMatch(await toolsOf(gateway), /mcp__one__/);
    assert.match((await post(gateway, "one/restart")).body.error?.message ?? "", /run postern mcp enable one/);
    assert.notEqual((await post(gateway, "one/enable")).body.state, "disabled");
    await until(async () => (await toolsOf(gateway)).includes("mcp__one__echo"), "the tools are back");
    const again = await post(gateway, "one/restart");
    assert.deepEqual([again.body.state, again.body.last_error], ["ready", null]);
    assert.equal((await post(gateway, "broken/restart")).body.state, "failed");

    const { data } = await (await gateway.call("/v1/audit?type=mcp_server")).json() as {
      readonly data: readonly { readonly action: string; readonly server: string }[];
    };
    assert.deepEqual(data.map(({ action, server }) => `${action} ${server}`).sort(), [
      "disabled one",
      "enabled one",
      "restarted broken",
      "restarted one",
    ]);
    const metrics = await (await gateway.call("/metrics")).text();
    assert.match(metrics, /postern_mcp_calls_total\{server="one",outcome="ok"\} 1/);
    assert.match(metrics, /postern_mcp_connections 1/);
    seen.push(metrics, JSON.stringify(data));
    for (const form of [VALUE, JSON.stringify(VALUE).slice(1, -1), btoa(VALUE), Buffer.from(VALUE).toString("hex")]) {
      assert.ok(!seen.join("\n").includes(form), form);
    }
  }));

test("the routes are for admins, and name the key while MCP is off", async (t) => {
  const gateway = await createTestGateway();
  t.after(() => gateway.close());
  const missing = await gateway.request("/v1/mcp-servers/none");
  assert.deepEqual([missing.status, (await errorOf(missing)).code], [404, "not_found"]);
  assert.deepEqual(await (await gateway.request("/v1/mcp-servers")).json(), {
    object: "list",
    data: [],
    has_more: false,
    last_id: null,
  });
});
