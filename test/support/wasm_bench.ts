import { type Clock, systemClock } from "../../lib/base/clock.ts";
import type { Config } from "../../lib/config/config.ts";
import { NO_CAPABILITIES, type PluginCapabilities } from "../../lib/extensions/plugins/manifest.ts";
import type { PluginAnswer } from "../../lib/extensions/plugins/plugin_host.ts";
import { type ModuleToOpen, openWasmModule, type WasmHost } from "../../lib/extensions/plugins/wasm/wasm_host.ts";
import type { SecretHandles } from "../../lib/extensions/plugins/wasm/secret_handles.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import { createGuardedFetch } from "../../lib/system/net/guarded_fetch.ts";
import { createUrlPolicy } from "../../lib/system/net/url_policy.ts";
import { configOf } from "./running_gateway.ts";
import { compileWat } from "./wat.ts";
import { withWorkspace, type Workspace } from "./workspace.ts";

/** Options of `withModule`. */
export interface WasmBenchOptions {
  /** Tables of the configuration. Default: none */
  readonly config?: Readonly<Record<string, unknown>>;
  /** `[runtime.wasm]` */
  readonly wasm?: Readonly<Record<string, unknown>>;
  readonly capabilities?: Partial<PluginCapabilities>;
  readonly fuel?: number;
  readonly files?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
  /** Settings of the module. Default: none */
  readonly handles?: SecretHandles;
}

/** Module that was opened over services of a test. */
export interface WasmBench {
  readonly host: WasmHost;
  readonly workspace: Workspace;
  readonly config: Config;
  /** Paths that were marked as tainted, each with its origins */
  readonly marked: readonly string[];
  call(text?: string, signal?: AbortSignal): Promise<PluginAnswer>;
}

/** Opens a module, WAT or bytes, in a fresh workspace, runs `use` with it and closes it. */
export async function withModule(
  source: string | Uint8Array,
  use: (bench: WasmBench) => Promise<void>,
  options: WasmBenchOptions = {},
): Promise<void> {
  await withWorkspace(options.files ?? {}, async (workspace) => {
    const config = configOf({ ...options.config, runtime: { wasm: options.wasm ?? {} } });
    const clock = options.clock ?? systemClock;
    const marked: string[] = [];
    const module: ModuleToOpen = {
      title: 'plugin "sample"',
      origin: "plugin sample",
      bytes: typeof source === "string" ? compileWat(source) : source,
      entrypoint: "execute",
      fuel: options.fuel,
      capabilities: { ...NO_CAPABILITIES, ...options.capabilities },
      config,
      handles: options.handles,
    };
    const policy = createUrlPolicy({});
    const host = await openWasmModule(module, {
      clock,
      files: createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] }),
      taintedFiles: {
        mark: (paths, { taint }) =>
          Promise.resolve(void marked.push(...paths.map((path) => `${path} ${taint.join()}`))),
        written: () => Promise.resolve(),
      },
      guardedFetch: () =>
        Promise.resolve(createGuardedFetch({ policy, clock: systemClock, userAgent: "postern/test" })),
    });
    const context = {
      workspace_root: workspace.root,
      allow_sensitive_file_reads: false,
      allow_sensitive_file_writes: false,
    };
    const call = (text = "", signal = new AbortController().signal) =>
      host.call({ tool: "say", input: { text }, context }, signal);
    try {
      await use({ host, workspace, config, marked, call });
    } finally {
      await host.close();
    }
  });
}
