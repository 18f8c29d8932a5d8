import type { RedactPart } from "../../base/redact.ts";
import type { TaintedFiles } from "../../guard/tainted_files.ts";
import type { Files } from "../../system/files/files.ts";
import type { GuardedFetch } from "../../system/net/guarded_fetch.ts";
import type { Processes } from "../../system/process/processes.ts";
import type { Workers } from "../../system/process/workers.ts";
import type { ToolSecrets } from "../../tools/secrets/tool_secrets.ts";
import type { PluginOpeners } from "./plugin_openers.ts";
import { createPluginRegistry, type PluginRegistry } from "./plugin_registry.ts";
import { Plugins, type PluginsOptions } from "./plugins.ts";

/** Options of `createPluginServices`. */
export interface PluginServicesOptions extends Omit<PluginsOptions, "openers" | "containment" | "inspect"> {
  readonly workers: Workers;
  readonly processes: Processes;
  readonly files: Files;
  readonly taintedFiles: TaintedFiles;
  /** Returns the guarded fetch, which is loaded at the first call. */
  readonly guardedFetch: () => Promise<GuardedFetch>;
  /** Fills secrets into the settings of plugins. */
  readonly secrets: Pick<ToolSecrets, "fill">;
  /** Masks secrets in what a plugin says on its standard error. */
  readonly redact: RedactPart;
}

/** Plugins of one gateway, and the registry that they are installed from. */
export interface PluginServices extends Pick<Plugins, "tools" | "close"> {
  readonly plugins: Pick<Plugins, keyof Plugins>;
  readonly registry: PluginRegistry;
}

/** Reads the plugins, with a host for each kind that this version runs. */
export async function createPluginServices(options: PluginServicesOptions): Promise<PluginServices> {
  const { store, clock, random, log, audit, config, dataDir, workspaceRoot, home, processes, guardedFetch } = options;
  const plugins = await Plugins.open({
    ...{ store, clock, random, log, audit, config, dataDir, workspaceRoot, home },
    async inspect(job, signal) {
      const { inspectInThread } = await import("./wasm/inspect_in_thread.ts");
      return await inspectInThread(job, { workers: options.workers, signal });
    },
    openers: createOpeners(options),
    containment: (settings) => processes.containment(settings),
  });
  return {
    plugins,
    registry: createPluginRegistry({ plugins, store, clock, audit, config, guardedFetch }),
    tools: plugins.tools,
    close: () => plugins.close(),
  };
}

/** Creates the openers by kind. A host is loaded when a plugin of its kind is opened. */
function createOpeners(services: PluginServicesOptions): PluginOpeners {
  return {
    async wasm(plugin) {
      const { createWasmOpener } = await import("./wasm/wasm_host.ts");
      return await createWasmOpener(services)(plugin);
    },
    async process(plugin) {
      const { createProcessOpener } = await import("./process/program_plugin.ts");
      return await createProcessOpener(services)(plugin);
    },
    async ffi(plugin) {
      const { createFfiOpener } = await import("./ffi/ffi_plugin.ts");
      return await createFfiOpener(services)(plugin);
    },
  };
}
