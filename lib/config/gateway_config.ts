// deno-fmt-ignore-file: written from the schema by scripts/config_types.ts
/** Tables and keys of `postern.toml` as an object; docs/configuration.md has their meanings. */
export interface GatewayConfig {
  /** Folder of records, keys and logs. Empty: `$XDG_DATA_HOME/postern`, which is `~/.local/share/postern` by default. Default: `""` */
  readonly data_dir?: string | undefined;
  /** Folder that the agent works in. Empty: the one that the gateway is started in. Default: `""` */
  readonly workspace?: string | undefined;
  /** Turns `git_operations` on. Default: `false` */
  readonly enable_git?: boolean | undefined;
  /** Turns `agents_ipc` on, the mailboxes between agents. Default: `true` */
  readonly enable_agents_ipc?: boolean | undefined;
  /** Turns `composio` on: actions of services that you connected at Composio. Default: `false` */
  readonly enable_composio?: boolean | undefined;
  /** Turns `pushover` on: notifications to your devices. Default: `false` */
  readonly enable_pushover?: boolean | undefined;
  /** `[gateway]`: Where the gateway listens, who may come in, and the bounds of a request. */
  readonly gateway?: {
    /** Address to listen at: `localhost`, an IPv4 or an IPv6 address. Default: `"127.0.0.1"` */
    readonly host?: string | undefined;
    /** Port to listen at. 0 takes a free one. Default: `42617` */
    readonly port?: number | undefined;
    /** Asks every client for a token. Default: `true` */
    readonly require_pairing?: boolean | undefined;
    /** Allows a `host` that other machines can reach; pairing stays required there. Default: `false` */
    readonly allow_public_bind?: boolean | undefined;
    /** Names that the Host header may have beside those of this machine. Default: `[]` */
    readonly allowed_hosts?: readonly string[] | undefined;
    /** Address that people reach the gateway at from elsewhere, with the path of a mount. Its host counts as one of `allowed_hosts`. Empty: none is told. Default: `""` */
    readonly public_url?: string | undefined;
    /** Puts a link into messages of `[[notify]]` that answers one approval, once, for whoever has it. Default: `false` */
    readonly answer_links?: boolean | undefined;
    /** Web origins that may read replies, each exactly as a browser sends it. `*`: all. Default: `[]` */
    readonly cors_origins?: readonly string[] | undefined;
    /** Requests that one token may make in a window. 0: no limit. Default: `600` */
    readonly rate_limit_max?: number | undefined;
    /** Seconds of a window. Default: `60` */
    readonly rate_limit_window_secs?: number | undefined;
    /** Requests of a second window, for each token, or for each address without one. 0: no second window. Default: `0` */
    readonly rate_limit_per_identity?: number | undefined;
    /** Counts requests at each `gateway` by itself, or in the whole `cluster` over PostgreSQL. Default: `"gateway"` */
    readonly rate_limit_scope?: "gateway" | "cluster" | undefined;
    /** Bytes of a request's body. Default: `10485760` */
    readonly max_request_bytes?: number | undefined;
    /** Bytes of one file that is sent to `/v1/files`. Default: `10000000` */
    readonly max_file_bytes?: number | undefined;
    /** Bytes of all files that are kept. Default: `1073741824` */
    readonly max_files_bytes?: number | undefined;
    /** Seconds that a pairing code can be used. Default: `3600` */
    readonly pairing_code_ttl_secs?: number | undefined;
    /** Seconds that work may go on after the first signal to stop. Default: `30` */
    readonly shutdown_grace_secs?: number | undefined;
    /** Seconds after which a request is given up. Default: `600` */
    readonly request_timeout_secs?: number | undefined;
    /** `[gateway.websocket]`: WebSocket connections. */
    readonly websocket?: {
      /** Seconds between two pings. Default: `30` */
      readonly heartbeat_secs?: number | undefined;
      /** Seconds without a pong after which a socket is closed. Default: `60` */
      readonly pong_timeout_secs?: number | undefined;
      /** Seconds without a run or a message after which a socket is closed. Default: `300` */
      readonly idle_timeout_secs?: number | undefined;
      /** Bytes of one frame. Default: `2097152` */
      readonly max_message_bytes?: number | undefined;
    } | undefined;
    /** `[gateway.node_control]`: Nodes: other machines that offer their tools. */
    readonly node_control?: {
      /** Lets nodes connect. Default: `false` */
      readonly enabled?: boolean | undefined;
      /** Secret that a node connects with. `auth_token_env` keeps it out of the file. Default: `""` */
      readonly auth_token?: string | undefined;
      /** Environment variable that holds the secret that a node connects with. Default: `""` */
      readonly auth_token_env?: string | undefined;
      /** Names of the nodes that may connect. Default: `[]` */
      readonly allowed_node_ids?: readonly string[] | undefined;
    } | undefined;
  } | undefined;
  /** `[provider]`: The default model. */
  readonly provider?: {
    /** Vendor or protocol. `auto` takes a key of the environment, else a local model server, else the offline assistant; `none` runs no agent. Default: `"auto"` */
    readonly kind?: "auto" | "openai" | "anthropic" | "openrouter" | "ollama" | "openai_compatible" | "offline" | "none" | undefined;
    /** Name of the model as the provider knows it. Empty: the provider's default. Default: `""` */
    readonly model?: string | undefined;
    /** Address of the API, such as `http://127.0.0.1:11434/v1`. Empty: the vendor's own. Default: `""` */
    readonly base_url?: string | undefined;
    /** Environment variable that holds the key. Empty: the vendor's usual one. Default: `""` */
    readonly api_key_env?: string | undefined;
    /** File that holds the key and nothing else. Default: `""` */
    readonly api_key_file?: string | undefined;
    /** Seconds until the first byte of a reply, and between two bytes. Default: `120` */
    readonly timeout_secs?: number | undefined;
    /** Seconds in which a reply may say nothing though bytes of it come, such as comments that keep a connection open. 0: ten times `timeout_secs`. Default: `0` */
    readonly silence_secs?: number | undefined;
    /** Further attempts before the first byte of a reply. Default: `2` */
    readonly max_retries?: number | undefined;
    /** Other providers as `name` or `name/model`, tried in order when this one fails before its first byte. Default: `[]` */
    readonly fallback?: readonly string[] | undefined;
    /** Whether the models see pictures in results of tools. `auto`: those that are known by name to see. Default: `"auto"` */
    readonly vision?: "auto" | "on" | "off" | undefined;
    /** Users of this machine whose model servers `auto` takes, beside the gateway's own user and root. Default: `["ollama"]` */
    readonly local_users?: readonly string[] | undefined;
    /** Models by other names, such as `"claude-*" = "default"`, for clients that ask for names of their own; `*` at the end stands for any rest. Default: `{}` */
    readonly aliases?: { readonly [name: string]: string } | undefined;
  } | undefined;
  /** `[providers]`: Further providers by a name of your choice; a request asks for `<name>/<model>`. */
  readonly providers?: { readonly [name: string]: {
    /** Vendor or protocol. Default: `"openai_compatible"` */
    readonly kind?: "openai" | "anthropic" | "openrouter" | "ollama" | "openai_compatible" | "offline" | undefined;
    /** Name of the model as the provider knows it. Empty: the provider's default. Default: `""` */
    readonly model?: string | undefined;
    /** Address of the API, such as `http://127.0.0.1:11434/v1`. Empty: the vendor's own. Default: `""` */
    readonly base_url?: string | undefined;
    /** Environment variable that holds the key. Empty: the vendor's usual one. Default: `""` */
    readonly api_key_env?: string | undefined;
    /** File that holds the key and nothing else. Default: `""` */
    readonly api_key_file?: string | undefined;
    /** Seconds until the first byte of a reply, and between two bytes. Default: `120` */
    readonly timeout_secs?: number | undefined;
    /** Seconds in which a reply may say nothing though bytes of it come, such as comments that keep a connection open. 0: ten times `timeout_secs`. Default: `0` */
    readonly silence_secs?: number | undefined;
    /** Further attempts before the first byte of a reply. Default: `2` */
    readonly max_retries?: number | undefined;
    /** Other providers as `name` or `name/model`, tried in order when this one fails before its first byte. Default: `[]` */
    readonly fallback?: readonly string[] | undefined;
    /** Whether the models see pictures in results of tools. `auto`: those that are known by name to see. Default: `"auto"` */
    readonly vision?: "auto" | "on" | "off" | undefined;
  } } | undefined;
  /** `[agent]`: Bounds of one run of the agent. */
  readonly agent?: {
    /** Text that every run begins with. Empty: the built-in prompt. Default: `""` */
    readonly system_prompt?: string | undefined;
    /** Model turns of one run. Default: `20` */
    readonly max_iterations?: number | undefined;
    /** Tool calls of one run. Default: `100` */
    readonly max_tool_calls?: number | undefined;
    /** Runs the tool calls of one turn at the same time when all of them only read. Default: `true` */
    readonly parallel_tools?: boolean | undefined;
    /** Tokens that the model can take. 0: what the provider says. Default: `0` */
    readonly context_window_tokens?: number | undefined;
    /** Tools that the agent has: names, `prefix*` or `*`. An empty list means none. Default: `["*"]` */
    readonly tools?: readonly string[] | undefined;
    /** Tells runs of AGENTS.md at the top of the workspace, or of its like (CLAUDE.md, GEMINI.md, .github/copilot-instructions.md, .cursorrules), once you trust its content: `postern instructions trust`. Default: `false` */
    readonly workspace_instructions?: boolean | undefined;
    /** Tells the model of a few tools in each turn, and lets it find the others with `tool_search`. `auto`: in runs with more than 24 tools. Default: `"auto"` */
    readonly tool_search?: "auto" | "on" | "off" | undefined;
    /** Turns `ask_user` on, the agent's questions to a person. Default: `true` */
    readonly ask_user?: boolean | undefined;
  } | undefined;
  /** `[runs]`: Queue and retention of runs. */
  readonly runs?: {
    /** Runs that work at the same time. Default: `16` */
    readonly max_concurrent?: number | undefined;
    /** Runs that may wait for their turn; further ones are refused. One token has at most seven eighths of them. Default: `1000` */
    readonly max_queued?: number | undefined;
    /** Runs of one conversation that may wait for the one at work; a cluster counts them at all gateways. Default: `8` */
    readonly max_per_conversation?: number | undefined;
    /** What becomes of a reply in a conversation when its reader leaves, by a closed page or a lost connection. `go_on`: it is said to its end, and found again. `cancel`: it ends. Default: `"go_on"` */
    readonly when_reader_leaves?: "go_on" | "cancel" | undefined;
    /** Seconds that a run with a record, such as one of a conversation or a schedule, waits for a person's answer. After them the call is denied. Default: `86400` */
    readonly approval_timeout_secs?: number | undefined;
    /** Days that an ended run is kept. 0: for ever. Default: `30` */
    readonly retention_days?: number | undefined;
  } | undefined;
  /** `[budget]`: Limits of tokens. */
  readonly budget?: {
    /** Tokens that one run may use. 0: no limit. Default: `0` */
    readonly tokens_per_run?: number | undefined;
    /** Tokens that all runs together may use in a day of UTC. 0: no limit. Default: `0` */
    readonly tokens_per_day?: number | undefined;
  } | undefined;
  /** `[proxy]`: Proxies for requests to model providers, of tools and to reply addresses. */
  readonly proxy?: {
    /** Proxy of requests to http addresses. Empty: that of the variable `http_proxy`, else none. Default: `""` */
    readonly http?: string | undefined;
    /** Proxy of requests to https addresses. Empty: that of the variable `https_proxy`, else none. Default: `""` */
    readonly https?: string | undefined;
    /** Hosts that are reached without a proxy: `example.com`, `.example.com` for its subdomains, `10.0.0.0/8`, each with `:port`, `*` for all. Default: `[]` */
    readonly no_proxy?: readonly string[] | undefined;
    /** Who looks up the names of hosts: `local` gives the proxy a checked address; with `proxy` no address is checked, and names may lead to private networks. Default: `"local"` */
    readonly resolve?: "local" | "proxy" | undefined;
  } | undefined;
  /** `[autonomy]`: What the agent may do by itself. */
  readonly autonomy?: {
    /** What the agent may do without a person: `read_only`, `supervised` (a person is asked before it writes or reaches the network) or `full`. Default: `"supervised"` */
    readonly level?: "read_only" | "supervised" | "full" | undefined;
    /** Refuses arguments of commands that name a path outside the workspace. Default: `true` */
    readonly workspace_only?: boolean | undefined;
    /** Paths that no tool may touch. The built-in ones always stay in it. Default: `["/etc","/root","/proc","/sys","~/.ssh","~/.gnupg","~/.aws"]` */
    readonly forbidden_paths?: readonly string[] | undefined;
    /** Tools that run without the question that the level would ask. Default: `[]` */
    readonly auto_approve?: readonly string[] | undefined;
    /** Tools that always ask. Goes before `auto_approve`. Default: `[]` */
    readonly always_ask?: readonly string[] | undefined;
    /** `[autonomy.rules]`: Rules about single calls, by tool, command, path and host. */
    readonly rules?: readonly ({
      /** Name of the rule, 1-64 of a-z, 0-9, _ and -. The same name in the environment or on the command line takes its place. */
      readonly name: string;
      /** Tool that the rule is about: a name, a beginning as `mcp__files__*`, or `*`. */
      readonly tool: string;
      /** Operation, as the field `op` of the input has it. Empty: each. Default: `""` */
      readonly op?: string | undefined;
      /** Words of the command, such as `git log *`. A word `*` stands for any words or none, `*` within a word for any characters. Empty: any command. Default: `""` */
      readonly command?: string | undefined;
      /** Path that the call names, such as `docs/**`, relative to the workspace. `**` stands for any folders, `*` for any characters of one name. Empty: any path. Default: `""` */
      readonly path?: string | undefined;
      /** Host of the address that the call names, such as `example.org` or `*.example.org`. Empty: any host. Default: `""` */
      readonly host?: string | undefined;
      /** What becomes of such a call. Any `deny` wins, else any `ask`, else an `allow`. */
      readonly then: "allow" | "ask" | "deny";
    })[] | undefined;
    /** What a run may do once it has read content from outside, such as a web page. `ask`: `auto_approve` and remembered answers no longer let it write, reach the network (except by `web_search`, and by `web_fetch` where the address is in what it has read), change memories or schedules, move procedures on or clear mail. `allow`: as before. Empty: `ask`, except at level `full`. Default: `""` */
    readonly after_outside_content?: "" | "ask" | "allow" | undefined;
    /** Seconds that a request without a record waits for a person's answer. After them the call is denied. Default: `120` */
    readonly approval_timeout_secs?: number | undefined;
    /** Lets tools read files that hold credentials. Default: `false` */
    readonly allow_sensitive_file_reads?: boolean | undefined;
    /** Lets tools write files that hold credentials. Default: `false` */
    readonly allow_sensitive_file_writes?: boolean | undefined;
  } | undefined;
  /** `[tools]`: Access of tools of nodes as you classify it, by the tool's name. */
  readonly tools?: { readonly [name: string]: {
    /** What the tool does at most, as you classify it. Empty: what the tool's own description says. Default: `""` */
    readonly access?: "" | "read" | "state" | "write" | "network" | undefined;
  } } | undefined;
  /** `[security]`: Files, commands and git. */
  readonly security?: {
    /** Turns `git_operations` on. Default: `false` */
    readonly enable_git?: boolean | undefined;
    /** Turns `agents_ipc` on, the mailboxes between agents. Default: `true` */
    readonly enable_agents_ipc?: boolean | undefined;
    /** Turns `composio` on: actions of services that you connected at Composio. Default: `false` */
    readonly enable_composio?: boolean | undefined;
    /** Turns `pushover` on: notifications to your devices. Default: `false` */
    readonly enable_pushover?: boolean | undefined;
    /** Commands that `shell` and `process_tool` may start, each matched whole. `*` alone: any, which `[security.shell] syntax = "contained"` allows. Default: `["ls","pwd","cat","echo"]` */
    readonly allowed_commands?: readonly string[] | undefined;
    /** `[security.read_file]`: Reading files. */
    readonly read_file?: {
      /** Folder that may be read, absolute or relative to the workspace. Default: `"."` */
      readonly allowed_root?: string | undefined;
      /** Bytes of one read. Default: `65536` */
      readonly max_read_bytes?: number | undefined;
      /** Lets `read_file` read files that are no text. Default: `false` */
      readonly allow_binary?: boolean | undefined;
    } | undefined;
    /** `[security.write_file]`: Writing files. */
    readonly write_file?: {
      /** Turns `write_file`, `file_edit` and `apply_patch` on. Default: `false` */
      readonly enabled?: boolean | undefined;
      /** Folder that may be written to, absolute or relative to the workspace. Default: `"."` */
      readonly allowed_root?: string | undefined;
      /** Bytes of one write. Default: `65536` */
      readonly max_write_bytes?: number | undefined;
    } | undefined;
    /** `[security.shell]`: Commands. */
    readonly shell?: {
      /** Arguments of one command, without the command itself. Default: `8` */
      readonly max_args?: number | undefined;
      /** Bytes of one argument. Default: `128` */
      readonly max_arg_length?: number | undefined;
      /** Bytes that are kept of each output stream. Default: `8192` */
      readonly max_output_bytes?: number | undefined;
      /** Seconds after which a command is ended. Default: `60` */
      readonly timeout_secs?: number | undefined;
      /** Containment by bubblewrap: `auto` uses it where it works, `require` refuses commands without it, `off` does without. Default: `"auto"` */
      readonly sandbox?: "auto" | "require" | "off" | undefined;
      /** Language of commands. `plain`: one program with its arguments, and no shell. `contained`: bash, with pipes, redirections and variables, in the sandbox alone; without bubblewrap the gateway does not start. `max_args`, `max_arg_length` and `forbidden_chars` are for `plain`. Default: `"plain"` */
      readonly syntax?: "plain" | "contained" | undefined;
      /** Network of contained commands: `none`, or `allowlist` for the hosts of `[url_access] domain_allowlist` through a relay of the gateway. With `allowlist` no command runs uncontained. Default: `"none"` */
      readonly network?: "none" | "allowlist" | undefined;
      /** Unix sockets of the workspace that contained commands may connect to, such as `docker.sock`. Where none is named, commands make no Unix socket but pairs; where one is, they may, and every other socket found in the workspace is hidden. Default: `[]` */
      readonly local_sockets?: readonly string[] | undefined;
      /** Characters that no argument may have, as a list or one text. Backtick and NUL are always refused. Default: `[";","&","|",">","<","$","`","\n","\r"]` */
      readonly forbidden_chars?: readonly string[] | undefined;
    } | undefined;
    /** `[security.process]`: Processes that run on. */
    readonly process?: {
      /** Commands that `process_tool` may start beside those of `[security]`. Default: `[]` */
      readonly allowed_commands?: readonly string[] | undefined;
      /** Processes that run at the same time. Default: `8` */
      readonly max_processes?: number | undefined;
      /** Bytes that are kept of each process's output. Default: `524288` */
      readonly max_output_bytes?: number | undefined;
    } | undefined;
    /** `[security.git]`: Git. */
    readonly git?: {
      /** Lets git use the credentials that the machine has stored. Default: `false` */
      readonly credentials?: boolean | undefined;
    } | undefined;
    /** `[security.mcp]`: MCP servers. */
    readonly mcp?: {
      /** Turns MCP servers on. Default: `false` */
      readonly enabled?: boolean | undefined;
      /** Names of `[mcp.servers.<name>]` that may be used. Default: `[]` */
      readonly allowed_servers?: readonly string[] | undefined;
      /** Calls that are made once more when their session breaks after they were sent. `safe`: those of tools that the server says to be read-only or idempotent, in a definition that was accepted; `always`: every call, also one that may have taken effect. Default: `"safe"` */
      readonly retry_lost_calls?: "safe" | "always" | undefined;
    } | undefined;
    /** `[security.audit]`: Audit of decisions, approvals and calls. */
    readonly audit?: {
      /** Writes the audit. Default: `true` */
      readonly enabled?: boolean | undefined;
      /** Days that a record of the audit is kept. Default: `365` */
      readonly retention_days?: number | undefined;
    } | undefined;
  } | undefined;
  /** `[mcp]`: MCP servers. */
  readonly mcp?: {
    /** Address of the document that says who Postern is to authorization servers (Client ID Metadata Document): https with a path. Empty: none. Default: `""` */
    readonly client_metadata_url?: string | undefined;
    /** `[mcp.servers]`: Servers by a name of your choice: a program by `command`, or a server by `url`. */
    readonly servers?: { readonly [name: string]: {
      /** Program that is started: an absolute path, or a name in `PATH`. Default: `""` */
      readonly command?: string | undefined;
      /** Arguments of the program. Default: `[]` */
      readonly args?: readonly string[] | undefined;
      /** Environment of the program beside `PATH`, `HOME`, `LANG` and `TMPDIR`. `{ secret = "name" }` gives the value of `[secrets.<name>]`, which names the server in `mcp`. Default: `{}` */
      readonly env?: { readonly [name: string]: string | {
        /** Name of the `[secrets.<name>]` whose value stands here. */
        readonly secret: string;
        /** Text before the value, such as `Bearer ` with a space at its end. Default: `""` */
        readonly prefix?: string | undefined;
      } } | undefined;
      /** Address of a server that runs already. Default: `""` */
      readonly url?: string | undefined;
      /** Headers of requests to that server. `{ secret = "name", prefix = "Bearer " }` sends the value of `[secrets.<name>]`. Default: `{}` */
      readonly headers?: { readonly [name: string]: string | {
        /** Name of the `[secrets.<name>]` whose value stands here. */
        readonly secret: string;
        /** Text before the value, such as `Bearer ` with a space at its end. Default: `""` */
        readonly prefix?: string | undefined;
      } } | undefined;
      /** `[mcp.servers.oauth]`: Sign-in to that server. */
      readonly oauth?: {
        /** Client id that you registered. Empty: `[mcp] client_metadata_url`, else Postern registers itself where the authorization server lets it. Default: `""` */
        readonly client_id?: string | undefined;
        /** Name of the `[secrets.<name>]` that holds the client's secret. Its `mcp` names this server, and its `hosts` the host of the token endpoint. Default: `""` */
        readonly client_secret?: string | undefined;
        /** Environment variable that holds the secret of that client. Needs `issuer`. Default: `""` */
        readonly client_secret_env?: string | undefined;
        /** Authorization server that the sign-in must be with. Empty: the one that the server names. Default: `""` */
        readonly issuer?: string | undefined;
        /** Scopes that are asked for. Empty: those that the server names. Default: `[]` */
        readonly scopes?: readonly string[] | undefined;
        /** How a token is got. `authorization_code`: a person signs in with `postern mcp login`; `client_credentials`: nobody does. Default: `"authorization_code"` */
        readonly grant?: "authorization_code" | "client_credentials" | undefined;
        /** Port of 127.0.0.1 that the sign-in leads back to, for clients that are registered with one. 0: a free one. Default: `0` */
        readonly redirect_port?: number | undefined;
      } | undefined;
      /** Sandbox of the program. `auto`: bubblewrap where it works; `require`: the program does not run without it; `off`: it has your rights. Default: `"off"` */
      readonly sandbox?: "off" | "auto" | "require" | undefined;
      /** Absolute paths of files and folders that the program may read and write in the sandbox, but for what no command may in the workspace. With `:ro` at the end it may only read. Default: `[]` */
      readonly paths?: readonly string[] | undefined;
      /** Lets the program use the network from the sandbox. Default: `false` */
      readonly network?: boolean | undefined;
      /** Lets the server ask your model. Servers of the protocol from 2026-07-28 on never ask. Default: `false` */
      readonly sampling?: boolean | undefined;
      /** Seconds that the start may take, with the list of tools. Default: `30` */
      readonly startup_timeout_secs?: number | undefined;
      /** Seconds that the server may take for a request. Default: `60` */
      readonly timeout_secs?: number | undefined;
    } } | undefined;
    /** `[mcp.server]`: The gateway as a server of MCP, at `/mcp`. */
    readonly server?: {
      /** Tools that agents of others get: `*`, names, or beginnings as `read_*`. Default: `["*"]` */
      readonly tools?: readonly string[] | undefined;
      /** Lets a client of MCP whose token has the scope `approve` answer approvals of its own calls in its own window. Some clients answer for their agent, without a person. Default: `false` */
      readonly trust_elicitation?: boolean | undefined;
    } | undefined;
  } | undefined;
  /** `[url_access]`: Addresses that tools may reach, git remotes included. */
  readonly url_access?: {
    /** Refuses private and reserved addresses. Default: `true` */
    readonly block_private_ip?: boolean | undefined;
    /** Allows addresses of this machine. Default: `false` */
    readonly allow_loopback?: boolean | undefined;
    /** Private or reserved ranges that count as public, for networks that map names into them: `198.18.0.0/15`, `64:ff9b::/96`. This machine and the metadata addresses of clouds are never public. Default: `[]` */
    readonly public_ranges?: readonly string[] | undefined;
    /** Refuses every host that is not in `domain_allowlist`. Default: `false` */
    readonly enforce_domain_allowlist?: boolean | undefined;
    /** Hosts that are allowed: `example.com` is that host alone, `*.example.com` its subdomains, `example.com:8443` that port alone. Default: `[]` */
    readonly domain_allowlist?: readonly string[] | undefined;
    /** Hosts that are refused, each with its subdomains. Default: `[]` */
    readonly domain_blocklist?: readonly string[] | undefined;
  } | undefined;
  /** `[secrets]`: Values that tools may use and the model may not see, by a name of your choice. */
  readonly secrets?: { readonly [name: string]: {
    /** Environment variable that holds the value. Default: `""` */
    readonly env?: string | undefined;
    /** Path of a file that holds the value. Default: `""` */
    readonly file?: string | undefined;
    /** Program that prints the value, with its arguments, such as `["pass", "show", "github"]`. Postern runs it outside of the sandbox. Default: `[]` */
    readonly command?: readonly string[] | undefined;
    /** Hosts that the value may go to: `example.com` is that host alone, `*.example.com` its subdomains. Tools, MCP servers by `url` and WASM plugins need one. Default: `[]` */
    readonly hosts?: readonly string[] | undefined;
    /** Tools that may use the value. Default: `[]` */
    readonly tools?: readonly string[] | undefined;
    /** MCP servers whose `env` or `headers` may name the value. Default: `[]` */
    readonly mcp?: readonly string[] | undefined;
    /** Plugins whose settings in `[plugins.config.<id>]` may name the value. Default: `[]` */
    readonly plugins?: readonly string[] | undefined;
  } } | undefined;
  /** `[http_request]`: Requests of the agent to HTTP servers. */
  readonly http_request?: {
    /** Turns the tool on. Default: `false` */
    readonly enabled?: boolean | undefined;
    /** Hosts that may be reached, as in `[url_access] domain_allowlist`. An empty list refuses all, `*` allows all. Default: `[]` */
    readonly allowed_domains?: readonly string[] | undefined;
    /** Bytes of a reply. Default: `1000000` */
    readonly max_response_size?: number | undefined;
    /** Bytes of a reply that is saved to a file. Default: `104857600` */
    readonly max_download_bytes?: number | undefined;
    /** Seconds of one request. Default: `30` */
    readonly timeout_secs?: number | undefined;
    /** `[http_request.credentials]`: Headers with secrets, by a name of your choice. */
    readonly credentials?: { readonly [name: string]: {
      /** Name of the request header. Default: `"Authorization"` */
      readonly header?: string | undefined;
      /** Text before the value, such as `Bearer ` with a space at its end. Default: `""` */
      readonly prefix?: string | undefined;
      /** Name of the `[secrets.<name>]` whose value is sent. Default: `""` */
      readonly secret?: string | undefined;
      /** Environment variable that holds the value. Default: `""` */
      readonly value_env?: string | undefined;
      /** Hosts that get the header, each exactly. */
      readonly hosts: readonly string[];
      /** Address that gives a token for a client (OAuth 2.0 client credentials). The token is sent as `Bearer`. Default: `""` */
      readonly token_url?: string | undefined;
      /** Client that the token is for. Default: `""` */
      readonly client_id?: string | undefined;
      /** Name of the `[secrets.<name>]` that holds the client's secret. Default: `""` */
      readonly client_secret?: string | undefined;
      /** Scopes that the token is asked for. Default: `[]` */
      readonly scopes?: readonly string[] | undefined;
    } } | undefined;
  } | undefined;
  /** `[web_fetch]`: Pages of the web as text. */
  readonly web_fetch?: {
    /** Turns the tool on. Default: `false` */
    readonly enabled?: boolean | undefined;
    /** Bytes of a page's text in one answer, 261,000 at most. Default: `65536` */
    readonly max_bytes?: number | undefined;
    /** Seconds of one page, with its redirects and its robots.txt. Default: `30` */
    readonly timeout_secs?: number | undefined;
    /** Fetches nothing that the robots.txt of a site forbids. Default: `true` */
    readonly respect_robots?: boolean | undefined;
  } | undefined;
  /** `[web_search]`: Searches of the web. */
  readonly web_search?: {
    /** Turns the tool on. Default: `false` */
    readonly enabled?: boolean | undefined;
    /** Search engine. `searxng` is an instance of your own at `base_url`. Default: `"duckduckgo"` */
    readonly provider?: "duckduckgo" | "brave" | "perplexity" | "exa" | "jina" | "searxng" | undefined;
    /** Most results of one search. Default: `5` */
    readonly max_results?: number | undefined;
    /** Seconds of one search. Default: `15` */
    readonly timeout_secs?: number | undefined;
    /** Environment variable that holds the engine's key. Empty: `BRAVE_API_KEY`, `PERPLEXITY_API_KEY`, `EXA_API_KEY` or `JINA_API_KEY`. Default: `""` */
    readonly api_key_env?: string | undefined;
    /** Address of the engine's API, which may be private. Empty: its own. `searxng` needs it. Default: `""` */
    readonly base_url?: string | undefined;
  } | undefined;
  /** `[browser]`: A browser for the agent (`browser`), and addresses that it opens in yours (`browser_open`). */
  readonly browser?: {
    /** Turns the tools `browser` and `browser_open` on. Default: `false` */
    readonly enabled?: boolean | undefined;
    /** Absolute path of a Chromium. Empty: looked for by its usual names. Default: `""` */
    readonly executable?: string | undefined;
    /** Shows no window. `false` needs a desktop session, whose display the browser then reaches. Default: `true` */
    readonly headless?: boolean | undefined;
    /** Keeps the cookies of a conversation's pages, encrypted, until the conversation is deleted. They sign its next runs in. Default: `false` */
    readonly keep_cookies?: boolean | undefined;
    /** Sites whose logins the browsers of all runs get. `postern browser login` keeps a login, and `postern browser logins` shows their names. Default: `[]` */
    readonly logins?: readonly string[] | undefined;
    /** `auto` runs the browser in bubblewrap where that works, and else in a weaker way, of which `postern doctor` warns. `require` refuses the weaker way, as does `[security.shell] sandbox = "require"`. Default: `"auto"` */
    readonly sandbox?: "auto" | "require" | undefined;
    /** Seconds of one operation. Default: `30` */
    readonly timeout_secs?: number | undefined;
    /** Largest file that the operation `download` saves. The file is held in memory meanwhile. Default: `104857600` */
    readonly max_download_bytes?: number | undefined;
    /** Hosts that pages may reach, and that `browser_open` may open. Empty: all that `[url_access]` allows. Default: `[]` */
    readonly allowed_domains?: readonly string[] | undefined;
  } | undefined;
  /** `[cron]`: Schedules. */
  readonly cron?: {
    /** Turns schedules and their tools on. Default: `false` */
    readonly enabled?: boolean | undefined;
    /** IANA name of the time zone of new schedules, which keep it. Empty: the zone of the machine. Default: `""` */
    readonly timezone?: string | undefined;
    /** Schedules that may exist at the same time. Default: `100` */
    readonly max_tasks?: number | undefined;
  } | undefined;
  /** `[agents]`: Agents for `delegate`, by a name of your choice. */
  readonly agents?: { readonly [name: string]: {
    /** Address of the agent's API. Empty: the default provider. Default: `""` */
    readonly provider?: string | undefined;
    /** Model of the agent. Empty: the provider's default. Default: `""` */
    readonly model?: string | undefined;
    /** Environment variable that holds the key of `provider`. Default: `""` */
    readonly api_key_env?: string | undefined;
    /** Text that its runs begin with. Empty: the built-in prompt. Default: `""` */
    readonly system_prompt?: string | undefined;
    /** Delegations in a chain, counted from the top. Default: `2` */
    readonly max_depth?: number | undefined;
    /** Lets the agent call tools. Default: `false` */
    readonly agentic?: boolean | undefined;
    /** Model turns of one delegation. Default: `10` */
    readonly max_iterations?: number | undefined;
    /** Tools that it may call, of those that its caller has. An empty list means none; `delegate` may not be in it. Default: `[]` */
    readonly allowed_tools?: readonly string[] | undefined;
  } } | undefined;
  /** `[model_routes]`: Models by a hint. */
  readonly model_routes?: readonly {
    /** Name that a request uses, such as `"model": "hint:<hint>"`. */
    readonly hint: string;
    /** Name of the provider. */
    readonly provider: string;
    /** Model of that provider. */
    readonly model: string;
  }[] | undefined;
  /** `[embedding_routes]`: Embedding models by a hint. */
  readonly embedding_routes?: readonly {
    /** Name that a request uses, such as `"model": "hint:<hint>"`. */
    readonly hint: string;
    /** Name of the provider. */
    readonly provider: string;
    /** Model of that provider. */
    readonly model: string;
  }[] | undefined;
  /** `[query_classification]`: Rules that choose a model route by the query. */
  readonly query_classification?: {
    /** Chooses a model route by the query when a request names no model. Default: `false` */
    readonly enabled?: boolean | undefined;
    /** `[query_classification.rules]`: Rules that give a query its hint. */
    readonly rules?: readonly ({
      /** Hint that a matching query gets. */
      readonly hint: string;
      /** Words of which the query must have one, in any case. Default: `[]` */
      readonly keywords?: readonly string[] | undefined;
      /** Texts of which the query must have one, exactly as written. Default: `[]` */
      readonly patterns?: readonly string[] | undefined;
      /** Fewest characters of a matching query. 0: no limit. Default: `0` */
      readonly min_length?: number | undefined;
      /** Most characters of a matching query. 0: no limit. Default: `0` */
      readonly max_length?: number | undefined;
      /** Rank of the rule: of all that match, the highest wins. Default: `0` */
      readonly priority?: number | undefined;
    })[] | undefined;
  } | undefined;
  /** `[channels]`: Other systems that send messages to `POST /v1/webhook/<name>`. */
  readonly channels?: { readonly [name: string]: {
    /** Form of the messages. Default: `"generic"` */
    readonly kind?: "generic" | undefined;
    /** Environment variable that holds the secret of the signatures. Default: `""` */
    readonly secret_env?: string | undefined;
    /** Address that replies are sent to; it may be private. Empty: replies are only kept. Default: `""` */
    readonly reply_url?: string | undefined;
    /** What makes a conversation: each sender, the whole channel, or each message. Default: `"sender"` */
    readonly conversation?: "sender" | "channel" | "message" | undefined;
  } } | undefined;
  /** `[notify]`: Who is told when something waits for a person, or has ended. */
  readonly notify?: readonly ({
    /** Name of the rule, for `postern notify test` and in the list of deliveries. */
    readonly name: string;
    /** Events that it tells of: an approval or question waits, a run has ended, failed or needs a review, 80 % of the day's tokens are used, the gateway is degraded, an MCP server wants a sign-in. */
    readonly events: readonly ("approval_waiting" | "run_ended" | "run_failed" | "run_needs_review" | "budget_near" | "gateway_degraded" | "sign_in_needed")[];
    /** Way of its messages. */
    readonly kind: "webhook" | "ntfy" | "pushover" | "command";
    /** Address of a webhook; of the server for `ntfy` (empty: `https://ntfy.sh`) and `pushover` (empty: its API). It may be private. Default: `""` */
    readonly url?: string | undefined;
    /** For `webhook`: environment variable of the secret that signs. Default: `""` */
    readonly secret_env?: string | undefined;
    /** For `ntfy`: environment variable of the topic, which whoever knows it can read. Default: `""` */
    readonly topic_env?: string | undefined;
    /** Environment variable of the access token for `ntfy`, or of the application's token for `pushover`. Default: `""` */
    readonly token_env?: string | undefined;
    /** For `pushover`: environment variable of the user's key. Default: `""` */
    readonly user_env?: string | undefined;
    /** For `command`: the program and its arguments. The text comes on its input. Default: `[]` */
    readonly command?: readonly string[] | undefined;
    /** Seconds that a message waits for more, which are then told as one. 0: each is told at once. Default: `10` */
    readonly window_secs?: number | undefined;
    /** Hours in which nothing is told, such as `22:00-07:00`. What waits is told at their end. Empty: none. Default: `""` */
    readonly quiet_hours?: string | undefined;
    /** IANA name of the time zone of the quiet hours. Empty: that of `[cron]`. Default: `""` */
    readonly timezone?: string | undefined;
    /** Tells of approvals in the quiet hours too. Default: `false` */
    readonly approvals_break_quiet?: boolean | undefined;
  })[] | undefined;
  /** `[runtime]`: What WASM tools may use. */
  readonly runtime?: {
    /** `[runtime.wasm]`: Bounds of WASM modules. */
    readonly wasm?: {
      /** Folder of the modules, relative to the workspace. Default: `"tools/wasm"` */
      readonly tools_dir?: string | undefined;
      /** Units of fuel of one call: about one for each branch that its code takes. 0: no limit. Default: `1000000` */
      readonly fuel_limit?: number | undefined;
      /** Most units that a manifest may ask for in place of `fuel_limit`. 0: as many as it asks for. Default: `1000000000` */
      readonly max_fuel?: number | undefined;
      /** Megabytes of memory of one call. Default: `64` */
      readonly memory_limit_mb?: number | undefined;
      /** Megabytes of a module. Default: `50` */
      readonly max_module_size_mb?: number | undefined;
      /** Seconds of one call. Default: `30` */
      readonly timeout_secs?: number | undefined;
      /** Lets modules read the workspace. Default: `false` */
      readonly allow_workspace_read?: boolean | undefined;
      /** Lets modules write to the workspace. Default: `false` */
      readonly allow_workspace_write?: boolean | undefined;
      /** Hosts that modules may reach. Default: `[]` */
      readonly allowed_hosts?: readonly string[] | undefined;
      /** `[runtime.wasm.security]`: What is refused before a module is loaded. */
      readonly security?: {
        /** Refuses a `tools_dir` outside the workspace. Default: `true` */
        readonly require_workspace_relative_tools_dir?: boolean | undefined;
        /** Refuses modules that are links. Default: `true` */
        readonly reject_symlink_modules?: boolean | undefined;
        /** Refuses a `tools_dir` that is a link. Default: `true` */
        readonly reject_symlink_tools_dir?: boolean | undefined;
        /** What becomes of a module that asks for more than it was granted. Default: `"deny"` */
        readonly capability_escalation_mode?: "deny" | undefined;
        /** What becomes of a module whose SHA-256 differs: `enforce` refuses it, `warn` loads it and says so. Default: `"enforce"` */
        readonly module_hash_policy?: "enforce" | "warn" | undefined;
      } | undefined;
    } | undefined;
  } | undefined;
  /** `[plugins]`: Plugins. */
  readonly plugins?: {
    /** Registry of plugins: the address of its index, or an absolute folder. Default: `""` */
    readonly registry_url?: string | undefined;
    /** Folder of the plugins. Empty: `plugins` of the data directory. Default: `""` */
    readonly user_dir?: string | undefined;
    /** Allows plugins that are programs. Default: `false` */
    readonly allow_process?: boolean | undefined;
    /** Allows plugins that are libraries of machine code. Default: `false` */
    readonly allow_ffi?: boolean | undefined;
    /** Contains programs, and libraries in a process of their own, to their capabilities by bubblewrap. `auto`: with the user's rights where there is none. `require`: refused there. `off`: with the user's rights everywhere. Default: `"auto"` */
    readonly sandbox?: "auto" | "require" | "off" | undefined;
    /** Where libraries run: in a process of their own, or `in_process`, with all rights of the gateway and ending it when they crash. Default: `"process"` */
    readonly ffi?: "process" | "in_process" | undefined;
    /** Seconds of one call of a program or library. Default: `30` */
    readonly timeout_secs?: number | undefined;
    /** Bytes of one answer of a program or library. Default: `1048576` */
    readonly max_output_bytes?: number | undefined;
    /** Settings that a plugin gets with each call, by its id: `weather = { units = "metric", api_key = { secret = "name" } }`. Default: `{}` */
    readonly config?: { readonly [name: string]: { readonly [name: string]: string | number | boolean | {
      /** Name of the `[secrets.<name>]` whose value stands here. */
      readonly secret: string;
      /** Text before the value, such as `Bearer ` with a space at its end. Default: `""` */
      readonly prefix?: string | undefined;
    } } } | undefined;
  } | undefined;
  /** `[skills]`: Skills. */
  readonly skills?: {
    /** Further folders of skills: absolute, or relative to the data directory. Default: `[]` */
    readonly dirs?: readonly string[] | undefined;
  } | undefined;
  /** `[sops]`: Procedures. */
  readonly sops?: {
    /** Further folders of procedures. Default: `[]` */
    readonly dirs?: readonly string[] | undefined;
    /** Seconds that a step waits for a person's answer. After them the execution ends. Default: `3600` */
    readonly approval_timeout_secs?: number | undefined;
  } | undefined;
  /** `[hardware]`: Boards that are reached over the GDB remote protocol. */
  readonly hardware?: {
    /** `[hardware.boards]`: Boards by a name of your choice. */
    readonly boards?: { readonly [name: string]: {
      /** Address of the GDB server, such as `host:port`. Default: `"127.0.0.1:3333"` */
      readonly gdb_remote?: string | undefined;
      /** `[hardware.boards.memory_map]`: Regions that may be read. Nothing outside them is. */
      readonly memory_map?: readonly {
        /** Name of the region. */
        readonly name: string;
        /** First address, such as `0x2000_0000`. */
        readonly start: number;
        /** Bytes of the region. */
        readonly length: number;
      }[] | undefined;
    } } | undefined;
  } | undefined;
  /** `[storage]`: Where records are kept. */
  readonly storage?: {
    /** Where records are kept: `sqlite` in the data directory, `postgres` in a PostgreSQL database, or `memory`, which forgets them at the end. Default: `"sqlite"` */
    readonly driver?: "sqlite" | "memory" | "postgres" | undefined;
    /** Address of the PostgreSQL database: `postgres://user:password@host:5432/database`. Default: `""` */
    readonly url?: string | undefined;
    /** Environment variable that holds the address of the database. Default: `""` */
    readonly url_env?: string | undefined;
    /** File that holds the address of the database and nothing else. Default: `""` */
    readonly url_file?: string | undefined;
    /** Environment variable that holds the address past a pooler such as PgBouncer, for locks and migrations. Default: `""` */
    readonly direct_url_env?: string | undefined;
    /** Environment variable that holds the key for encrypted records: 32 bytes in base64, as `openssl rand -base64 32` prints them. The same at all gateways of a database. Empty: files of the data directory hold the keys, and gateways that share a database encrypt nothing. Default: `""` */
    readonly key_env?: string | undefined;
    /** Environment variable that holds the key before the one of `key_env`, while `postern storage rekey` changes it. Default: `""` */
    readonly old_key_env?: string | undefined;
    /** Schema of the database that the tables are in. It is made where it is missing. Default: `"postern"` */
    readonly schema?: string | undefined;
    /** Most connections of this gateway to the database. Default: `10` */
    readonly pool_size?: number | undefined;
    /** Seconds after which the database gives a statement up. Default: `30` */
    readonly statement_timeout_secs?: number | undefined;
    /** Takes a database that speaks PostgreSQL's protocol and is not PostgreSQL. Some of them ignore locks. Default: `false` */
    readonly engine_unchecked?: boolean | undefined;
  } | undefined;
  /** `[cluster]`: Gateways that share a PostgreSQL database. */
  readonly cluster?: {
    /** Seconds after which a gateway that is not heard of counts as gone. Its runs go on at others after one and a half times as long. The same at all gateways. Default: `10` */
    readonly lease_secs?: number | undefined;
    /** Name of the workspace that this gateway shares with others: they have the same folder, such as on a network file system, and go on with each other's runs there. No name begins with `ws_`. Empty: the workspace is this gateway's own. Default: `""` */
    readonly workspace_id?: string | undefined;
    /** Seconds that a run, or an execution of a procedure, waits for a gateway of its workspace when all of them are gone. It then ends. The same at all gateways. Default: `86400` */
    readonly workspace_wait_secs?: number | undefined;
    /** Address at which the other gateways reach this one, such as `https://gateway-1.example.com`. It gives them the text of runs as it comes, and the nodes of this gateway. Empty: they read each turn when it is complete, and cannot call the nodes. Default: `""` */
    readonly advertise_url?: string | undefined;
    /** Environment variable that holds the token of the cluster, the same at all gateways: at least 32 characters. A gateway sends it to the others, and takes requests of the others with it alone. Default: `""` */
    readonly token_env?: string | undefined;
    /** Allows an `advertise_url` with http to another machine. Whoever reads that network then has the token. Default: `false` */
    readonly insecure?: boolean | undefined;
    /** Seconds for which completions without tools go on with the tokens that the gateway knows while the database is down. Anything else is refused then. Default: `30` */
    readonly stale_auth_secs?: number | undefined;
  } | undefined;
  /** `[logging]`: Log lines on stderr, or in the log file of the daemon. */
  readonly logging?: {
    /** Least important line that is written. Default: `"info"` */
    readonly level?: "error" | "warn" | "info" | "debug" | undefined;
    /** Lines for people or for programs. Default: `"pretty"` */
    readonly format?: "pretty" | "json" | undefined;
  } | undefined;
  /** `[memory]`: How memories are found. */
  readonly memory?: {
    /** Hint of an `[[embedding_routes]]` whose model finds memories by their meaning too. Their texts are sent to it. Empty: by words alone. Default: `""` */
    readonly embedding_route?: string | undefined;
  } | undefined;
  /** `[conversations]`: How long conversations are kept. */
  readonly conversations?: {
    /** Days that a conversation is kept. 0: for ever. Default: `0` */
    readonly retention_days?: number | undefined;
  } | undefined;
}
