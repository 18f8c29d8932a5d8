import * as v from "valibot";
import {
  about,
  addressOrFolder,
  boolean,
  choice,
  integer,
  named,
  required,
  settingsTable,
  text,
  texts,
} from "./value.ts";

const wasmSecuritySchema = v.strictObject({
  require_workspace_relative_tools_dir: about("Refuses a `tools_dir` outside the workspace", boolean(true)),
  reject_symlink_modules: about("Refuses modules that are links", boolean(true)),
  reject_symlink_tools_dir: about("Refuses a `tools_dir` that is a link", boolean(true)),
  capability_escalation_mode: about(
    "What becomes of a module that asks for more than it was granted",
    choice(["deny"], "deny"),
  ),
  module_hash_policy: about(
    "What becomes of a module whose SHA-256 differs: `enforce` refuses it, `warn` loads it and says so",
    choice(["enforce", "warn"], "enforce"),
  ),
});

/** `[runtime]`: what WASM tools may use. */
export const runtimeSchema = v.strictObject({
  wasm: about(
    "Bounds of WASM modules",
    v.optional(
      v.strictObject({
        tools_dir: about("Folder of the modules, relative to the workspace", v.optional(required(), "tools/wasm")),
        fuel_limit: about(
          "Units of fuel of one call: about one for each branch that its code takes. 0: no limit",
          integer(1_000_000, 0, 1_000_000_000_000),
        ),
        max_fuel: about(
          "Most units that a manifest may ask for in place of `fuel_limit`. 0: as many as it asks for",
          integer(1_000_000_000, 0, 1_000_000_000_000),
        ),
        memory_limit_mb: about("Megabytes of memory of one call", integer(64, 1, 4096)),
        max_module_size_mb: about("Megabytes of a module", integer(50, 1, 1024)),
        timeout_secs: about("Seconds of one call", integer(30, 1, 3600)),
        allow_workspace_read: about("Lets modules read the workspace", boolean(false)),
        allow_workspace_write: about("Lets modules write to the workspace", boolean(false)),
        allowed_hosts: about("Hosts that modules may reach", texts([])),
        security: about("What is refused before a module is loaded", v.optional(wasmSecuritySchema, {})),
      }),
      {},
    ),
  ),
});

/** `[plugins]`: process and FFI plugins are machine code of others. */
export const pluginsSchema = v.strictObject({
  registry_url: about("Registry of plugins: the address of its index, or an absolute folder", addressOrFolder()),
  user_dir: about("Folder of the plugins. Empty: `plugins` of the data directory", text("")),
  allow_process: about("Allows plugins that are programs", boolean(false)),
  allow_ffi: about("Allows plugins that are libraries of machine code", boolean(false)),
  sandbox: about(
    "Contains programs, and libraries in a process of their own, to their capabilities by bubblewrap. `auto`: with the user's rights where there is none. `require`: refused there. `off`: with the user's rights everywhere",
    choice(["auto", "require", "off"], "auto"),
  ),
  ffi: about(
    "Where libraries run: in a process of their own, or `in_process`, with all rights of the gateway and ending it when they crash",
    choice(["process", "in_process"], "process"),
  ),
  timeout_secs: about("Seconds of one call of a program or library", integer(30, 1, 3600)),
  max_output_bytes: about("Bytes of one answer of a program or library", integer(1_048_576, 1024, 67_108_864)),
  config: about(
    'Settings that a plugin gets with each call, by its id: `weather = { units = "metric", api_key = { secret = "name" } }`',
    named(settingsTable()),
  ),
});

const regionSchema = v.strictObject({
  name: about("Name of the region", required()),
  start: about(
    "First address, such as `0x2000_0000`",
    v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER)),
  ),
  length: about(
    "Bytes of the region",
    v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(Number.MAX_SAFE_INTEGER)),
  ),
});

/** With a port from 1 to 65535 */
const HOST_AND_PORT = /^\S+:([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$/;

/** `[hardware]`: boards reached over the GDB remote protocol. */
export const hardwareSchema = v.strictObject({
  boards: about(
    "Boards by a name of your choice",
    named(
      v.strictObject({
        gdb_remote: about(
          "Address of the GDB server, such as `host:port`",
          v.optional(
            v.pipe(v.string(), v.regex(HOST_AND_PORT), v.description("an address with a port, such as 127.0.0.1:3333")),
            "127.0.0.1:3333",
          ),
        ),
        memory_map: about(
          "Regions that may be read. Nothing outside them is",
          v.optional(v.pipe(v.array(regionSchema), v.maxLength(1000)), []),
        ),
      }),
    ),
  ),
});
