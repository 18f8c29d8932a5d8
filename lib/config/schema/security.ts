import * as v from "valibot";
import { boolean, choice, integer, required, text, texts, textTable } from "./value.ts";

/** Paths no tool may touch at any level (docs/design/policy.md "Autonomy"); a user's `forbidden_paths` add to them. */
export const BUILT_IN_FORBIDDEN_PATHS = ["/etc", "/root", "/proc", "/sys", "~/.ssh", "~/.gnupg", "~/.aws"] as const;

/** `[autonomy]`: what the agent may do by itself. */
export const autonomySchema = v.strictObject({
  /** Read without case, `-` and `_` */
  level: choice(["read_only", "supervised", "full"], "supervised"),
  /** Refuses command arguments outside the workspace */
  workspace_only: boolean(true),
  forbidden_paths: texts(BUILT_IN_FORBIDDEN_PATHS),
  /** Tools whose ask becomes an allow */
  auto_approve: texts([]),
  /** Tools whose allow becomes an ask; wins over auto_approve */
  always_ask: texts([]),
  /** Seconds an attached request waits for an answer */
  approval_timeout_secs: integer(120, 1, 86_400),
  allow_sensitive_file_reads: boolean(false),
  allow_sensitive_file_writes: boolean(false),
});

/** `[tools."<name>"]`: the operator's word on a foreign tool; empty: what the tool's own description says. */
export const toolSchema = v.strictObject({ access: choice(["", "read", "state", "write", "network"], "") });

/** Switches that may stand at top level or in `[security]`; two different values are an error. */
export const switches = {
  enable_git: boolean(false),
  enable_agents_ipc: boolean(true),
  enable_composio: boolean(false),
  enable_pushover: boolean(false),
};

/** `[security]`: files, processes and foreign servers (docs/design/configuration.md "Validation"). */
export const securitySchema = v.strictObject({
  ...switches,
  /** Commands the shell tool may start, each matched whole */
  allowed_commands: texts(["ls", "pwd", "cat", "echo"]),
  read_file: v.optional(
    v.strictObject({
      /** Absolute, or relative to the workspace */
      allowed_root: v.optional(required(), "."),
      max_read_bytes: integer(65_536, 1, 104_857_600),
      allow_binary: boolean(false),
    }),
    {},
  ),
  write_file: v.optional(
    v.strictObject({
      enabled: boolean(false),
      /** Absolute, or relative to the workspace */
      allowed_root: v.optional(required(), "."),
      max_write_bytes: integer(65_536, 1, 104_857_600),
    }),
    {},
  ),
  shell: v.optional(
    v.strictObject({
      /** Without the command itself */
      max_args: integer(8, 0, 1000),
      /** Bytes of each argument */
      max_arg_length: integer(128, 1, 131_072),
      /** Of each stream */
      max_output_bytes: integer(8192, 1, 16_777_216),
      timeout_secs: integer(60, 1, 86_400),
      /** `auto`: where bubblewrap is there; `require`: refuse without it */
      sandbox: choice(["auto", "require", "off"], "auto"),
      /** Or one string; backtick and NUL stay refused whatever it says */
      forbidden_chars: v.optional(v.array(v.pipe(v.string(), v.length(1))), [
        ";",
        "&",
        "|",
        ">",
        "<",
        "$",
        "`",
        "\n",
        "\r",
      ]),
    }),
    {},
  ),
  process: v.optional(
    v.strictObject({
      /** Beside those of `[security]` */
      allowed_commands: texts([]),
      max_processes: integer(8, 1, 1000),
      max_output_bytes: integer(524_288, 1, 67_108_864),
    }),
    {},
  ),
  git: v.optional(
    v.strictObject({ /** Whether git may use the machine's stored credentials */ credentials: boolean(false) }),
    {},
  ),
  mcp: v.optional(
    v.strictObject({ enabled: boolean(false), /** Names of `[mcp.servers.<name>]` */ allowed_servers: texts([]) }),
    {},
  ),
  audit: v.optional(v.strictObject({ enabled: boolean(true), retention_days: integer(365, 1, 36_500) }), {}),
});

/** `[mcp.servers.<name>]`: a program by `command`, or a server by `url`. */
export const mcpServerSchema = v.strictObject({
  command: text(""),
  args: v.optional(v.array(v.string()), []),
  env: textTable(),
  url: text(""),
  headers: textTable(),
});
