import type { Config } from "../../config/config.ts";
import { ExtensionError } from "../extension_error.ts";
import { misfitOf } from "./plugin_gate.ts";
import type { PluginPackage } from "./plugin_package.ts";
import type { InspectJob, ModuleReport } from "./wasm/inspect_module.ts";

/** Circumstances that decide whether a plugin can be loaded. */
export interface PluginCheck {
  readonly config: Pick<Config, "runtime">;
  /** Kinds that this version runs */
  readonly kinds: readonly string[];
  /** Looks at a module, in a thread where others wait */
  readonly inspect: (job: InspectJob) => Promise<ModuleReport>;
}

/**
 * Refuses a plugin that could not be loaded: what an installation, `plugin test` and `enable` ask. Its module is metered as by the load
 * itself (`meterModule`).
 * @returns the report on its module. undefined: it has none
 * @throws {ExtensionError} `plugin_conflict` for another version of Postern, `package_too_large` and `package_invalid` for its module
 */
export async function checkPlugin(
  { manifest, files }: Pick<PluginPackage, "manifest" | "files">,
  { config, kinds, inspect }: PluginCheck,
): Promise<ModuleReport | undefined> {
  const about = `Cannot use the plugin "${manifest.id}": `;
  const misfit = misfitOf(manifest, kinds);
  if (misfit !== undefined) throw new ExtensionError("plugin_conflict", about + misfit);
  if (manifest.kind !== "wasm") return undefined;
  const { file, entrypoint } = manifest.wasm;
  const module = files.find(({ path }) => path === file)?.bytes ?? new Uint8Array();
  // Shared, since a thread would get a copy, which is slow on Deno
  const bytes = new Uint8Array(new SharedArrayBuffer(module.length));
  bytes.set(module);
  const { memory_limit_mb: memoryMb, max_module_size_mb: moduleMb } = config.runtime.wasm;
  const { capabilities } = manifest;
  const report = await inspect({ bytes: bytes.buffer, memoryMb, moduleMb, capabilities, entrypoint });
  const { refusal } = report;
  if (refusal === null) return report;
  const way = refusal.code === "module_import" ? '; "capabilities" in plugin.json says what it may import' : "";
  const code = refusal.code === "module_too_large" ? "package_too_large" : "package_invalid";
  throw new ExtensionError(code, `${about}"${file}": ${refusal.reason}${way}`);
}
