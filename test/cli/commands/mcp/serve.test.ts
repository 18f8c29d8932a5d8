import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type ControlRecord, readControlFile } from "../../../../lib/host/control_file.ts";
import { type CliMachine, withCliMachine } from "../../../support/cli_process.ts";
import { MCP_ERAS } from "../../../support/mcp_gateway.ts";
import { until } from "../../../support/until.ts";
import { onMachine } from "../../support/run_in.ts";
import { connectProcess } from "./mcp_process.ts";

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

/** The part of a client's configuration that says how to start a server, or where it is. */
interface ConfiguredServer {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly url?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Reads the configurations of docs/mcp.md, as their clients do. */
function configurations(): readonly ConfiguredServer[] {
  const page = readFileSync(new URL("../../../../docs/mcp.md", import.meta.url), "utf8");
  const blocks = [...page.matchAll(/^```json\n(.*?)^```/gms)].map(([, text = ""]) => JSON.parse(text));
  return blocks.map(({ mcpServers, servers: byVsCode }) => (mcpServers ?? byVsCode).postern);
}

test("each configuration of the documentation starts a server, all at once and with one daemon", async () => {
  await withCliMachine(async (machine) => {
    // The port that everybody has may be taken on the machine of the test
    const folder = join(machine.home, ".config/postern");
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "postern.toml"), "[gateway]\nport = 0\n");
    const found = configurations().filter(({ url }) => url === undefined);
    assert.deepEqual(found.map(({ command, args }) => [command, ...args].join(" ")), [
      "postern mcp serve",
      "postern mcp serve",
      "postern mcp serve --token-env POSTERN_AGENT_TOKEN",
    ]);
    const own = found.filter(({ env }) => env === undefined);
    const clients = await Promise.all(
      own.map(({ args }, index) => connectProcess(machine, args, MCP_ERAS[index % 2] ?? MCP_ERAS[0])),
    );
    const counts = await Promise.all(clients.map(async ({ client }) => (await client.listTools()).tools.length));
    assert.ok(counts.every((count) => count === counts[0] && count > 20), counts.join());
    const call = { name: "glob_search", arguments: { pattern: "*" } };
    const results = await Promise.all(clients.map(({ client }) => client.callTool(call)));
    assert.deepEqual(results.map(({ isError }) => isError ?? false), [false, false]);
    const made = await machine.run(["token", "create", "--scope", "tools", "--label", "agent", "--json"]);
    const { token } = JSON.parse(made.stdout) as { readonly token: string };
    for (const { args, env } of found) {
      if (env === undefined) continue;
      assert.deepEqual(env, { POSTERN_AGENT_TOKEN: "the token" });
      const limited = await connectProcess(machine, args, "2026-07-28", { POSTERN_AGENT_TOKEN: token });
      assert.equal((await limited.client.listTools()).tools.length, (counts[0] ?? 0) - 2, "it has no tools for runs");
      clients.push(limited);
    }
    // A write of Deno to a full pipe waits by itself, and no signal is heard meanwhile
    if (!("Deno" in globalThis)) await endUnread(machine);
    await connectOverHttp(await readControlFile(machine.dataDir), token);
    const ends = await Promise.all(clients.map((client) => client.end()));
    assert.deepEqual(ends.map(({ code }) => code), [0, 0, 0], ends.map(({ stderr }) => stderr).join("\n"));
    await machine.run(["daemon", "stop"]);
  });
});

/** Connects as the configurations say that name an address, with the address of this gateway. */
async function connectOverHttp(record: ControlRecord | undefined, token: string): Promise<void> {
  const found = configurations().filter(({ url }) => url !== undefined);
  assert.equal(found.length, 2);
  for (const [index, { url, headers }] of found.entries()) {
    assert.equal(url, "http://127.0.0.1:42617/mcp");
    const authorization = headers?.["Authorization"]?.replace(
      /\$\{(?:env:POSTERN_AGENT_TOKEN|input:postern-token)\}/,
      token,
    );
    const era = MCP_ERAS[index] ?? MCP_ERAS[0];
    const client = new Client({ name: "test", version: "1" }, {
      versionNegotiation: { mode: era === "2025-11-25" ? "legacy" : { pin: era } },
    });
    const transport = new StreamableHTTPClientTransport(new URL("mcp", record?.address), {
      requestInit: { headers: { authorization: authorization ?? "" } },
    });
    await client.connect(transport as Parameters<Client["connect"]>[0]);
    const result = await client.callTool({ name: "glob_search", arguments: { pattern: "*" } });
    assert.notEqual(result.isError, true);
    await client.close();
  }
}

/** Ends a server whose output nobody reads by a signal. */
async function endUnread({ spawn }: CliMachine): Promise<void> {
  const { child } = spawn(["mcp", "serve"]);
  child.stdout?.pause();
  child.stdin?.on("error", () => {}); // its rest is never read
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  // The answers are many times what the pipe holds
  for (let id = 0; id < 200; id++) {
    child.stdin?.write(`${JSON.stringify({ jsonrpc: "2.0", id, method: "tools/list", params: { _meta } })}\n`);
  }
  await until(() => (child.stdout?.readableLength ?? 0) >= 65_536, "the output is full");
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  assert.deepEqual(await exited, [0, null]);
}
