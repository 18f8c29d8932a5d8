import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { writeControlFile } from "../../lib/host/control_file.ts";
import { type Machine, onMachine } from "../cli/support/run_in.ts";
import { lastOutput, scriptedTasks, toolTurn } from "../support/scripted_tasks.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";

const SERVERS = ["everything", "filesystem", "memory", "sequential-thinking"] as const;

/** Returns `[mcp.servers.<name>]` of a server of the registry, as this project has it installed. */
function serverOf(
  name: typeof SERVERS[number],
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
) {
  const main = join(PROJECT_ROOT, `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`);
  return { command: process.execPath, args: [main, ...args], env };
}

const toolsOf = async (gateway: RunningGateway) => {
  const { data } = await jsonOf(gateway.call("/v1/tools")) as { data: readonly { readonly name: string }[] };
  return data.map(({ name }) => name).filter((name) => name.startsWith("mcp__"));
};

/** Runs a command against the gateway, and returns what it printed. */
async function say({ run }: Machine, { dataDir }: RunningGateway, argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await run([...argv, "--data-dir", dataDir]);
  assert.equal(code, 0, stderr);
  return stdout;
}

test("an agent works with four servers of the registry at once: files, memory, thoughts, and one of everything", () =>
  withWorld((world) =>
    onMachine(async (machine) => {
      const folder = await world.folder();
      const notes = await world.folder();
      writeFileSync(join(notes, "plan.txt"), "Water the beans");
      const graph = join(folder, "graph.jsonl");
      const task = (tool: string, input: Readonly<Record<string, unknown>>) => [toolTurn(tool, input), lastOutput];
      const thought = { thought: "One", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 };
      const gateway = await world.gateway({
        environment: { PATH: process.env["PATH"] ?? "" },
        script: scriptedTasks({
          read: task("mcp__files__read_text_file", { path: join(notes, "plan.txt") }),
          outside: task("mcp__files__read_text_file", { path: "/etc/passwd" }),
          stands: task("mcp", {
            server: "files",
            tool: "read_text_file",
            arguments: { path: join(notes, "plan.txt") },
          }),
          remember: task("mcp__memory__create_entities", {
            entities: [{ name: "Ada", entityType: "person", observations: ["grows beans"] }],
          }),
          recall: task("mcp__memory__search_nodes", { query: "Ada" }),
          think: task("mcp__thinking__sequentialthinking", thought),
          echo: task("mcp__everything__echo", { message: "hello" }),
          image: task("mcp__everything__get-tiny-image", {}),
          structured: task("mcp__everything__get-structured-content", { location: "Chicago" }),
          prompt: task("mcp_prompt", { server: "everything", name: "simple-prompt" }),
        }),
        config: {
          security: { mcp: { enabled: true, allowed_servers: ["files", "memory", "thinking", "everything"] } },
          mcp: {
            servers: {
              files: serverOf("filesystem", [notes]),
              memory: serverOf("memory", [], { MEMORY_FILE_PATH: graph }),
              thinking: serverOf("sequential-thinking"),
              everything: serverOf("everything"),
            },
          },
          autonomy: { level: "full", after_outside_content: "allow" },
        },
      });
      const { url, token, dataDir } = gateway;
      const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "" };
      await writeControlFile(dataDir, { ...record, workspace: machine.cwd });
      const servers = ["files", "memory", "thinking", "everything"];
      await until(async () => {
        const names = await toolsOf(gateway);
        return servers.every((server) => names.some((name) => name.startsWith(`mcp__${server}__`)));
      }, "the tools of all four are offered");
      const told = async (words: string) =>
        JSON.stringify(await jsonOf(gateway.call("/api/chat", { body: { message: words } })));

      assert.match(await told("read"), /Water the beans/);
      assert.match(await told("stands"), /Water the beans/);
      assert.match(await told("outside"), /Access denied/);
      assert.match(await told("remember"), /grows beans/);
      assert.match(readFileSync(graph, "utf8"), /"name":"Ada"/);
      assert.match(await told("recall"), /grows beans/);
      assert.match(await told("think"), /thoughtHistoryLength/);
      assert.match(await told("echo"), /Echo: hello/);
      assert.match(await told("image"), /\[image image\/png, \d+ bytes/);
      assert.match(await told("structured"), /temperature/);
      assert.match(await told("prompt"), /user: /);

      assert.match(await say(machine, gateway, ["mcp", "prompts", "everything"]), /^everything: \d+\n- simple-prompt/);
      assert.match(
        await say(machine, gateway, ["mcp", "prompts", "everything", "args-prompt", "city=Oslo"]),
        /user: .*Oslo/,
      );
      const resources = await say(machine, gateway, ["mcp", "resources", "everything"]);
      const [, uri = ""] = /^- (\S+) /m.exec(resources) ?? [];
      assert.match(await say(machine, gateway, ["mcp", "resources", "everything", uri]), /^\[resource /);
      assert.equal(await say(machine, gateway, ["mcp", "changes", "files"]), "All tools of files are offered\n");
    })
  ));
