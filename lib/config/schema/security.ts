import * as v from "valibot";
import { BUILT_IN_FORBIDDEN_PATHS } from "../../base/built_in_forbidden_paths.ts";
import {
  about,
  boolean,
  choice,
  environmentName,
  fillableTable,
  httpUrl,
  integer,
  required,
  text,
  texts,
} from "./value.ts";

const pattern = (meaning: string) => about(meaning, v.optional(v.pipe(v.string(), v.maxLength(MAX_PATTERN)), ""));
/** Characters of a pattern. */
const MAX_PATTERN = 500;
const MAX_RULES = 200;

/** `[[autonomy.rules]]`: one written rule (docs/design/policy.md "Rules"). */
const ruleSchema = v.strictObject({
  name: about(
    "Name of the rule, 1-64 of a-z, 0-9, _ and -. The same name in the environment or on the command line takes its place",
    v.pipe(v.string(), v.regex(/^[a-z0-9_-]{1,64}$/), v.description("1-64 of a-z, 0-9, _ and -")),
  ),
  tool: about(
    "Tool that the rule is about: a name, a beginning as `mcp__files__*`, or `*`",
    v.pipe(v.string(), v.regex(/^[A-Za-z0-9_.-]*\*?$/), v.nonEmpty(), v.maxLength(256)),
  ),
  op: pattern("Operation, as the field `op` of the input has it. Empty: each"),
  command: pattern(
    "Words of the command, such as `git log *`. A word `*` stands for any words or none, `*` within a word for any characters. Empty: any command",
  ),
  path: pattern(
    "Path that the call names, such as `docs/**`, relative to the workspace. `**` stands for any folders, `*` for any characters of one name. Empty: any path",
  ),
  host: pattern("Host of the address that the call names, such as `example.org` or `*.example.org`. Empty: any host"),
  then: about(
    "What becomes of such a call. Any `deny` wins, else any `ask`, else an `allow`",
    v.pipe(v.picklist(["allow", "ask", "deny"]), v.description("`allow`, `ask` or `deny`")),
  ),
});

/** `[autonomy]`: what the agent may do by itself. */
export const autonomySchema = v.strictObject({
  level: about(
    "What the agent may do without a person: `read_only`, `supervised` (a person is asked before it writes or reaches the network) or `full`",
    choice(["read_only", "supervised", "full"], "supervised"),
  ),
  workspace_only: about("Refuses arguments of commands that name a path outside the workspace", boolean(true)),
  forbidden_paths: about(
    "Paths that no tool may touch. The built-in ones always stay in it",
    texts(BUILT_IN_FORBIDDEN_PATHS),
  ),
  auto_approve: about("Tools that run without the question that the level would ask", texts([])),
  always_ask: about("Tools that always ask. Goes before `auto_approve`", texts([])),
  rules: about(
    "Rules about single calls, by tool, command, path and host",
    v.optional(v.pipe(v.array(ruleSchema), v.maxLength(MAX_RULES)), []),
  ),
  after_outside_content: about(
    "What a run may do once it has read content from outside, such as a web page. `ask`: `auto_approve` and remembered answers no longer let it write, reach the network (except by `web_search`, and by `web_fetch` where the address is in what it has read), change memories or schedules, move procedures on or clear mail. `allow`: as before. Empty: `ask`, except at level `full`",
    choice(["", "ask", "allow"], ""),
  ),
  approval_timeout_secs: about(
    "Seconds that a request without a record waits for a person's answer. After them the call is denied",
    integer(120, 1, 86_400),
  ),
  allow_sensitive_file_reads: about("Lets tools read files that hold credentials", boolean(false)),
  allow_sensitive_file_writes: about("Lets tools write files that hold credentials", boolean(false)),
});

/** `[tools."<name>"]`: access that the operator gives to a foreign tool; empty: what the tool's own description says. */
export const toolSchema = v.strictObject({
  access: about(
    "What the tool does at most, as you classify it. Empty: what the tool's own description says",
    choice(["", "read", "state", "write", "network"], ""),
  ),
});

