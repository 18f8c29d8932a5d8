import { createHash } from "node:crypto";
import { lstat, realpath } from "node:fs/promises";
import { isAbsolute, join, relative, resolve, sep } from "node:path";
import { cancelError } from "../../../base/cancel.ts";
import { ToolError } from "../../../base/errors.ts";
import type { Logger } from "../../../base/telemetry/log.ts";
import type { Config } from "../../../config/config.ts";
import type { Files, FileScope, OpenFile } from "../../../system/files/files.ts";
import { shown } from "../../../system/files/parse_path.ts";
import { workerModule, type Workers } from "../../../system/process/workers.ts";
import type {
  InspectedModule,
  ModuleCall,
  ModuleFile,
  ModuleList,
  ModuleReply,
  ModuleScope,
  WasmModules,
} from "../../../tools/wasm/wasm_modules.ts";
import { NO_CAPABILITIES } from "../manifest.ts";
import { RunningPlugin } from "../running_plugin.ts";
import type { InspectJob } from "./inspect_worker.ts";
import type { ModuleRefusal, ModuleReport } from "./inspect_module.ts";
import type { WasmServices } from "./wasm_host.ts";

/** Options of `createToolModules`. */
export interface ToolModulesOptions extends WasmServices {
  readonly workers: Workers;
  readonly log: Logger;
}

/** Modules of `tools_dir`, with hosts for those that are called. */
export interface ToolModules extends WasmModules {
  /** Ends the hosts. Repeating it does nothing */
  close(): Promise<void>;
}

/** Modules of one answer of `list`, and files looked at for it */
const MAX_LISTED = 200;
const MAX_ENTRIES = 5000;
/** Modules whose hosts are kept, and whose SHA-256 is */
const MAX_HOSTS = 16;
const MAX_PINS = 1000;
const READ_BYTES = 1_048_576;
const MAX_HEAP_MB = 1024;
const KEEP_THREAD_MS = 5000;
const MAX_DIGEST_FILE = 1024;

/** Creates the access to the modules of `tools_dir`. Nothing is read before the first call. */
export function createToolModules(options: ToolModulesOptions): ToolModules {
  return new ModuleFolder(options);
}

/** Content of a module's file. */
interface ReadModule {
  /** Path relative to the folder */
  readonly path: string;
  /** Real path of the folder, and the path */
  readonly place: string;
  readonly bytes: SharedArrayBuffer;
  readonly sha256: string;
  /** SHA-256 that a file beside it wants, as `words.wasm.sha256`. undefined: there is no such file */
  readonly wanted: string | undefined;
}

class ModuleFolder implements ToolModules {
  readonly #options: ToolModulesOptions;
  /** SHA-256 of each module when it was loaded, by its place */
  readonly #pins = new Map<string, string>();
  /** Hosts by place, the least recently used first */
  readonly #running = new Map<string, { readonly sha256: string; readonly host: RunningPlugin }>();

  constructor(options: ToolModulesOptions) {
    this.#options = options;
  }

