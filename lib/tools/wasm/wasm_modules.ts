import type { Config } from "../../config/config.ts";
import type { JsonObject } from "../../base/json.ts";

/** WASM modules in the folder `[runtime.wasm] tools_dir`. They compute: no module of it gets the workspace, a host or a file. */
export interface WasmModules {
  /**
   * Lists the modules, sorted by path: those of a folder that is not there are none.
   * @throws {ToolError} `tools_dir_refused`; {CancelError} when the signal aborts
   */
  list(scope: ModuleScope): Promise<ModuleList>;
  /**
   * Reads what a module is, without running it.
   * @throws {ToolError} `tools_dir_refused`, `module_link`, `module_too_large`, and as Files.open; {CancelError} when the signal aborts
   */
  inspect(path: string, scope: ModuleScope): Promise<InspectedModule>;
  /**
   * Checks a module and keeps its SHA-256: later calls want the same content.
   * @throws {ToolError} as `inspect`, `module_changed`, and the code of what refuses the module
   */
  load(path: string, scope: ModuleScope): Promise<InspectedModule>;
  /**
   * Calls a module by its function `execute`, which gets a call as a plugin does. Where there is none, the call's tool names a function,
   * which gets the input as JSON, or the text of `{"text": ...}` alone, and whose output is text.
   * @throws {ToolError} as `load`, and what a plugin's call throws; {CancelError} when the signal aborts
   */
  call(path: string, call: ModuleCall, scope: ModuleScope): Promise<ModuleReply>;
}

/** Part of a tool call's context that decides about modules. */
export interface ModuleScope {
  /** Absolute path of the workspace */
  readonly workspaceRoot: string;
  readonly config: Config;
  readonly signal: AbortSignal;
}

/** Modules of the folder. `truncated`: there are more. */
export interface ModuleList {
  /** Folder as `[runtime.wasm] tools_dir` names it */
  readonly folder: string;
  readonly modules: readonly ModuleFile[];
  readonly truncated: boolean;
}

/** File of a module. */
export interface ModuleFile {
  /** Path relative to the folder, with `/` */
  readonly path: string;
  readonly bytes: number;
  /** True when a call or `load` has used it since the gateway started */
  readonly loaded: boolean;
}

/** Facts about one module. */
export interface InspectedModule {
  readonly path: string;
  readonly bytes: number;
  /** SHA-256 of the file, hexadecimal */
  readonly sha256: string;
  readonly imports: readonly {
    readonly module: string;
    readonly name: string;
    readonly kind: string;
    readonly type: string | null;
    /** True when the module may import it */
    readonly granted: boolean;
  }[];
  readonly exports: readonly { readonly name: string; readonly kind: string; readonly type: string | null }[];
  /** Pages of 64 KiB. `max` is null where the module names none. null: it has no memory of its own */
  readonly memory: InspectedSizes | null;
  /** Entries of its tables */
  readonly tables: readonly InspectedSizes[];
  /** Number of functions of its own */
  readonly functions: number;
  /** True when a function runs as soon as the module is instantiated */
  readonly has_start: boolean;
  readonly custom_sections: readonly string[];
  /** Features that its compiler says it used */
  readonly features: readonly string[];
  /** Reason why it cannot be loaded. null: it can */
  readonly refusal: { readonly code: string; readonly reason: string } | null;
}

/** Least and greatest size of a memory or a table. */
export interface InspectedSizes {
  readonly min: number;
  readonly max: number | null;
}

/** Call of a module. */
export interface ModuleCall {
  readonly tool: string;
  readonly input: JsonObject;
}

/** Answer of a module. */
export interface ModuleReply {
  readonly output: string;
  readonly is_error: boolean;
  readonly data?: unknown;
}
