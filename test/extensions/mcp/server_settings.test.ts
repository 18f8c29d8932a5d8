import assert from "node:assert/strict";
import { mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import type { McpConnection } from "../../../lib/extensions/mcp/mcp_connection.ts";
import { fixtureServer, mcpConfig, NEVER, withMcp } from "../../support/mcp_bench.ts";
import { configOf } from "../../support/running_gateway.ts";
import { PROJECT_ROOT } from "../../support/source_files.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { createToolBench } from "../../support/tool_bench.ts";

const probe = await createToolBench({ root: process.cwd() }).processes.containment({ sandbox: "auto" });
const uncontained = probe.kind === "contained" ? false : probe.text;
const FIXTURE = `${join(PROJECT_ROOT, "fixtures/mcp/server.mjs")}:ro`;

const ask = async (server: McpConnection, given: Record<string, unknown> = {}) => {
  const { content } = await server.request("tools/call", { name: "env", arguments: given }, { signal: NEVER });
  return JSON.parse((content[0] as { readonly text: string }).text) as Readonly<Record<string, unknown>>;
};

/** Runs `use` with the fixture, uncontained unless the settings say otherwise, without a file for its notes. */
const withServer = (settings: object, use: (server: McpConnection, folder: string) => Promise<void>) =>
  withMcp({ servers: { one: { ...fixtureServer(), ...settings } } }, ({ server, folder }) => use(server(), folder));

describe("settings of a server's program", () => {
  test("its environment is PATH, HOME, LANG, TMPDIR and env, and nothing else", async () => {
    assert.ok(Object.keys(process.env).length > 4, "the tests have more variables");
    await withServer({ env: { EXTRA: "given" } }, async (server) => {
      const env = await ask(server);
      assert.deepEqual(Object.keys(env).sort(), ["EXTRA", "HOME", "LANG", "PATH", "TMPDIR"]);
      assert.equal(env["EXTRA"], "given");
    });
    await withServer({}, async (server) => {
      assert.deepEqual(Object.keys(await ask(server)).sort(), ["HOME", "LANG", "PATH", "TMPDIR"]);
    });
  });

  test("timeout_secs ends a request, startup_timeout_secs a start", async () => {
    await withServer({ timeout_secs: 1 }, async (server) => {
      const hanging = server.request("tools/call", { name: "hang" }, { signal: NEVER });
      await assert.rejects(hanging, { code: "mcp_timeout", message: /within 1 s; \[mcp\.servers\.one\] timeout_secs/ });
    });
    await withMcp({ mute: true }, async ({ server }) => {
      await assert.rejects(
        server().freshTools(NEVER),
        /not ready within 1 s, as \[mcp\.servers\.one\] startup_timeout_secs/,
      );
    }, { settings: { startup_timeout_secs: 1 } });
  });

  test("a path that is not there or not absolute is an error that names the key", async () => {
    for (const path of ["notes", "/nowhere/at/all"]) {
      await withServer({ paths: [path] }, async (server) => {
        await assert.rejects(server.freshTools(NEVER), /\[mcp\.servers\.one\] paths/);
      });
    }
  });

  test(
    "a path of the workspace that a command has exchanged for a link out of it is refused",
    { skip: uncontained },
    () =>
      withMcp({ servers: { one: fixtureServer() } }, async (bench) => {
        const path = join(bench.folder, "workspace/data");
        const start = async () => {
          bench.config = configOf(
            mcpConfig({ one: { ...fixtureServer(), sandbox: "require", paths: [FIXTURE, path] } }),
          );
          await bench.restart();
          return await ask(bench.server(), { look: join(path, "file") });
        };
        writeFileSync(join(bench.folder, "file"), "");
        symlinkSync("..", path);
        await assert.rejects(start, /\[mcp\.servers\.one\] paths has ".*\/data", which leads out of the workspace/);
        rmSync(path);
        mkdirSync(path);
        assert.deepEqual((await start())["reads"], false);
      }),
  );

  test('sandbox = "off" leaves everything to it, and is said at the start', () =>
    withMcp({ servers: { one: fixtureServer() } }, async ({ server, folder, logged }) => {
      const file = join(folder, "file");
      writeFileSync(file, "");
      const { reads, writes } = await ask(server(), { look: file });
      assert.deepEqual({ reads, writes }, { reads: true, writes: true });
      const said = logged.filter(({ message }) => message === "An MCP server runs with your rights and the network");
      assert.deepEqual(said.map(({ fields }) => fields["server"]), ["one"]);
    }));

  for (const sandbox of ["auto", "require"] as const) {
    test(
      `sandbox = "${sandbox}" shows it only its paths`,
      { skip: uncontained },
      () =>
        withServer({ sandbox, paths: [FIXTURE] }, async (server, folder) => {
          const file = join(folder, "file");
          writeFileSync(file, "");
          assert.deepEqual(await ask(server, { look: file }), { reads: false, writes: false, networks: ["lo"] });
          const { HOME, TMPDIR } = await ask(server);
          assert.deepEqual({ HOME, TMPDIR }, { HOME: "/tmp", TMPDIR: "/tmp" });
        }),
    );
  }

  test(
    "its variables count for no program outside of the sandbox",
    { skip: uncontained },
    () =>
      withTemporaryFolder(async (folder) => {
        // Each program that the loader of glibc starts writes a file then, if it can
        const env = { LD_DEBUG: "files", LD_DEBUG_OUTPUT: join(folder, "loaded"), "a-b": "given" };
        await withServer({ sandbox: "require", paths: [FIXTURE], env }, async (server) => {
          const given = await ask(server);
          for (const [name, value] of Object.entries(env)) assert.equal(given[name], value, name);
        });
        assert.deepEqual(readdirSync(folder), []);
        // Nor do they begin options of bubblewrap
        const hostile = { LD_X: `a\0--bind\0${folder}\0${folder}` };
        await withServer({ sandbox: "require", paths: [FIXTURE], env: hostile }, async (server) => {
          await assert.rejects(server.freshTools(NEVER), /ERR_INVALID_ARG_VALUE/);
        });
      }),
  );

  test("paths let it read and write, and with :ro only read", { skip: uncontained }, async () => {
    const file = join(PROJECT_ROOT, "package.json");
    for (const [entry, writes] of [[file, true], [`${file}:ro`, false]] as const) {
      await withServer({ sandbox: "require", paths: [FIXTURE, entry] }, async (server) => {
        const found = await ask(server, { look: file });
        assert.deepEqual([found["reads"], found["writes"]], [true, writes], entry);
      });
    }
  });

  test(
    "network = true gives it the machine's networks",
    { skip: uncontained },
    () =>
      withServer({ sandbox: "require", network: true, paths: [FIXTURE] }, async (server) => {
        const { networks } = await ask(server, { look: "/" });
        assert.deepEqual(networks, Object.keys(networkInterfaces()));
      }),
  );
});
