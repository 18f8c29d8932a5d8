import type { JsonObject, JsonValue } from "../../base/json.ts";

/** Call of a plugin's tool, as the plugin gets it in JSON. */
export interface PluginCall {
  /** Name of the tool in the manifest */
  readonly tool: string;
  /** Input that the tool's schema was checked against */
  readonly input: JsonObject;
  readonly context: {
    /** Absolute path of the folder that the agent works in */
    readonly workspace_root: string;
    readonly allow_sensitive_file_reads: boolean;
    readonly allow_sensitive_file_writes: boolean;
  };
  /** Settings of the plugin, which the host fills in. Default: none */
  readonly config?: JsonObject;
}

/** Resources that one call used. A host gives those that it measures. */
export interface PluginUse {
  /** Units of fuel, each a basic block of the module */
  readonly fuel?: number;
  /** Bytes of memory at the end of the call */
  readonly memory_bytes?: number;
  /** Milliseconds from the call to its answer */
  readonly ms: number;
}

/** Answer of a plugin to one call. */
export interface PluginAnswer {
  /** Text for the model */
  readonly output: string;
  readonly is_error: boolean;
  /** Value for programs. Default: none */
  readonly data?: JsonValue;
  readonly used?: PluginUse;
}

/** Plugin that is ready to answer calls. */
export interface PluginHost {
  /**
   * Makes one call.
   * @throws {ToolError} a call that the plugin or its host could not answer; {CancelError} when the signal aborts
   */
  call(call: PluginCall, signal: AbortSignal): Promise<PluginAnswer>;
  /** Ends the plugin and frees what it holds. Repeating it does nothing */
  close(): Promise<void>;
}
