import * as v from "valibot";
import { boolean, choice, httpUrl, integer, named, required, text, texts } from "./value.ts";

const wasmSecuritySchema = v.strictObject({
  require_workspace_relative_tools_dir: boolean(true),
  reject_symlink_modules: boolean(true),
  reject_symlink_tools_dir: boolean(true),
  /** A plugin that asks for more than it was granted is refused */
  capability_escalation_mode: choice(["deny"], "deny"),
  /** `warn` loads a module whose SHA-256 differs and says so */
  module_hash_policy: choice(["enforce", "warn"], "enforce"),
});

/** `[runtime]`: what WASM tools may use. */
export const runtimeSchema = v.strictObject({
  wasm: v.optional(
    v.strictObject({
      /** Relative to the workspace */
      tools_dir: v.optional(required(), "tools/wasm"),
      /** Steps of one call, 0: no limit */
      fuel_limit: integer(1_000_000, 0, 1_000_000_000_000),
      memory_limit_mb: integer(64, 1, 4096),
      max_module_size_mb: integer(50, 1, 1024),
      timeout_secs: integer(30, 1, 3600),
      allow_workspace_read: boolean(false),
      allow_workspace_write: boolean(false),
      allowed_hosts: texts([]),
      security: v.optional(wasmSecuritySchema, {}),
    }),
    {},
  ),
});

/** `[plugins]`: process and FFI plugins run with the user's rights. */
export const pluginsSchema = v.strictObject({
  registry_url: httpUrl(),
  /** Empty: `{data_dir}/plugins` */
  user_dir: text(""),
  allow_process: boolean(false),
  allow_ffi: boolean(false),
});

const regionSchema = v.strictObject({
  name: required(),
  /** First address; TOML reads `0x2000_0000` */
  start: v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER)),
  /** Bytes */
  length: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(Number.MAX_SAFE_INTEGER)),
});

/** With a port from 1 to 65535 */
const HOST_AND_PORT = /^\S+:([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$/;

/** `[hardware]`: boards reached over the GDB remote protocol. */
export const hardwareSchema = v.strictObject({
  boards: named(
    v.strictObject({
      /** `host:port` of the GDB server */
      gdb_remote: v.optional(
        v.pipe(v.string(), v.regex(HOST_AND_PORT), v.description("an address with a port, as 127.0.0.1:3333")),
        "127.0.0.1:3333",
      ),
      memory_map: v.optional(v.pipe(v.array(regionSchema), v.maxLength(1000)), []),
    }),
  ),
});
