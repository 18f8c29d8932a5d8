import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { stringifyTOML } from "confbox/toml";
import { CLIENTS } from "../../../cli/clients/client_table.ts";
import type { ScriptedTurn } from "../../../fixtures/scripted_provider.ts";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import { systemTools } from "../../scripts/system_tools.ts";
import { ROOT } from "../../support/gateway_process.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { type RunningGateway, withWorld } from "../../support/world.ts";

const folder = "Deno" in globalThis ? "they are programs of Node" : await systemTools("clients").catch(String);
const skip = folder.endsWith("node_modules") ? false : `npm could not bring the clients: ${folder}`;
/** Longest time of one program. Milliseconds */
const LIMIT_MS = 120_000;
const MODES = ["agent", "plain"] as const;

/** Returns what the model says: three calls of the tool one after the other, then what it has done. A request without this tool is about a title. */
const working = (tool: string, field: string) => ({ messages, tools }: ProviderRequest): ScriptedTurn => {
  if (!tools.some(({ name }) => name === tool)) return { text: "A title" };
  const since = messages.slice(messages.findLastIndex(({ role }) => role === "user"));
  const line = ["echo one >> one.txt", "cat one.txt", "ls"][since.filter(({ role }) => role === "tool").length];
  if (line === undefined) return { text: ["All ", "done"] };
  return { reasoning: `I run ${line}`, toolCalls: [{ name: tool, arguments: { [field]: line } }] };
};

/** Runs a client in a folder of its own, without input. @returns what it printed */
async function runClient(
  argv: readonly string[],
  { cwd, env }: { readonly cwd: string; readonly env: Readonly<Record<string, string>> },
): Promise<string> {
  const [command = "", ...words] = argv;
  const child = spawn(command, words, {
    ...{ cwd, stdio: ["ignore", "pipe", "pipe"], timeout: LIMIT_MS, killSignal: "SIGKILL" },
    env: { PATH: process.env["PATH"] ?? "", ...env },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (output += text));
  const [status] = await once(child, "close");
  assert.equal(status, 0, output);
  return output;
}

interface CodingAgent {
  /** Tool of the client that runs a line, and the field of its input */
  readonly tool: readonly [name: string, field: string];
  /** Runs the client for a task, and once more in the same conversation. @returns what it printed */
  work(
    gateway: RunningGateway,
    at: { readonly model: string; readonly home: string; readonly cwd: string },
  ): Promise<string[]>;
}

const AGENTS: Readonly<Record<string, CodingAgent>> = {
  codex: {
    tool: ["exec_command", "cmd"],
    async work({ url, token }, { model, home, cwd }) {
      const block = CLIENTS["codex"]?.block({ address: `${url}/`, token, models: [] });
      // Codex looks for updates and plugins elsewhere otherwise
      const quiet = {
        check_for_update_on_startup: false,
        analytics: { enabled: false },
        features: { plugins: false, apps: false },
      };
      writeFileSync(join(home, "config.toml"), stringifyTOML({ ...quiet, ...block }));
      const at = { cwd, env: { HOME: home, CODEX_HOME: home } };
      const words = ["-c", "model_provider=postern", "-m", model, "--skip-git-repo-check", "--json"];
      words.push("--dangerously-bypass-approvals-and-sandbox");
      const codex = join(folder, ".bin/codex");
      return [
        await runClient([codex, "exec", ...words, "Write a file"], at),
        await runClient([codex, "exec", "resume", "--last", ...words, "Go on"], at),
      ];
    },
  },
  "claude code": {
    tool: ["Bash", "command"],
    async work({ url, token }, { model, home, cwd }) {
      const env = {
        ...{ HOME: home, ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: token, IS_SANDBOX: "1" },
        ...{ ANTHROPIC_DEFAULT_HAIKU_MODEL: model, CLAUDE_CODE_MAX_RETRIES: "0" },
        ...{ CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1" },
      };
      const words = ["--dangerously-skip-permissions", "--output-format", "json", "--model", model];
      const block = CLIENTS["claude"]?.block({ address: `${url}/`, token, models: [] });
      writeFileSync(join(home, ".claude.json"), JSON.stringify(block));
      const claude = join(folder, `@anthropic-ai/claude-code-${process.platform}-${process.arch}/claude`);
      return [
        await runClient([claude, "-p", "Write a file", ...words], { cwd, env }),
        await runClient([claude, "-p", "Go on", "--continue", ...words], { cwd, env }),
      ];
    },
  },
};

describe("coding agents do their work through the gateway, unchanged", { skip }, () => {
  for (const [name, { tool, work }] of Object.entries(AGENTS)) {
    for (const mode of MODES) {
      test(`${name}: three rounds with a tool, and a second task in the conversation: ${mode}`, () =>
        withWorld((world) =>
          withTemporaryFolder(async (at) => {
            const gateway = await world.gateway({ script: working(...tool) });
            const [home, cwd] = [join(at, "home"), join(at, "work")];
            for (const made of [home, cwd]) mkdirSync(made);
            const said = await work(gateway, { model: mode === "plain" ? "plain/m" : "m", home, cwd });
            for (const output of said) assert.match(output, /All done/);
            assert.equal(readFileSync(join(cwd, "one.txt"), "utf8"), "one\none\n");
            assert.deepEqual(readdirSync(cwd).filter((entry) => !entry.startsWith(".")), ["one.txt"]);
            assert.deepEqual(gateway.log.filter(({ level }) => level === "error"), []);
          })
        ));
    }
  }
});

for (const mode of MODES) {
  test(
    `client libraries call a tool of their program in three rounds, streamed and not: ${mode}`,
    { skip },
    () =>
      withWorld((world) =>
        withTemporaryFolder(async (cwd) => {
          const { url, token } = await world.gateway({ script: working("exec_command", "cmd") });
          const program = join(ROOT, "test/system/clients/libraries.mjs");
          const model = mode === "plain" ? "plain/m" : "m";
          const output = await runClient([process.execPath, program, folder, url, token, model], {
            cwd,
            env: { HOME: cwd },
          });
          const said = output.split("\n").filter((line) => line.startsWith("[")).map((line) => JSON.parse(line));
          const kept = mode === "agent" ? ["ai kept responses"] : [];
          const names = [...kept, "ai responses", "ai chat", "ai messages", "ai open responses", "agents"];
          assert.deepEqual(said, names.flatMap((name) => [[name, "All done", 3], [`${name} stream`, "All done", 3]]));
        })
      ),
  );
}
