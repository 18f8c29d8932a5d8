import { ToolError } from "../../../base/errors.ts";
import type { JsonObject } from "../../../base/json.ts";
import type { Logger } from "../../../base/telemetry/log.ts";
import { listSome } from "../../../base/text.ts";
import type { Config } from "../../../config/config.ts";
import { shown } from "../../../system/files/parse_path.ts";
import type { Workers } from "../../../system/process/workers.ts";
import type {
  InspectedModule,
  ModuleCall,
  ModuleList,
  ModuleReply,
  ModuleScope,
  WasmModules,
} from "../../../tools/wasm/wasm_modules.ts";
import { decodeText } from "../../../tools/files/read_text.ts";
import { NO_CAPABILITIES } from "../manifest.ts";
import type { PluginHost } from "../plugin_host.ts";
import { RunningPlugin } from "../running_plugin.ts";
import { inspectInThread } from "./inspect_in_thread.ts";
import type { ModuleRefusal, ModuleReport } from "./inspect_module.ts";
import { listToolModules, type ReadModule, readToolModule } from "./tools_dir.ts";
import type { WasmHost, WasmServices } from "./wasm_host.ts";

/** Options of `ToolModules`. */
export interface ToolModulesOptions extends WasmServices {
  readonly workers: Workers;
  readonly log: Logger;
}

/** Modules whose hosts are kept, and whose SHA-256 is */
const MAX_HOSTS = 16;
const MAX_PINS = 1000;
/** Functions that an error names */
const MAX_NAMES = 20;

/** Modules of `tools_dir`, with hosts for those that are called. Nothing is read before the first call. */
export class ToolModules implements WasmModules {
  readonly #options: ToolModulesOptions;
  /** SHA-256 of each module when it was loaded, by its place */
  readonly #pins = new Map<string, string>();
  /** Hosts by place, the least recently used first */
  readonly #running = new Map<string, { readonly sha256: string; readonly host: RunningPlugin }>();

  constructor(options: ToolModulesOptions) {
    this.#options = options;
  }