/** Switches that may stand at top level or in `[security]`; two different values are an error. */
export const switches = {
  enable_git: about("Turns `git_operations` on", boolean(false)),
  enable_agents_ipc: about("Turns `agents_ipc` on, the mailboxes between agents", boolean(true)),
  enable_composio: about("Turns `composio` on: actions of services that you connected at Composio", boolean(false)),
  enable_pushover: about("Turns `pushover` on: notifications to your devices", boolean(false)),
};

/** `[security]`: files, processes and foreign servers (docs/design/configuration.md "Validation"). */
export const securitySchema = v.strictObject({
  ...switches,
  allowed_commands: about(
    'Commands that `shell` and `process_tool` may start, each matched whole. `*` alone: any, which `[security.shell] syntax = "contained"` allows',
    texts(["ls", "pwd", "cat", "echo"]),
  ),
  read_file: about(
    "Reading files",
    v.optional(
      v.strictObject({
        allowed_root: about(
          "Folder that may be read, absolute or relative to the workspace",
          v.optional(required(), "."),
        ),
        max_read_bytes: about("Bytes of one read", integer(65_536, 1, 104_857_600)),
        allow_binary: about("Lets `read_file` read files that are no text", boolean(false)),
      }),
      {},
    ),
  ),
  write_file: about(
    "Writing files",
    v.optional(
      v.strictObject({
        enabled: about("Turns `write_file`, `file_edit` and `apply_patch` on", boolean(false)),
        allowed_root: about(
          "Folder that may be written to, absolute or relative to the workspace",
          v.optional(required(), "."),
        ),
        max_write_bytes: about("Bytes of one write", integer(65_536, 1, 104_857_600)),
      }),
      {},
    ),
  ),
  shell: about(
    "Commands",
    v.optional(
      v.strictObject({
        max_args: about("Arguments of one command, without the command itself", integer(8, 0, 1000)),
        max_arg_length: about("Bytes of one argument", integer(128, 1, 131_072)),
        max_output_bytes: about("Bytes that are kept of each output stream", integer(8192, 1, 16_777_216)),
        timeout_secs: about("Seconds after which a command is ended", integer(60, 1, 86_400)),
        sandbox: about(
          "Containment by bubblewrap: `auto` uses it where it works, `require` refuses commands without it, `off` does without",
          choice(["auto", "require", "off"], "auto"),
        ),
        syntax: about(
          "Language of commands. `plain`: one program with its arguments, and no shell. `contained`: bash, with pipes, redirections and variables, in " +
            "the sandbox alone; without bubblewrap the gateway does not start. `max_args`, `max_arg_length` and `forbidden_chars` are for `plain`",
          choice(["plain", "contained"], "plain"),
        ),
        network: about(
          "Network of contained commands: `none`, or `allowlist` for the hosts of `[url_access] domain_allowlist` through a relay of the gateway. " +
            "With `allowlist` no command runs uncontained",
          choice(["none", "allowlist"], "none"),
        ),
        local_sockets: about(
          "Unix sockets of the workspace that contained commands may connect to, such as `docker.sock`. Where none is named, commands make no Unix " +
            "socket but pairs; where one is, they may, and every other socket found in the workspace is hidden",
          texts([]),
        ),
        forbidden_chars: about(
          "Characters that no argument may have, as a list or one text. Backtick and NUL are always refused",
          v.optional(v.array(v.pipe(v.string(), v.length(1))), [
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
        ),
      }),
      {},
    ),
  ),
  process: about(
    "Processes that run on",
    v.optional(
      v.strictObject({
        allowed_commands: about("Commands that `process_tool` may start beside those of `[security]`", texts([])),
        max_processes: about("Processes that run at the same time", integer(8, 1, 1000)),
        max_output_bytes: about("Bytes that are kept of each process's output", integer(524_288, 1, 67_108_864)),
      }),
      {},
    ),
  ),
  git: about(
    "Git",
    v.optional(
      v.strictObject({
        credentials: about("Lets git use the credentials that the machine has stored", boolean(false)),
      }),
      {},
    ),
  ),
  mcp: about(
    "MCP servers",
    v.optional(
      v.strictObject({
        enabled: about("Turns MCP servers on", boolean(false)),
        allowed_servers: about("Names of `[mcp.servers.<name>]` that may be used", texts([])),
        retry_lost_calls: about(
          "Calls that are made once more when their session breaks after they were sent. `safe`: those of tools that the server says to be " +
            "read-only or idempotent, in a definition that was accepted; `always`: every call, also one that may have taken effect",
          choice(["safe", "always"], "safe"),
        ),
      }),
      {},
    ),
  ),
  audit: about(
    "Audit of decisions, approvals and calls",
    v.optional(
      v.strictObject({
        enabled: about("Writes the audit", boolean(true)),
        retention_days: about("Days that a record of the audit is kept", integer(365, 1, 36_500)),
      }),
      {},
    ),
  ),
});

/** `[mcp.server]`: the gateway as a server of MCP. */
export const mcpOfferSchema = v.strictObject({
  tools: about("Tools that agents of others get: `*`, names, or beginnings as `read_*`", texts(["*"])),
  trust_elicitation: about(
    "Lets a client of MCP whose token has the scope `approve` answer approvals of its own calls in its own window. Some clients answer for " +
      "their agent, without a person",
    boolean(false),
  ),
});

/** `[mcp.servers.<name>.oauth]`: the client that Postern is to the authorization server. */
const mcpOauthSchema = v.strictObject({
  client_id: about(
    "Client id that you registered. Empty: `[mcp] client_metadata_url`, else Postern registers itself where the authorization server lets it",
    text(""),
  ),
  client_secret: about(
    "Name of the `[secrets.<name>]` that holds the client's secret. Its `mcp` names this server, and its `hosts` the host of the token endpoint",
    text(""),
  ),
  client_secret_env: about(
    "Environment variable that holds the secret of that client. Needs `issuer`",
    environmentName(),
  ),
  issuer: about("Authorization server that the sign-in must be with. Empty: the one that the server names", httpUrl()),
  scopes: about("Scopes that are asked for. Empty: those that the server names", texts([])),
  grant: about(
    "How a token is got. `authorization_code`: a person signs in with `postern mcp login`; `client_credentials`: nobody does",
    choice(["authorization_code", "client_credentials"], "authorization_code"),
  ),
  redirect_port: about(
    "Port of 127.0.0.1 that the sign-in leads back to, for clients that are registered with one. 0: a free one",
    integer(0, 0, 65_535),
  ),
});

/** `[mcp.servers.<name>]`: a program by `command`, or a server by `url`. */
export const mcpServerSchema = v.strictObject({
  command: about("Program that is started: an absolute path, or a name in `PATH`", text("")),
  args: about("Arguments of the program", v.optional(v.array(v.string()), [])),
  env: about(
    'Environment of the program beside `PATH`, `HOME`, `LANG` and `TMPDIR`. `{ secret = "name" }` gives the value of `[secrets.<name>]`, ' +
      "which names the server in `mcp`",
    fillableTable(),
  ),
  url: about("Address of a server that runs already", text("")),
  headers: about(
    'Headers of requests to that server. `{ secret = "name", prefix = "Bearer " }` sends the value of `[secrets.<name>]`',
    fillableTable(),
  ),
  oauth: about("Sign-in to that server", v.optional(mcpOauthSchema, {})),
  sandbox: about(
    "Sandbox of the program. `auto`: bubblewrap where it works; `require`: the program does not run without it; `off`: it has your rights",
    choice(["off", "auto", "require"], "off"),
  ),
  paths: about(
    "Absolute paths of files and folders that the program may read and write in the sandbox, but for what no command may in the workspace. With `:ro` at the end it may only read",
    texts([]),
  ),
  network: about("Lets the program use the network from the sandbox", boolean(false)),
  sampling: about(
    "Lets the server ask your model. Servers of the protocol from 2026-07-28 on never ask",
    boolean(false),
  ),
  startup_timeout_secs: about("Seconds that the start may take, with the list of tools", integer(30, 1, 3600)),
  timeout_secs: about("Seconds that the server may take for a request", integer(60, 1, 86_400)),
});
