import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { fixtureServer, mcpConfig } from "../../support/mcp_bench.ts";
import { configOf, type RunningGateway, withRunningGateway } from "../../support/running_gateway.ts";
import { isGone } from "../../support/is_gone.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
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

describe("a change of the configuration while the gateway runs", () => {
  const offline = { provider: { kind: "offline" } };
  const namesOf = async (
    gateway: RunningGateway,
  ) => [...new Set((await toolsOf(gateway)).map(({ name }) => name.split("__")[1]))];

  test("begins servers, restarts those with other settings, and ends those that go", () =>
    withTemporaryFolder((folder) =>
      withRunningGateway({ environment: ENVIRONMENT }, async (gateway) => {
        const notes = join(folder, "notes");
        const starts = () => readFileSync(notes, "utf8").split("\n").filter((line) => line.startsWith("start "));
        const take = async (tables: Readonly<Record<string, unknown>>) => {
          await gateway.services.reload(() => Promise.resolve(configOf({ ...offline, ...tables })));
          assert.deepEqual((await gateway.services.facts.status()).config.needs_restart, []);
        };
        const one = { ...fixtureServer({ log: notes }), env: { GREETING: "Hello" } };
        const greeting = async () => {
          const reply = await gateway.call("/v1/tools/mcp__one__env/call", { body: { approved: true } });
          return /"GREETING":"(\w+)"/.exec(String((await reply.json() as { output: string }).output))?.[1];
        };
        assert.deepEqual(await namesOf(gateway), []);
        await take(mcpConfig({ one }));
        await until(async () => (await namesOf(gateway)).includes("one"), "the first server is there");
        assert.equal(await greeting(), "Hello");

        await take(mcpConfig({ one, two: fixtureServer() }));
        await until(async () => (await namesOf(gateway)).includes("two"), "a second server is there");
        assert.equal(starts().length, 1, "the first one was left alone");

        await take(mcpConfig({ one: { ...one, env: { GREETING: "Goodbye" } } }));
        await until(async () => await greeting() === "Goodbye", "the server has its new settings");
        assert.deepEqual([await namesOf(gateway), starts().length], [["one"], 2]);

        await take({});
        await until(async () => (await namesOf(gateway)).length === 0, "no server is left");
        for (const line of starts()) assert.ok(await isGone(line.split(" ")[1] ?? ""), line);
      })
    ));
});
