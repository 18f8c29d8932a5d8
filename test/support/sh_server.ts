/** Scripts of a shell in the place of the program of an MCP server, in the sandbox. */
import process from "node:process";
import { startProgram } from "../../lib/extensions/mcp/start_program.ts";
import type { RunningProgram } from "../../lib/system/process/prepare_program.ts";
import type { Processes } from "../../lib/system/process/processes.ts";
import { mcpConfig, NEVER } from "./mcp_bench.ts";
import { configOf } from "./running_gateway.ts";
import { createToolBench } from "./tool_bench.ts";
import type { Workspace } from "./workspace.ts";

const probe = await createToolBench({ root: process.cwd() }).processes.containment({ sandbox: "auto" });
/** Reason to skip a test of the sandbox; false where there is one. */
export const uncontained = probe.kind === "contained" ? false : probe.text;

/** Starts a script as the program of a server with these `paths`. */
export async function startSh(
  { root, path }: Workspace,
  processes: Processes,
  { paths, script, forbidden = [] }: {
    readonly paths: readonly string[];
    readonly script: string;
    /** `[autonomy] forbidden_paths`. Default: none */
    readonly forbidden?: readonly string[];
  },
): Promise<RunningProgram> {
  const server = { command: "sh", args: ["-c", script], sandbox: "require", paths };
  const config = configOf({ ...mcpConfig({ one: server }), autonomy: { forbidden_paths: forbidden } });
  const settings = config.mcp.servers["one"];
  if (settings === undefined) throw new TypeError("The server is configured above");
  return await startProgram({ name: "one", settings, signal: NEVER }, {
    ...{ processes, workspaceRoot: root, secrets: { fill: () => Promise.resolve({}) } },
    dataDir: path("..", "data"),
    home: "/home/nobody",
    environment: () => undefined,
    config: () => config,
  });
}
