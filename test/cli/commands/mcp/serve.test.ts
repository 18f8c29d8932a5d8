import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type CliMachine, withCliMachine } from "../../../support/cli_process.ts";
import { MCP_ERAS } from "../../../support/mcp_gateway.ts";
import { onMachine } from "../../support/run_in.ts";
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

test("mcp serve starts no daemon in a folder that nobody chose: the root, and the home folder", () =>
  onMachine(async ({ run, home }) => {
    for (const cwd of ["/", home]) {
      const { code, stdout, stderr } = await run(["mcp", "serve"], { cwd });
      assert.deepEqual([code, stdout], [1, ""]);
      assert.equal(
        stderr,
        `Cannot start the daemon: the agent would work in "${cwd}", where this program was started; name its folder with --workspace\n`,
      );
    }
  }));

/** The part of a client's configuration that says how to start a server. */
interface StartedServer {
  readonly command: string;
  readonly args: readonly string[];
}

/** Reads the configurations of docs/mcp.md that start a program, as their clients do. */
function configurations(): readonly StartedServer[] {
  const page = readFileSync(new URL("../../../../docs/mcp.md", import.meta.url), "utf8");
  const blocks = [...page.matchAll(/^```json\n(.*?)^```/gms)].map(([, text = ""]) => JSON.parse(text));
  const servers = blocks.map(({ mcpServers, servers: byVsCode }) => (mcpServers ?? byVsCode).postern);
  return servers.filter((server) => server.url === undefined);
}

test("each configuration of the documentation starts a server, all at once and with one daemon", async () => {
  await withCliMachine(async (machine) => {
    // The port that everybody has may be taken on the machine of the test
    const folder = join(machine.home, ".config/postern");
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "postern.toml"), "[gateway]\nport = 0\n");
    const found = configurations();
    assert.deepEqual(found.map(({ command, args }) => [command, ...args].join(" ")), [
      "postern mcp serve",
      "postern mcp serve",
    ]);
    const clients = await Promise.all(
      found.map(({ args }, index) => connectProcess(machine, args, MCP_ERAS[index % 2] ?? MCP_ERAS[0])),
    );
    const counts = await Promise.all(clients.map(async ({ client }) => (await client.listTools()).tools.length));
    assert.ok(counts.every((count) => count === counts[0] && count > 20), counts.join());
    const call = { name: "glob_search", arguments: { pattern: "*" } };
    const results = await Promise.all(clients.map(({ client }) => client.callTool(call)));
    assert.deepEqual(results.map(({ isError }) => isError ?? false), [false, false]);
    const ends = await Promise.all(clients.map((client) => client.end()));
    assert.deepEqual(ends.map(({ code }) => code), [0, 0], ends.map(({ stderr }) => stderr).join("\n"));
    await machine.run(["daemon", "stop"]);
  });
});