  async list(scope: ModuleScope): Promise<ModuleList> {
    const { modules, truncated } = await listToolModules(scope, this.#options.files);
    const known = modules.map(({ path, place, bytes }) => ({ path, bytes, loaded: this.#pins.has(place) }));
    return { folder: scope.config.runtime.wasm.tools_dir, modules: known, truncated };
  }

  async inspect(path: string, scope: ModuleScope): Promise<InspectedModule> {
    const module = await readToolModule(path, scope, this.#options.files);
    return describe(module, await this.#report(module, scope));
  }

  async load(path: string, scope: ModuleScope): Promise<InspectedModule> {
    const module = await readToolModule(path, scope, this.#options.files);
    this.#compare(module, module.wanted, scope.config);
    const report = await this.#report(module, scope);
    if (report.refusal !== null) throw refusalOf(module.path, report.refusal, scope.config);
    this.#pin(module);
    return describe(module, report);
  }

  async call(path: string, call: ModuleCall, scope: ModuleScope): Promise<ModuleReply> {
    const module = await readToolModule(path, scope, this.#options.files);
    this.#compare(module, module.wanted ?? this.#pins.get(module.place), scope.config);
    const { allow_sensitive_file_reads, allow_sensitive_file_writes } = scope.config.autonomy;
    const context = { workspace_root: scope.workspaceRoot, allow_sensitive_file_reads, allow_sensitive_file_writes };
    const { output, is_error, data } = await this.#hostOf(module, scope.config).call(
      { ...call, context },
      scope.signal,
    );
    this.#pin(module);
    return { output, is_error, ...(data === undefined ? {} : { data }) };
  }

  /** Ends the hosts. Repeating it does nothing */
  async close(): Promise<void> {
    const hosts = [...this.#running.values()];
    this.#running.clear();
    await Promise.all(hosts.map(({ host }) => host.close()));
  }

  async #report({ bytes }: ReadModule, { config, signal }: ModuleScope): Promise<ModuleReport> {
    const { memory_limit_mb: memoryMb, max_module_size_mb: moduleMb } = config.runtime.wasm;
    const job = { bytes, memoryMb, moduleMb, capabilities: NO_CAPABILITIES };
    return await inspectInThread(job, { workers: this.#options.workers, signal });
  }

  /** Compares a module with the SHA-256 that is wanted. @throws {ToolError} `module_changed` under `enforce` */
  #compare({ path, sha256, wanted }: ReadModule, expected: string | undefined, config: Config): void {
    if (expected === undefined || expected === sha256) return;
    const { module_hash_policy: policy } = config.runtime.wasm.security;
    const source = wanted === undefined ? "as when it was loaded" : `as ${shown(`${path}.sha256`)} has it`;
    const reason = `its SHA-256 is ${sha256}, not ${expected} ${source}`;
    if (policy === "warn") {
      this.#options.log.warn("A WASM module has changed", { module: path, sha256, expected });
      return;
    }
    const way = wanted === undefined
      ? "load it again with wasm_module when that is meant"
      : "correct the one or the other";
    throw new ToolError("module_changed", `Cannot use ${shown(path)}: ${reason}; ${way}`);
  }

  #pin({ place, sha256 }: ReadModule): void {
    this.#pins.delete(place);
    this.#pins.set(place, sha256);
    const [oldest] = this.#pins.keys();
    if (this.#pins.size > MAX_PINS && oldest !== undefined) this.#pins.delete(oldest);
  }

  #hostOf({ path, place, sha256, bytes }: ReadModule, config: Config): RunningPlugin {
    const known = this.#running.get(place);
    this.#running.delete(place);
    const stamp = JSON.stringify([sha256, config.runtime, config.plugins]);
    if (known?.sha256 === stamp) {
      this.#running.set(place, known);
      return known.host;
    }
    void known?.host.retire();
    const host = new RunningPlugin({
      key: () => stamp,
      open: async () => {
        const { openWasmModule } = await import("./wasm_host.ts");
        const title = `the module ${shown(path)}`;
        const module = { title, origin: `module ${path}`, bytes: new Uint8Array(bytes), capabilities: NO_CAPABILITIES };
        return answerTools(await openWasmModule({ ...module, config }, this.#options), title);
      },
      onCloseError: (error) => this.#options.log.error("A WASM module could not be closed", { module: path, error }),
    });
    this.#running.set(place, { sha256: stamp, host });
    const [oldest] = this.#running;
    if (this.#running.size > MAX_HOSTS && oldest !== undefined) {
      this.#running.delete(oldest[0]);
      void oldest[1].host.retire();
    }
    return host;
  }
}

/** Function of a module that gets calls as a plugin does. */
const ENTRYPOINT = "execute";

/** Returns a host whose calls go to the function that a call's tool names, where the module knows nothing of Postern. */
function answerTools(host: WasmHost, title: string): PluginHost {
  const { exports } = host.facts;
  if (exports.includes(ENTRYPOINT)) return host;
  return {
    async call({ tool, input }, signal) {
      if (!exports.includes(tool)) {
        const has = exports.length === 0 ? "no function" : `the functions ${listSome(exports, MAX_NAMES)}`;
        throw new ToolError(
          "module_invalid",
          `Cannot call ${title}: it exports neither "${ENTRYPOINT}" nor "${tool}", but ${has}`,
        );
      }
      const { output, used } = await host.callExport({ name: tool, input: plainInput(input) }, signal);
      const text = decodeText(output);
      if (text === undefined) {
        throw new ToolError("plugin_answer_invalid", `Cannot use the answer of ${title}: it is no text in UTF-8`);
      }
      return { output: text, is_error: false, used };
    },
    close: () => host.close(),
  };
}

/** Returns the text of `{"text": ...}` alone, and any other input as JSON. */
function plainInput(input: JsonObject): string {
  const { text, ...rest } = input;
  return typeof text === "string" && Object.keys(rest).length === 0 ? text : JSON.stringify(input);
}

/** Returns the refusal of a module. One that asks for more than it gets is told how it gets more. */
function refusalOf(path: string, { code, reason }: ModuleRefusal, { runtime: { wasm } }: Config): ToolError {
  const { capability_escalation_mode: mode } = wasm.security;
  const way = code === "module_import"
    ? `; a module of [runtime.wasm] tools_dir has no capabilities (capability_escalation_mode = "${mode}"): make a plugin of it`
    : "";
  return new ToolError(code, `Cannot load ${shown(path)}: ${reason}${way}`);
}

function describe({ path, bytes, sha256 }: ReadModule, report: ModuleReport): InspectedModule {
  return { path, bytes: bytes.byteLength, sha256, ...report };
}