  async list(scope: ModuleScope): Promise<ModuleList> {
    const folder = scope.config.runtime.wasm.tools_dir;
    const root = await toolsDir(scope);
    if (root === undefined) return { folder, modules: [], truncated: false };
    const modules: ModuleFile[] = [];
    const walk = this.#options.files.walk(".", fileScope(root, scope), {
      respectGitignore: false,
      maxEntries: MAX_ENTRIES,
      signal: scope.signal,
    });
    for await (const files of walk) {
      for (const { path, open } of files) {
        if (!path.endsWith(".wasm")) continue;
        if (modules.length === MAX_LISTED) return { folder, modules: sorted(modules), truncated: true };
        const file = await open();
        await file.close();
        modules.push({ path, bytes: file.size, loaded: this.#pins.has(join(root, path)) });
      }
    }
    return { folder, modules: sorted(modules), truncated: false };
  }

  async inspect(path: string, scope: ModuleScope): Promise<InspectedModule> {
    const module = await this.#read(path, scope);
    return describe(module, await this.#report(module, scope));
  }

  async load(path: string, scope: ModuleScope): Promise<InspectedModule> {
    const module = await this.#read(path, scope);
    this.#compare(module, module.wanted, scope.config);
    const report = await this.#report(module, scope);
    if (report.refusal !== null) {
      throw refusalOf(module.path, report.refusal, scope.config);
    }
    this.#pin(module);
    return describe(module, report);
  }

  async call(path: string, call: ModuleCall, scope: ModuleScope): Promise<ModuleReply> {
    const module = await this.#read(path, scope);
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

  async close(): Promise<void> {
    const hosts = [...this.#running.values()];
    this.#running.clear();
    await Promise.all(hosts.map(({ host }) => host.close()));
  }

  async #read(given: string, scope: ModuleScope): Promise<ReadModule> {
    const path = given.endsWith(".wasm") ? given : `${given}.wasm`;
    const root = await toolsDir(scope);
    const { tools_dir: folder, security, max_module_size_mb: maxMb } = scope.config.runtime.wasm;
    if (root === undefined) {
      throw new ToolError("not_found", `Cannot open ${shown(path)}: [runtime.wasm] tools_dir "${folder}" is no folder`);
    }
    if (security.reject_symlink_modules) await refuseLinks(path, root);
    const { files } = this.#options;
    const inside = fileScope(root, scope);
    const bytes = await withFile(files, { path, scope: inside }, async (file) => {
      if (file.size <= maxMb * 1_048_576) return await readAll(file, scope.signal);
      const why = `it has ${file.size} bytes, and [runtime.wasm] max_module_size_mb is ${maxMb}`;
      throw new ToolError("module_too_large", `Cannot read ${shown(path)}: ${why}`);
    });
    const sha256 = createHash("sha256").update(new Uint8Array(bytes)).digest("hex");
    const wanted = await wantedDigest(files, { path: `${path}.sha256`, scope: inside, signal: scope.signal });
    return { path, place: join(root, path), bytes, sha256, wanted };
  }

  async #report({ bytes }: ReadModule, { config, signal }: ModuleScope): Promise<ModuleReport> {
    const { memory_limit_mb: memoryMb, max_module_size_mb: moduleMb } = config.runtime.wasm;
    const job: InspectJob = { bytes, memoryMb, moduleMb };
    // inspect_worker.ts answers exactly this
    return await this.#options.workers.run({
      module: workerModule(import.meta.url, "inspect_worker"),
      input: job,
      maxHeapMb: MAX_HEAP_MB,
      keepMs: KEEP_THREAD_MS,
      signal,
    }) as ModuleReport;
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
        const module = { bytes: new Uint8Array(bytes), entrypoint: "execute", capabilities: NO_CAPABILITIES, config };
        return await openWasmModule(
          { title: `the module ${shown(path)}`, origin: `module ${path}`, ...module },
          this.#options,
        );
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

/**
 * Returns the real path of the folder of the modules; undefined where there is none.
 * @throws {ToolError} `tools_dir_refused` for one that `[runtime.wasm.security]` refuses
 */
async function toolsDir({ config, workspaceRoot }: ModuleScope): Promise<string | undefined> {
  const { tools_dir: folder, security } = config.runtime.wasm;
  const refuse = (reason: string, key: string) =>
    new ToolError(
      "tools_dir_refused",
      `Cannot use [runtime.wasm] tools_dir "${folder}": ${reason}; [runtime.wasm.security] ${key} = false allows it`,
    );
  const workspace = await realpath(workspaceRoot);
  const path = resolve(workspace, folder);
  if (security.require_workspace_relative_tools_dir && (isAbsolute(folder) || !isInside(workspace, path))) {
    throw refuse("it is not relative to the workspace, or leads out of it", "require_workspace_relative_tools_dir");
  }
  const real = await realpath(path).catch(() => undefined);
  if (real === undefined) return undefined;
  if (security.reject_symlink_tools_dir && real !== path) {
    throw refuse("it is a link, or lies in one", "reject_symlink_tools_dir");
  }
  if (security.require_workspace_relative_tools_dir && !isInside(workspace, real)) {
    throw refuse("its link leads out of the workspace", "require_workspace_relative_tools_dir");
  }
  return (await lstat(real)).isDirectory() ? real : undefined;
}

function isInside(root: string, path: string): boolean {
  const way = relative(root, path);
  return way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

/** Refuses a path with a link in it. The path is checked again when it is opened, so that no link leads out of the folder. */
async function refuseLinks(path: string, root: string): Promise<void> {
  let place = root;
  for (const name of path.split("/")) {
    place = join(place, name);
    const info = await lstat(place).catch(() => undefined);
    if (info?.isSymbolicLink() !== true) continue;
    const key = "[runtime.wasm.security] reject_symlink_modules = false allows it";
    throw new ToolError("module_link", `Cannot open ${shown(path)}: it is a link, or lies in one; ${key}`);
  }
}

function fileScope(root: string, { workspaceRoot, config }: ModuleScope): FileScope {
  return { workspaceRoot, allowedRoot: root, forbiddenPaths: config.autonomy.forbidden_paths, allowSensitive: false };
}

/** Reads the SHA-256 that a file beside a module wants, as `sha256sum` writes it. */
async function wantedDigest(
  files: Files,
  { path, scope, signal }: { readonly path: string; readonly scope: FileScope; readonly signal: AbortSignal },
): Promise<string | undefined> {
  try {
    return await withFile(files, { path, scope }, async (file) => {
      const text = file.size > MAX_DIGEST_FILE
        ? ""
        : new TextDecoder().decode(new Uint8Array(await readAll(file, signal)).slice());
      const found = /^\s*([0-9a-f]{64})\b/i.exec(text)?.[1]?.toLowerCase();
      if (found !== undefined) return found;
      throw new ToolError("module_changed", `Cannot use ${shown(path)}: it does not begin with a SHA-256`);
    });
  } catch (error) {
    if (error instanceof ToolError && error.code === "not_found") return undefined;
    throw error;
  }
}

async function withFile<T>(
  files: Files,
  { path, scope }: { readonly path: string; readonly scope: FileScope },
  use: (file: OpenFile) => Promise<T>,
): Promise<T> {
  const file = await files.open(path, scope);
  try {
    return await use(file);
  } finally {
    await file.close();
  }
}

/** Reads a file into shared memory, which a thread gets without a copy. */
async function readAll(file: OpenFile, signal: AbortSignal): Promise<SharedArrayBuffer> {
  const shared = new SharedArrayBuffer(file.size);
  const bytes = new Uint8Array(shared);
  const part = new Uint8Array(Math.min(READ_BYTES, bytes.length));
  for (let at = 0; at < bytes.length; at += part.length) {
    if (signal.aborted) throw cancelError(signal);
    const length = await file.read(part.subarray(0, bytes.length - at), at);
    bytes.set(part.subarray(0, length), at);
  }
  return shared;
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

const sorted = (modules: readonly ModuleFile[]) => [...modules].sort((a, b) => (a.path < b.path ? -1 : 1));
