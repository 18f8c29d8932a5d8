import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type CliMachine, withCliMachine } from "../../../support/cli_process.ts";
import { MCP_ERAS } from "../../../support/mcp_gateway.ts";
import { connectProcess } from "../../../support/mcp_process.ts";

/** Writes a configuration whose gateway takes a free port, and returns the flags that name it. */
function onFreePort({ home }: CliMachine): readonly string[] {
  const path = join(home, "postern.toml");
  writeFileSync(path, "[gateway]\nport = 0\n");
  return ["--config", path];
}

test("mcp serve --no-start refuses where no gateway runs, and writes nothing to standard output", async () => {
  await withCliMachine(async (machine) => {
    const { code, stdout, stderr } = await machine.run(["mcp", "serve", "--no-start", ...onFreePort(machine)]);
    assert.deepEqual([code, stdout], [1, ""]);
    assert.match(stderr, /^Cannot reach a gateway: none runs on .*; start it with postern daemon start/);
  });
});

test("two clients of both eras at once start one daemon, and each is served", async () => {
  await withCliMachine(async (machine) => {
    const flags = onFreePort(machine);
    const clients = await Promise.all(MCP_ERAS.map((era) => connectProcess(machine, ["mcp", "serve", ...flags], era)));
    const list = () => Promise.all(clients.map(async ({ client }) => (await client.listTools()).tools.length));
    const [old = 0, next] = await list();
    assert.ok(old > 20);
    assert.equal(old, next);
    const call = { name: "glob_search", arguments: { pattern: "*" } };
    const results = await Promise.all(clients.map(({ client }) => client.callTool(call)));
    assert.deepEqual(results.map(({ isError }) => isError ?? false), [false, false]);
    const ends = await Promise.all(clients.map((client) => client.end()));
    assert.deepEqual(ends.map(({ code }) => code), [0, 0], ends.map(({ stderr }) => stderr).join("\n"));
  });
});
