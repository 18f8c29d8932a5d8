import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { isGone } from "../../../support/is_gone.ts";
import { fixtureServer } from "../../../support/mcp_bench.ts";
import { until } from "../../../support/until.ts";
import { onMachine } from "../../support/run_in.ts";

const BAD = { name: "bad", inputSchema: {} };
const { command, args } = fixtureServer({ stderr: "hello from here\n", tools: [BAD] });
const CONFIG = `[security.mcp]
enabled = true
allowed_servers = ["files"]
[mcp.servers.files]
command = ${JSON.stringify(command)}
args = ${JSON.stringify(args)}
[mcp.servers.other]
command = "node"
`;

test("postern doctor starts each server once, and says what it found, with a gateway and without", () =>
  onMachine(async ({ run, home, withGateway }) => {
    const path = join(home, ".config/postern/postern.toml");
    mkdirSync(dirname(path), { recursive: true });
    const marks = join(home, "starts");
    const fixture = fixtureServer({ log: marks });
    const dead = fixtureServer({ dead: true, stderr: "no key\n" });
    const table = (name: string, { command, args }: typeof fixture) =>
      `[mcp.servers.${name}]\ncommand = ${JSON.stringify(command)}\nargs = ${JSON.stringify(args)}\n`;
    writeFileSync(
      path,
      `[security.mcp]\nenabled = true\nallowed_servers = ["files", "dead", "none"]\n${table("files", fixture)}${
        table("dead", dead)
      }`,
    );
    const env = { PATH: process.env["PATH"] ?? "" };
    const look = async () => {
      const { checks } = JSON.parse((await run(["doctor", "--json"], { env })).stdout);
      return checks.filter(({ name }: { name: string }) => name === "mcp").map((
        { state, message }: { state: string; message: string },
      ) => `${state}: ${message}`);
    };
    const expected = [
      /^warning: allowed_servers names "none", and there is no \[mcp\.servers\.none\]$/,
      /^ok: "files" \(.*\) has 9 tools, by the protocol of 2025-11-25$/,
      /^warning: Cannot start the MCP server "dead": .*no key/,
    ];
    const check = (found: readonly string[]) => {
      assert.equal(found.length, expected.length, found.join("\n"));
      for (const [index, line] of found.entries()) assert.match(line, expected[index] ?? /never/);
    };
    check(await look());
    const starts = () => readFileSync(marks, "utf8").split("\n").filter((line) => line.startsWith("start"));
    for (const line of starts()) assert.ok(await isGone(line.split(" ")[1] ?? ""), line);
    assert.equal(starts().length, 1);
    await withGateway([], async () => check(await look()), { env });
  }));

test("postern mcp shows servers, turns them off over a restart of the gateway, and restarts them", () =>
  onMachine(async ({ run, home, withGateway }) => {
    const path = join(home, ".config/postern/postern.toml");
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, CONFIG);
    const env = { PATH: process.env["PATH"] ?? "" };
    const say = async (...argv: readonly string[]) => {
      const { code, stdout, stderr } = await run(["mcp", ...argv], { env });
      assert.equal(code, 0, stderr);
      return stdout;
    };
    await withGateway([], async () => {
      await until(async () => /files +stdio +ready +9/.test(await say("list")), "the server is ready");
      assert.match(await say("list"), /other +stdio +disabled +0 +it is off; add "other" to \[security\.mcp\]/);
      const shown = await say("show", "files");
      assert.match(shown, /^files\nState: ready\nTransport: stdio\nProtocol: 2025-11-25 \(legacy\)\n/);
      assert.match(shown, /\n {2}mcp__files__echo {2}Gives its text back\n/);
      assert.match(shown, /^Left out: "bad" is left out: its inputSchema has no "type": "object"$/m);
      assert.equal(await say("logs", "files"), "hello from here\n");
      assert.equal(await say("restart", "files"), "Restarted files: ready\n");
      assert.equal(await say("disable", "files"), "Disabled files: disabled\n");
    }, { env });
    await withGateway([], async () => {
      assert.match(await say("list"), /files +stdio +disabled +0 +it is off; run postern mcp enable files/);
      assert.match(await say("enable", "files"), /^Enabled files: idle\n$/);
      const refused = await run(["mcp", "enable", "other"], { env });
      assert.deepEqual([refused.code, /allowed_servers/.test(refused.stderr)], [1, true]);
      const missing = await run(["mcp", "show", "none"], { env });
      assert.match(missing.stderr, /there is no \[mcp\.servers\.none\]/);
      const early = await run(["mcp", "forget", "files"], { env });
      assert.match(early.stderr, /the configuration has it, .*run postern mcp remove files first/);
    }, { env });
    writeFileSync(path, "");
    await withGateway([], async () => {
      const left = async () => {
        const { checks } = JSON.parse((await run(["doctor", "--json"], { env })).stdout);
        return checks.filter(({ name }: { name: string }) => name === "mcp");
      };
      const [{ message, fix }, ...others] = await left();
      assert.deepEqual([message, fix, others], [
        '"files" left the configuration, and 9 accepted tools are kept',
        "postern mcp forget files",
        [],
      ]);
      assert.match(await say("forget", "files"), /^Forgot files: /);
      assert.deepEqual(await left(), []);
      assert.match((await run(["mcp", "forget", "files"], { env })).stderr, /nothing is kept of it/);
    }, { env });
  }));

