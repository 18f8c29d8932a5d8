import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { writeControlFile } from "../../lib/host/control_file.ts";
import { type Machine, onMachine } from "../cli/support/run_in.ts";
import { buildAssemblyScript, useSampleSource } from "../support/built_plugins.ts";
import { lastOutput, scriptedTasks, toolTurn } from "../support/scripted_tasks.ts";
import { jsonOf, type RunningGateway, withWorld } from "../support/world.ts";

/** Runs a command. @returns what it printed */
async function say(
  { run }: Machine,
  gateway: RunningGateway,
  argv: readonly string[],
  { answers, exit = 0 }: { readonly answers?: readonly string[]; readonly exit?: number } = {},
) {
  const { code, stdout, stderr } = await run([...argv, "--data-dir", gateway.dataDir], {
    ...(answers === undefined ? {} : { answers, terminal: true }),
  });
  assert.equal(code, exit, stderr);
  return `${stdout}${stderr}`;
}

/** Makes the plugin of the scaffold the one of the fixture, which reads and writes the workspace. */
function useWorkspace(folder: string): void {
  useSampleSource(folder);
  const manifest = join(folder, "plugin.json");
  const text = readFileSync(manifest, "utf8").replace('"0.1.0"', '"0.2.0"')
    .replace('"workspace": "none"', '"workspace": "write"')
    .replace('"properties": {', '"properties": { "to": { "type": "string", "description": "File to write" },');
  writeFileSync(manifest, text);
}

test("a new WASM plugin is built, tested, packaged, installed, enabled and used by the model, and then one that writes", () =>
  withWorld((world) =>
    onMachine(async (machine) => {
      const call = (input: Readonly<Record<string, string>>) => [toolTurn("yell", input), lastOutput];
      const byExec = toolTurn("wasm_tool_exec", { plugin: "yell", tool: "yell", input: { text: "again" } });
      const workspace = await world.workspace({ "notes.txt": "one two three" });
      const gateway = await world.gateway({
        workspace,
        script: scriptedTasks({
          hello: call({ text: "hello" }),
          again: [byExec, lastOutput],
          count: call({ text: "notes.txt", to: "count.txt" }),
          outside: call({ text: "../outside.txt" }),
        }),
        config: {
          autonomy: { auto_approve: ["yell"] },
          security: { write_file: { enabled: true } },
          runtime: { wasm: { allow_workspace_read: true, allow_workspace_write: true } },
        },
      });
      const { url, token, dataDir } = gateway;
      const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "" };
      await writeControlFile(dataDir, { ...record, workspace: machine.cwd });
      const told = async (words: string) =>
        JSON.stringify(await jsonOf(gateway.call("/api/chat", { body: { message: words } })));

      await say(machine, gateway, ["plugin", "new", "--id", "yell", "--scaffold", "wasm-assemblyscript"]);
      const folder = join(machine.cwd, "yell");
      const manifest = join(folder, "plugin.json");
      const check = ["plugin", "test", "--manifest", manifest];
      assert.match(await say(machine, gateway, check, { exit: 1 }), /"plugin\.wasm".*build it first/);
      buildAssemblyScript(folder);
      assert.match(
        await say(machine, gateway, check),
        /well formed.*\nModule: \d+ bytes\nExports: execute, abort\nImports of extism:host\/env: alloc, /,
      );
      const execute = [...check, "--execute", '{"text": "hä"}'];
      assert.match(await say(machine, gateway, execute), /^HÄ\nUsed \d+ units of fuel, \d+ bytes of memory, /);
      assert.match(await say(machine, gateway, [...check, "--execute"], { exit: 1 }), /"text" is missing/);
      await say(machine, gateway, ["plugin", "package", "--manifest", manifest]);
      await say(machine, gateway, ["plugin", "install", "--package", "yell-0.1.0.tar"]);
      assert.match(await say(machine, gateway, ["plugin", "enable", "yell"], { answers: ["y"] }), /WASM sandbox/);
      assert.match(await told("hello"), /HELLO/);
      assert.match(await told("again"), /AGAIN/);
      const explain = async (tool: string, input: string) =>
        await say(machine, gateway, ["policy", "explain", tool, "--input", input]);
      assert.match(await explain("yell", '{"text": "x"}'), /^allow\nCan call "yell"/);
      const byOther = '{"plugin": "yell", "tool": "yell", "input": {"text": "x"}}';
      assert.match(await explain("wasm_tool_exec", byOther), /^allow\nCan call "yell"/);

      useWorkspace(folder);
      buildAssemblyScript(folder);
      writeFileSync(manifest, readFileSync(manifest, "utf8").replace('"write"', '"read"'));
      assert.match(await say(machine, gateway, check, { exit: 1 }), /not granted: "extism:host\/user workspace_write"/);
      writeFileSync(manifest, readFileSync(manifest, "utf8").replace('"read"', '"write"'));
      await say(machine, gateway, ["plugin", "package", "--manifest", manifest]);
      assert.match(await say(machine, gateway, ["plugin", "install", "--package", "yell-0.2.0.tar"]), /asks for more/);
      const enabled = await say(machine, gateway, ["plugin", "enable", "yell"], { answers: ["y"] });
      assert.match(enabled, /workspace/);
      assert.match(await told("count"), /3 words, 2 files/);
      assert.equal(readFileSync(workspace.path("count.txt"), "utf8"), "3");
      assert.match(await told("outside"), /it says: .*is not allowed/);
    })
  ));
