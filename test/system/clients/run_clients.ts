import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { stringifyTOML } from "confbox/toml";
import { CLIENTS } from "../../../cli/clients/client_table.ts";
import type { ScriptedTurn } from "../../../fixtures/scripted_provider.ts";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import { systemTools } from "../../scripts/system_tools.ts";
import type { RunningGateway } from "../../support/world.ts";

/** Installs the clients. @returns their `node_modules`, and why they cannot be tried here; false: they can */
export async function installClients(): Promise<{ readonly folder: string; readonly skip: string | false }> {
  const folder = "Deno" in globalThis ? "they are programs of Node" : await systemTools("clients").catch(String);
  const skip = folder.endsWith("node_modules") ? false : `npm could not bring the clients: ${folder}`;
  return { folder, skip };
}

/** With the agent's tools, and as a door to the model. */
export const MODES = ["agent", "plain"] as const;
export type Mode = typeof MODES[number];
/** Returns the model's name by which a client chooses the mode. */
export const modelOf = (mode: Mode) => mode === "plain" ? "plain/m" : "m";

/** Longest time of one program. Milliseconds */
const LIMIT_MS = 300_000;

/** Returns what the model says: three calls of the tool one after the other, then what it has done. A request without this tool is about a title. */
export const working = (tool: string, field: string) => ({ messages, tools }: ProviderRequest): ScriptedTurn => {
  if (!tools.some(({ name }) => name === tool)) return { text: "A title" };
  const since = messages.slice(messages.findLastIndex(({ role }) => role === "user"));
  const line = ["echo one >> one.txt", "cat one.txt", "ls"][since.filter(({ role }) => role === "tool").length];
  if (line === undefined) return { text: ["All ", "done"] };
  return { reasoning: `I run ${line}`, toolCalls: [{ name: tool, arguments: { [field]: line } }] };
};

