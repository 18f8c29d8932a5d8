import { canonicalDigest, type JsonObject } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import { createForeignInput } from "../../tools/runtime/foreign_input.ts";
import type { PreparedCall, Tool, ToolContext } from "../../tools/runtime/tool.ts";
import type { ToolResult } from "../../tools/runtime/tool_call.ts";
import type { PluginManifest, PluginToolManifest } from "./manifest.ts";
import { ExtensionError } from "../extension_error.ts";
import { accessOfPlugin } from "./plugin_gate.ts";
import type { PluginAnswer, PluginCall } from "./plugin_host.ts";

/** Plugin whose tools are offered, and the way to call it. */
export interface OfferedPlugin {
  readonly manifest: PluginManifest;
  readonly digest: string;
  /** Returns the newest configuration, for the access that lists show */
  readonly config: () => Config;
  /** Returns the edit or command that turns the plugin on; undefined while it is on */
  readonly wayOn: (config: Config) => string | undefined;
  /** Makes the call. @throws {ExtensionError} {ToolError} {CancelError} */
  readonly call: (call: PluginCall, signal: AbortSignal) => Promise<PluginAnswer>;
}

/** Milliseconds beyond the limit of the host: its own error comes first and says more. */
const GRACE_MS = 5_000;

/** Makes a tool of a plugin one of the gateway's. Its access is computed, and its output is content from outside. */
export function createPluginTool(plugin: OfferedPlugin, tool: PluginToolManifest): Tool {
  const { manifest, digest, config, wayOn } = plugin;
  const { name } = tool;
  const { schema, read } = createForeignInput(name, tool.input_schema);
  const prepare = (text: string): PreparedCall => {
    const input = read(text);
    return {
      input,
      digest: canonicalDigest(input),
      access: accessOfPlugin(manifest, name, config()),
      effects: {},
      // An answer counts for the plugin that was shown: another version of it is another tool
      bind: () => Promise.resolve({ shown: [{ kind: "plugin", name: manifest.id, sha256: digest }] }),
      run: (context) => run(plugin, { tool: name, input, context }),
    };
  };
  return {
    name,
    description: tool.description,
    get access() {
      return accessOfPlugin(manifest, name, config());
    },
    source: manifest.kind,
    origin: `plugin ${manifest.id} ${manifest.version}`,
    outside: true,
    enabled: (now) => wayOn(now) === undefined,
    wayOn: (now) => wayOn(now) ?? "nothing: it is on",
    enabledBy: undefined,
    local: true,
    needs: [],
    inputSchema: schema,
    timeoutMs: ({ runtime, plugins }) =>
      (manifest.kind === "wasm" ? runtime.wasm : plugins).timeout_secs * 1000 + GRACE_MS,
    prepare,
    execute: async (text, context) => await prepare(text).run(context),
  };
}

async function run(
  plugin: OfferedPlugin,
  { tool, input, context }: {
    readonly tool: string;
    readonly input: Readonly<Record<string, unknown>>;
    readonly context: ToolContext;
  },
): Promise<ToolResult> {
  const call: PluginCall = {
    tool,
    // The input was parsed from JSON
    input: input as JsonObject,
    context: {
      workspace_root: context.workspaceRoot,
      allow_sensitive_file_reads: context.allowSensitiveFileReads,
      allow_sensitive_file_writes: context.allowSensitiveFileWrites,
    },
  };
  try {
    const { output, is_error: isError, data } = await plugin.call(call, context.signal);
    return { output, isError, ...(data === undefined ? {} : { data }) };
  } catch (error) {
    if (error instanceof ExtensionError) throw new ToolError(error.code, error.message, { cause: error });
    throw error;
  }
}
