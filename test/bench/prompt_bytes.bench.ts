/**
 * Measures the bytes of tool schemas in each turn, per tool and in all: `node test/bench/prompt_bytes.bench.ts`. Bytes are those of the
 * chat-completions format, which is the longest.
 */
import { chooseTools, DeclaredTools } from "../../lib/agent/deferred_tools.ts";
import { type Config, defaultConfig } from "../../lib/config/config.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import { NO_WISHES } from "../../lib/runs/supervisor/run_settings.ts";
import { foreignTools } from "../support/foreign_tools.ts";
import { requestBytes, toolBytes } from "../support/prompt_bytes.ts";

const config = defaultConfig();
const { security } = config;
const typical: Config = {
  ...config,
  security: { ...security, enable_git: true, write_file: { ...security.write_file, enabled: true } },
};

const cases: readonly (readonly [name: string, tools: readonly Tool[]])[] = [
  ["default configuration", enabled(config)],
  ["typical: files may be changed, git", enabled(typical)],
  ["everything enabled", BUILTIN_TOOLS],
  ["default and 500 tools of nodes", [...enabled(config), ...foreignTools(500)]],
];
for (const tool of BUILTIN_TOOLS) console.log(`${String(toolBytes(tool)).padStart(6)}  ${tool.name}`);
for (const [name, tools] of cases) {
  for (const mode of ["off", "auto"] as const) {
    const bytes = requestBytes(declared(tools, mode));
    const figures = `${String(tools.length).padStart(3)} tools ${String(bytes).padStart(6)} bytes a turn`;
    console.log(`${name.padEnd(36)} tool_search ${mode.padEnd(4)} ${figures}`);
  }
}

function declared(tools: readonly Tool[], mode: "auto" | "off") {
  const { agentTools, deferred } = chooseTools(tools, { mode, wishes: NO_WISHES, isFree: false });
  return new DeclaredTools(agentTools, { deferred, clientTools: [] }).declared;
}

function enabled(under: Config): readonly Tool[] {
  return BUILTIN_TOOLS.filter((tool) => tool.enabled === "always" || tool.enabled(under));
}