test("postern tools waits for servers that were never asked, even for one that fails, and knows their tools from then on", () =>
  onMachine(async ({ run, home }) => {
    const path = join(home, ".config/postern/postern.toml");
    mkdirSync(dirname(path), { recursive: true });
    const servers = { files: fixtureServer(), dead: fixtureServer({ dead: true }) };
    const tables = Object.entries(servers).map(([name, server]) =>
      `[mcp.servers.${name}]\n${
        Object.entries(server).map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`).join("")
      }`
    );
    writeFileSync(path, `[security.mcp]\nenabled = true\nallowed_servers = ["files", "dead"]\n${tables.join("")}`);
    const env = { PATH: process.env["PATH"] ?? "" };
    const first = await run(["tools", "call", "mcp__files__echo", "--input", '{"text":"hello"}', "--yes"], { env });
    assert.deepEqual([first.code, first.stdout], [0, "hello\n"], first.stderr);
    assert.match(first.stderr, /^Waiting for the tools of dead, files$/m);
    const later = await run(["tools", "info", "mcp__files__echo"], { env });
    assert.match(later.stderr, /^Waiting for the tools of dead$/m);
    assert.match(later.stdout, /^mcp__files__echo \(network, mcp files/);
  }));

test("postern mcp show and changes without a gateway ask a server that nobody has asked, and say why one is not known", () =>
  onMachine(async ({ run, home }) => {
    const path = join(home, ".config/postern/postern.toml");
    mkdirSync(dirname(path), { recursive: true });
    const dead = '[mcp.servers.dead]\ncommand = "node"\nargs = ["-e", "process.exit(3)"]\n';
    writeFileSync(path, CONFIG.replace('["files"]', '["files", "dead"]') + dead);
    const env = { PATH: process.env["PATH"] ?? "" };
    const shown = await run(["mcp", "show", "files"], { env });
    assert.match(shown.stderr, /^Waiting for the tools of dead, files\n[^]*^No gateway runs: /m);
    assert.match(shown.stdout, /^State: ready$[^]*^ {2}mcp__files__echo {2}/m);
    const unknown = await run(["mcp", "changes", "dead"], { env });
    assert.match(unknown.stdout, /^The tools of dead are not known: .*code 3/);
    const off = await run(["mcp", "changes", "other"], { env });
    assert.match(
      off.stdout,
      /^No tool of other is offered: it is off; add "other" to \[security\.mcp\] allowed_servers/,
    );
    const none = await run(["mcp", "changes", "nothing"], { env });
    assert.deepEqual([none.code, none.stdout], [1, ""]);
    assert.match(none.stderr, /there is no \[mcp\.servers\.nothing\]/);
  }));

test("postern mcp list without a gateway starts no server whose tools are known, and says that no gateway runs", () =>
  onMachine(async ({ run, home, withGateway }) => {
    const path = join(home, ".config/postern/postern.toml");
    mkdirSync(dirname(path), { recursive: true });
    const marks = join(home, "starts");
    const { command, args } = fixtureServer({ log: marks });
    writeFileSync(
      path,
      `[security.mcp]\nenabled = true\nallowed_servers = ["files"]\n[mcp.servers.files]\ncommand = ${
        JSON.stringify(command)
      }\nargs = ${JSON.stringify(args)}\n`,
    );
    const env = { PATH: process.env["PATH"] ?? "" };
    const starts = () => readFileSync(marks, "utf8").split("\n").filter((line) => line.startsWith("start")).length;
    const unknown = await run(["mcp", "list"], { env });
    assert.match(unknown.stdout, /files +stdio +ready +9/, "it was asked, since nothing was known of it");
    assert.equal(starts(), 1);
    const { stdout, stderr } = await run(["mcp", "list"], { env });
    assert.match(stdout, /files +stdio +idle +9/);
    assert.match(stderr, /^No gateway runs: this is what is known of the servers\. Start one with postern gateway\n$/);
    const changes = await run(["mcp", "changes", "files"], { env });
    assert.deepEqual([changes.stdout, changes.stderr === stderr], ["All tools of files are offered\n", true]);
    const shown = await run(["mcp", "show", "files"], { env });
    assert.match(shown.stdout, /^State: idle$/m);
    assert.equal(shown.stderr, stderr);
    assert.equal(starts(), 1);
    await withGateway([], async () => {
      assert.doesNotMatch((await run(["mcp", "list"], { env })).stderr, /No gateway runs/);
    }, { env });
  }));
