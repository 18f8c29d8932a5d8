import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import type { ProgramRequest } from "../../../lib/system/process/prepare_program.ts";
import { withWorkspace } from "../../support/workspace.ts";
import { NEVER, withMcp } from "../../support/mcp_bench.ts";
import { createWorkspaceProcesses } from "../../support/workspace_processes.ts";
import { temporaryFolder } from "../../../lib/system/process/leftover_processes.ts";

/** Path of the socket that Chromium makes below `TMPDIR`, with an end of its own in six letters. A socket's path may have 107 bytes. */
const SOCKET = ".org.chromium.Chromium.${pid}/SingletonSocket";
/** Program for `node -e` that makes such a socket, writes how that went, and ends. */
const BINDS = `
const { mkdirSync, rmSync } = require("node:fs"), { dirname } = require("node:path");
const pid = String(process.pid).padStart(6, "0").slice(-6);
const path = (process.env.TMPDIR ?? "/tmp") + \`/${SOCKET}\`;
mkdirSync(dirname(path), { recursive: true });
const end = (word) => { rmSync(dirname(path), { recursive: true }); process.stderr.write(word + "\\n"); };
require("node:net").createServer().on("error", ({ code }) => end(code + " " + path)).listen(path, function () {
  end("bound " + path);
  this.close();
});`;
/** Characters of the longest path of a data directory that SQLite opens a database in */
const LONGEST = 480;

/** Returns an absolute path of LONGEST characters below a folder. */
function longPath(folder: string): string {
  let path = folder;
  while (path.length < LONGEST) path += `/${"d".repeat(Math.min(200, LONGEST - path.length - 1))}`;
  return path;
}

const scopeOf = (workspaceRoot: string) => ({
  workspaceRoot,
  workspaceOnly: true,
  forbiddenPaths: [],
  allowSensitive: false,
});

test("MCP servers, commands and plugins can make a socket in their temporary folder under the longest data directory", () =>
  withWorkspace({}, async ({ root }) => {
    const dataDir = longPath(dirname(root));
    const server = { command: process.execPath, args: ["-e", BINDS] };
    await withMcp({ servers: { one: server } }, async (bench) => {
      await bench.server().freshTools(NEVER).catch(() => {});
      assert.match(bench.server().logTail(), /^bound \/tmp\/postern-/);
    }, { dataDir });
    const processes = createWorkspaceProcesses(root);
    try {
      const shared = { scope: scopeOf(root), sandbox: "off", signal: NEVER } as const;
      const limits = { timeoutMs: 30_000, maxOutputBytes: 10_000 };
      const command = await processes.run({ ...shared, ...limits, words: ["node", "-e", BINDS] });
      assert.match(command.stderr.text, /^bound /);
      const plugin = await processes.prepareProgram({
        ...shared,
        title: "a plugin",
        program: { file: process.execPath, args: ["-e", BINDS], folder: root },
        ...{ rights: { hosts: { entries: [], key: "" } }, taint: ["plugin a"], section: "[plugins]" },
      });
      const program = await plugin.start();
      const said: Uint8Array[] = [];
      program.stderr.on("data", (part: Uint8Array) => said.push(part));
      await program.exited;
      assert.match(said.join(""), /^bound /);
      await program.end();
    } finally {
      await processes.close();
    }
  }));

test("a temporary folder that lies in the workspace is not used: the agent writes there", () =>
  withWorkspace({}, async ({ root }) => {
    const processes = createWorkspaceProcesses(root, { marker: `inside-${process.pid}` });
    const folder = temporaryFolder(`inside-${process.pid}`);
    const temporary = join(dirname(root), "own");
    const ownEnvironment = { values: { PATH: process.env["PATH"] ?? "" }, temporary };
    const start = async (workspaceRoot: string) => {
      const prepared = await processes.prepareProgram({
        program: { file: process.execPath, args: ["-e", ""], folder: root, ownEnvironment },
        ...{ title: "a server", rights: { hosts: { entries: [], key: "" } }, taint: ["mcp a"] },
        ...{ section: "[mcp.servers.a]", sandbox: "off", signal: NEVER },
        scope: scopeOf(workspaceRoot),
      });
      return await prepared.start();
    };
    try {
      await start(root);
      assert.equal(readdirSync(folder).length, 1);
      assert.equal(existsSync(temporary), false);
      await start("/");
      assert.equal(readdirSync(folder).length, 1, "none is added");
      assert.equal(readdirSync(temporary).length, 1);
    } finally {
      await processes.close();
    }
    assert.equal(existsSync(folder), false, "it goes with the gateway");
  }));

test("a program that cannot be started leaves no temporary folder", () =>
  withWorkspace({}, async ({ root }) => {
    const marker = `unstarted-${process.pid}`;
    const processes = createWorkspaceProcesses(root, { marker });
    const request: ProgramRequest = {
      program: {
        ...{ file: process.execPath, args: ["x".repeat(4_000_000)], folder: root },
        ownEnvironment: { values: {}, temporary: join(dirname(root), "own") },
      },
      ...{ title: "a server", rights: { hosts: { entries: [], key: "" } }, taint: ["mcp a"] },
      ...{ section: "[mcp.servers.a]", sandbox: "off", signal: NEVER },
      scope: scopeOf(root),
    };
    const program = { ...request.program, file: "no-such-program" };
    const unknown = processes.prepareProgram({ ...request, program });
    await assert.rejects(unknown, { code: "command_not_found" });
    assert.deepEqual(readdirSync(temporaryFolder(marker)), []);
    const prepared = await processes.prepareProgram(request);
    assert.equal(readdirSync(temporaryFolder(marker)).length, 1);
    // Deno says later that it could not be started
    const started = prepared.start().then(async (program) => {
      await program.exited.finally(() => program.end());
    });
    await assert.rejects(started);
    assert.deepEqual(readdirSync(temporaryFolder(marker)), []);
    await processes.close();
    assert.equal(existsSync(temporaryFolder(marker)), false);
  }));

test("a temporary folder that others may write is not used", () =>
  withWorkspace({}, async ({ root }) => {
    const marker = `others-${process.pid}`;
    mkdirSync(temporaryFolder(marker), { mode: 0o755 });
    const processes = createWorkspaceProcesses(root, { marker });
    const temporary = join(dirname(root), "own");
    const ownEnvironment = { values: { PATH: process.env["PATH"] ?? "" }, temporary };
    try {
      const prepared = await processes.prepareProgram({
        program: { file: process.execPath, args: ["-e", ""], folder: root, ownEnvironment },
        ...{ title: "a server", rights: { hosts: { entries: [], key: "" } }, taint: ["mcp a"] },
        ...{ section: "[mcp.servers.a]", sandbox: "off", signal: NEVER },
        scope: scopeOf(root),
      });
      await prepared.start();
      assert.equal(readdirSync(temporary).length, 1);
      assert.deepEqual(readdirSync(temporaryFolder(marker)), []);
    } finally {
      await processes.close();
    }
  }));