/** How a program is run. */
export interface Call {
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

/** Starts a client without input; `output` grows as it prints. */
export function startClient({ argv, cwd, env }: Call): { readonly child: ChildProcess; readonly output: () => string } {
  const [command = "", ...words] = argv;
  const child = spawn(command, words, {
    ...{ cwd, stdio: ["ignore", "pipe", "pipe"], timeout: LIMIT_MS, killSignal: "SIGKILL" },
    env: { PATH: process.env["PATH"] ?? "", ...env },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (output += text));
  return { child, output: () => output };
}

/** Runs a client to its end. @returns what it printed */
export async function runClient(call: Call): Promise<string> {
  const { child, output } = startClient(call);
  const [status] = await once(child, "close");
  assert.equal(status, 0, output());
  return output();
}

/** Where a client works, and for which model. */
export interface Workplace {
  readonly model: string;
  /** Folder of its own for its settings, with the folder `work` in it */
  readonly home: string;
}

/** Program with an agent and tools of its own. */
export interface CodingAgent {
  /** Why it cannot be tried here. Default: it can */
  readonly missing?: string | undefined;
  /** Tool of the client that runs a line, and the field of its input */
  readonly tool: readonly [name: string, field: string];
  /** True where one run takes many seconds of a processor */
  readonly isSlow?: boolean;
  /** Tells it of the gateway. @returns how it is called for a task */
  prepare(gateway: RunningGateway, at: Workplace): (task: string, more?: TaskOptions) => Call;
}

/** How a coding agent is called for a task. */
export interface TaskOptions {
  /** True for a task in the conversation of the last one. Default false */
  readonly goesOn?: boolean;
  /** Further words of its command line */
  readonly words?: readonly string[];
}

function workIn(home: string): string {
  const cwd = join(home, "work");
  mkdirSync(cwd, { recursive: true });
  return cwd;
}

const codex = (folder: string): CodingAgent => ({
  tool: ["exec_command", "cmd"],
  prepare({ url, token }, { model, home }) {
    const block = CLIENTS["codex"]?.block({ address: `${url}/`, token, models: [] });
    // Codex looks for updates and plugins elsewhere otherwise
    const quiet = {
      check_for_update_on_startup: false,
      analytics: { enabled: false },
      features: { plugins: false, apps: false },
    };
    writeFileSync(join(home, "config.toml"), stringifyTOML({ ...quiet, ...block }));
    const words = ["-c", "model_provider=postern", "-m", model, "--skip-git-repo-check", "--json"];
    // Codex asks the model after a second otherwise, without the tools of a server that is slower on a machine at work
    words.push("-c", "mcp_servers.postern.required=true", "-c", "mcp_servers.postern.startup_timeout_sec=60");
    words.push("--dangerously-bypass-approvals-and-sandbox");
    const [program, cwd] = [join(folder, ".bin/codex"), workIn(home)];
    return (task, { goesOn = false, words: more = [] } = {}) => ({
      argv: [program, "exec", ...(goesOn ? ["resume", "--last"] : []), ...words, ...more, task],
      cwd,
      env: { HOME: home, CODEX_HOME: home },
    });
  },
});

const claude = (folder: string): CodingAgent => ({
  tool: ["Bash", "command"],
  prepare({ url, token }, { model, home }) {
    const env = {
      ...{ HOME: home, ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: token, IS_SANDBOX: "1" },
      ...{ ANTHROPIC_DEFAULT_HAIKU_MODEL: model, CLAUDE_CODE_MAX_RETRIES: "0" },
      ...{ CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1" },
    };
    const words = ["--dangerously-skip-permissions", "--output-format", "json", "--model", model];
    const block = CLIENTS["claude"]?.block({ address: `${url}/`, token, models: [] });
    writeFileSync(join(home, ".claude.json"), JSON.stringify(block));
    const program = join(folder, `@anthropic-ai/claude-code-${process.platform}-${process.arch}/claude`);
    const cwd = workIn(home);
    return (task, { goesOn = false, words: more = [] } = {}) => ({
      argv: [program, "-p", task, ...(goesOn ? ["--continue"] : []), ...words, ...more],
      cwd,
      env,
    });
  },
});

function opencode(folder: string, npm: string): CodingAgent {
  const program = join(folder, `opencode-${process.platform}-${process.arch}/bin/opencode`);
  return {
    missing: existsSync(program) ? undefined : `no opencode for ${process.platform} on ${process.arch} is locked`,
    isSlow: true,
    tool: ["bash", "command"],
    prepare({ url, token }, { model, home }) {
      const block = CLIENTS["opencode"]?.block({ address: `${url}/`, token, models: [{ id: model }] });
      const { postern } = block?.["provider"] as { readonly postern: object }; // so the table has it
      // opencode looks for updates and for lists of models elsewhere otherwise
      const quiet = { autoupdate: false, share: "disabled", permission: { bash: "allow", edit: "allow" } };
      const models = { model: `postern/${model}`, small_model: `postern/${model}`, enabled_providers: ["postern"] };
      mkdirSync(join(home, ".config/opencode"), { recursive: true });
      const told = { ...quiet, ...models, ...block, provider: { postern: { ...postern, npm } } };
      writeFileSync(join(home, ".config/opencode/opencode.json"), JSON.stringify(told));
      const env = {
        ...{ HOME: home, OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1" },
        ...{ OPENCODE_DISABLE_LSP_DOWNLOAD: "1", OPENCODE_DISABLE_DEFAULT_PLUGINS: "1" },
      };
      const words = ["--model", `postern/${model}`, "--format", "json"];
      const cwd = workIn(home);
      return (task, { goesOn = false, words: more = [] } = {}) => ({
        argv: [program, "run", ...(goesOn ? ["--continue"] : []), ...words, ...more, task],
        cwd,
        env,
      });
    },
  };
}

/** Returns the coding agents by the name of a test. @param folder their `node_modules` */
export function codingAgents(folder: string) {
  return {
    codex: codex(folder),
    "claude code": claude(folder),
    // The wire that the block of `postern clients` names, and the two others that it brings
    "opencode by @ai-sdk/openai-compatible": opencode(folder, "@ai-sdk/openai-compatible"),
    "opencode by @ai-sdk/openai": opencode(folder, "@ai-sdk/openai"),
    "opencode by @ai-sdk/anthropic": opencode(folder, "@ai-sdk/anthropic"),
  } satisfies Readonly<Record<string, CodingAgent>>;
}
