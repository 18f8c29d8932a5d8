import { answerJobs } from "../../../system/process/workers.ts";
import type { PluginCapabilities } from "../manifest.ts";
import { inspectModule, type ModuleReport } from "./inspect_module.ts";
import { grantsImport } from "./module_imports.ts";

/** Module to look at, and the bounds of the configuration. */
export interface InspectJob {
  readonly bytes: SharedArrayBuffer;
  /** `[runtime.wasm] memory_limit_mb` */
  readonly memoryMb: number;
  /** `[runtime.wasm] max_module_size_mb` */
  readonly moduleMb: number;
  /** Rights that it has */
  readonly capabilities: PluginCapabilities;
}

// Runs as a thread of its own: a large module takes seconds
answerJobs((input): Promise<ModuleReport> => {
  // tool_modules.ts gives exactly this
  const { bytes, memoryMb, moduleMb, capabilities } = input as InspectJob;
  return Promise.resolve(
    inspectModule(new Uint8Array(bytes), { memoryMb, moduleMb, isGranted: grantsImport(capabilities) }),
  );
});
