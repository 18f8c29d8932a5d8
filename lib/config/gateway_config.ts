// deno-fmt-ignore-file: written from the schema by scripts/config_types.ts
/** Tables and keys of `postern.toml` as an object; docs/configuration.md has their meanings. */
export interface GatewayConfig {
  readonly data_dir?: string | undefined;
  readonly workspace?: string | undefined;
  readonly enable_git?: boolean | undefined;
  readonly enable_agents_ipc?: boolean | undefined;
  readonly enable_composio?: boolean | undefined;
  readonly enable_pushover?: boolean | undefined;
  readonly gateway?: {
    readonly host?: string | undefined;
    readonly port?: number | undefined;
    readonly require_pairing?: boolean | undefined;
    readonly allow_public_bind?: boolean | undefined;
    readonly allowed_hosts?: readonly string[] | undefined;
    readonly public_url?: string | undefined;
    readonly answer_links?: boolean | undefined;
    readonly cors_origins?: readonly string[] | undefined;
    readonly rate_limit_max?: number | undefined;
    readonly rate_limit_window_secs?: number | undefined;
    readonly rate_limit_per_identity?: number | undefined;
    readonly rate_limit_scope?: "gateway" | "cluster" | undefined;
    readonly max_request_bytes?: number | undefined;
    readonly pairing_code_ttl_secs?: number | undefined;
    readonly shutdown_grace_secs?: number | undefined;
    readonly request_timeout_secs?: number | undefined;
    readonly websocket?: {
      readonly heartbeat_secs?: number | undefined;
      readonly pong_timeout_secs?: number | undefined;
      readonly idle_timeout_secs?: number | undefined;
      readonly max_message_bytes?: number | undefined;
    } | undefined;
    readonly node_control?: {
      readonly enabled?: boolean | undefined;
      readonly auth_token?: string | undefined;
      readonly auth_token_env?: string | undefined;
      readonly allowed_node_ids?: readonly string[] | undefined;
    } | undefined;
  } | undefined;
  readonly provider?: {
    readonly kind?: "auto" | "openai" | "anthropic" | "openrouter" | "ollama" | "openai_compatible" | "offline" | "none" | undefined;
    readonly model?: string | undefined;
    readonly base_url?: string | undefined;
    readonly api_key_env?: string | undefined;
    readonly api_key_file?: string | undefined;
    readonly timeout_secs?: number | undefined;
    readonly silence_secs?: number | undefined;
    readonly max_retries?: number | undefined;
    readonly fallback?: readonly string[] | undefined;
    readonly vision?: "auto" | "on" | "off" | undefined;
    readonly local_users?: readonly string[] | undefined;
    readonly aliases?: { readonly [name: string]: string } | undefined;
  } | undefined;
  readonly providers?: { readonly [name: string]: {
    readonly kind?: "openai" | "anthropic" | "openrouter" | "ollama" | "openai_compatible" | "offline" | undefined;
    readonly model?: string | undefined;
    readonly base_url?: string | undefined;
    readonly api_key_env?: string | undefined;
    readonly api_key_file?: string | undefined;
    readonly timeout_secs?: number | undefined;
    readonly silence_secs?: number | undefined;
    readonly max_retries?: number | undefined;
    readonly fallback?: readonly string[] | undefined;
    readonly vision?: "auto" | "on" | "off" | undefined;
  } } | undefined;
  readonly agent?: {
    readonly system_prompt?: string | undefined;
    readonly max_iterations?: number | undefined;
    readonly max_tool_calls?: number | undefined;
    readonly parallel_tools?: boolean | undefined;
    readonly context_window_tokens?: number | undefined;
    readonly tools?: readonly string[] | undefined;
    readonly workspace_instructions?: boolean | undefined;
    readonly tool_search?: "auto" | "on" | "off" | undefined;
    readonly ask_user?: boolean | undefined;
  } | undefined;
  readonly runs?: {
    readonly max_concurrent?: number | undefined;
    readonly max_queued?: number | undefined;
    readonly max_per_conversation?: number | undefined;
    readonly when_reader_leaves?: "go_on" | "cancel" | undefined;
    readonly approval_timeout_secs?: number | undefined;
    readonly retention_days?: number | undefined;
  } | undefined;
  readonly budget?: {
    readonly tokens_per_run?: number | undefined;
    readonly tokens_per_day?: number | undefined;
  } | undefined;
  readonly proxy?: {
    readonly http?: string | undefined;
    readonly https?: string | undefined;
    readonly no_proxy?: readonly string[] | undefined;
    readonly resolve?: "local" | "proxy" | undefined;
  } | undefined;
  readonly autonomy?: {
    readonly level?: "read_only" | "supervised" | "full" | undefined;
    readonly workspace_only?: boolean | undefined;
    readonly forbidden_paths?: readonly string[] | undefined;
    readonly auto_approve?: readonly string[] | undefined;
    readonly always_ask?: readonly string[] | undefined;
    readonly rules?: readonly ({
      readonly name: string;
      readonly tool: string;
      readonly op?: string | undefined;
      readonly command?: string | undefined;
      readonly path?: string | undefined;
      readonly host?: string | undefined;
      readonly then: "allow" | "ask" | "deny";
    })[] | undefined;
    readonly after_outside_content?: "" | "ask" | "allow" | undefined;
    readonly approval_timeout_secs?: number | undefined;
    readonly allow_sensitive_file_reads?: boolean | undefined;
    readonly allow_sensitive_file_writes?: boolean | undefined;
  } | undefined;
  readonly tools?: { readonly [name: string]: {
    readonly access?: "" | "read" | "state" | "write" | "network" | undefined;
  } } | undefined;
  readonly security?: {
    readonly enable_git?: boolean | undefined;
    readonly enable_agents_ipc?: boolean | undefined;
    readonly enable_composio?: boolean | undefined;
    readonly enable_pushover?: boolean | undefined;
    readonly allowed_commands?: readonly string[] | undefined;
    readonly read_file?: {
      readonly allowed_root?: string | undefined;
      readonly max_read_bytes?: number | undefined;
      readonly allow_binary?: boolean | undefined;
    } | undefined;
    readonly write_file?: {
      readonly enabled?: boolean | undefined;
      readonly allowed_root?: string | undefined;
      readonly max_write_bytes?: number | undefined;
    } | undefined;
    readonly shell?: {
      readonly max_args?: number | undefined;
      readonly max_arg_length?: number | undefined;
      readonly max_output_bytes?: number | undefined;
      readonly timeout_secs?: number | undefined;
      readonly sandbox?: "auto" | "require" | "off" | undefined;
      readonly syntax?: "plain" | "contained" | undefined;
      readonly network?: "none" | "allowlist" | undefined;
      readonly local_sockets?: readonly string[] | undefined;
      readonly forbidden_chars?: readonly string[] | undefined;
    } | undefined;
    readonly process?: {
      readonly allowed_commands?: readonly string[] | undefined;
      readonly max_processes?: number | undefined;
      readonly max_output_bytes?: number | undefined;
    } | undefined;
    readonly git?: {
      readonly credentials?: boolean | undefined;
    } | undefined;
    readonly mcp?: {
      readonly enabled?: boolean | undefined;
      readonly allowed_servers?: readonly string[] | undefined;
      readonly retry_lost_calls?: "safe" | "always" | undefined;
    } | undefined;
    readonly audit?: {
      readonly enabled?: boolean | undefined;
      readonly retention_days?: number | undefined;
    } | undefined;
  } | undefined;
  readonly mcp?: {
    readonly client_metadata_url?: string | undefined;
    readonly servers?: { readonly [name: string]: {
      readonly command?: string | undefined;
      readonly args?: readonly string[] | undefined;
      readonly env?: { readonly [name: string]: string | {
        readonly secret: string;
        readonly prefix?: string | undefined;
      } } | undefined;
      readonly url?: string | undefined;
      readonly headers?: { readonly [name: string]: string | {
        readonly secret: string;
        readonly prefix?: string | undefined;
      } } | undefined;
      readonly oauth?: {
        readonly client_id?: string | undefined;
        readonly client_secret?: string | undefined;
        readonly client_secret_env?: string | undefined;
        readonly issuer?: string | undefined;
        readonly scopes?: readonly string[] | undefined;
        readonly grant?: "authorization_code" | "client_credentials" | undefined;
        readonly redirect_port?: number | undefined;
      } | undefined;
      readonly sandbox?: "off" | "auto" | "require" | undefined;
      readonly paths?: readonly string[] | undefined;
      readonly network?: boolean | undefined;
      readonly sampling?: boolean | undefined;
      readonly startup_timeout_secs?: number | undefined;
      readonly timeout_secs?: number | undefined;
    } } | undefined;
    readonly server?: {
      readonly tools?: readonly string[] | undefined;
      readonly trust_elicitation?: boolean | undefined;
    } | undefined;
  } | undefined;
  readonly url_access?: {
    readonly block_private_ip?: boolean | undefined;
    readonly allow_loopback?: boolean | undefined;
    readonly public_ranges?: readonly string[] | undefined;
    readonly enforce_domain_allowlist?: boolean | undefined;
    readonly domain_allowlist?: readonly string[] | undefined;
    readonly domain_blocklist?: readonly string[] | undefined;
  } | undefined;
  readonly secrets?: { readonly [name: string]: {
    readonly env?: string | undefined;
    readonly file?: string | undefined;
    readonly command?: readonly string[] | undefined;
    readonly hosts?: readonly string[] | undefined;
    readonly tools?: readonly string[] | undefined;
    readonly mcp?: readonly string[] | undefined;
    readonly plugins?: readonly string[] | undefined;
  } } | undefined;
  readonly http_request?: {
    readonly enabled?: boolean | undefined;
    readonly allowed_domains?: readonly string[] | undefined;
    readonly max_response_size?: number | undefined;
    readonly max_download_bytes?: number | undefined;
    readonly timeout_secs?: number | undefined;
    readonly credentials?: { readonly [name: string]: {
      readonly header?: string | undefined;
      readonly prefix?: string | undefined;
      readonly secret?: string | undefined;
      readonly value_env?: string | undefined;
      readonly hosts: readonly string[];
      readonly token_url?: string | undefined;
      readonly client_id?: string | undefined;
      readonly client_secret?: string | undefined;
      readonly scopes?: readonly string[] | undefined;
    } } | undefined;
  } | undefined;
  readonly web_fetch?: {
    readonly enabled?: boolean | undefined;
    readonly max_bytes?: number | undefined;
    readonly timeout_secs?: number | undefined;
    readonly respect_robots?: boolean | undefined;
  } | undefined;
  readonly web_search?: {
    readonly enabled?: boolean | undefined;
    readonly provider?: "duckduckgo" | "brave" | "perplexity" | "exa" | "jina" | "searxng" | undefined;
    readonly max_results?: number | undefined;
    readonly timeout_secs?: number | undefined;
    readonly api_key_env?: string | undefined;
    readonly base_url?: string | undefined;
  } | undefined;
  readonly browser?: {
    readonly enabled?: boolean | undefined;
    readonly executable?: string | undefined;
    readonly headless?: boolean | undefined;
    readonly keep_cookies?: boolean | undefined;
    readonly logins?: readonly string[] | undefined;
    readonly sandbox?: "auto" | "require" | undefined;
    readonly timeout_secs?: number | undefined;
    readonly max_download_bytes?: number | undefined;
    readonly allowed_domains?: readonly string[] | undefined;
  } | undefined;
  readonly cron?: {
    readonly enabled?: boolean | undefined;
    readonly timezone?: string | undefined;
    readonly max_tasks?: number | undefined;
  } | undefined;
  readonly agents?: { readonly [name: string]: {
    readonly provider?: string | undefined;
    readonly model?: string | undefined;
    readonly api_key_env?: string | undefined;
    readonly system_prompt?: string | undefined;
    readonly max_depth?: number | undefined;
    readonly agentic?: boolean | undefined;
    readonly max_iterations?: number | undefined;
    readonly allowed_tools?: readonly string[] | undefined;
  } } | undefined;
  readonly model_routes?: readonly {
    readonly hint: string;
    readonly provider: string;
    readonly model: string;
  }[] | undefined;
  readonly embedding_routes?: readonly {
    readonly hint: string;
    readonly provider: string;
    readonly model: string;
  }[] | undefined;
  readonly query_classification?: {
    readonly enabled?: boolean | undefined;
    readonly rules?: readonly ({
      readonly hint: string;
      readonly keywords?: readonly string[] | undefined;
      readonly patterns?: readonly string[] | undefined;
      readonly min_length?: number | undefined;
      readonly max_length?: number | undefined;
      readonly priority?: number | undefined;
    })[] | undefined;
  } | undefined;
  readonly channels?: { readonly [name: string]: {
    readonly kind?: "generic" | undefined;
    readonly secret_env?: string | undefined;
    readonly reply_url?: string | undefined;
    readonly conversation?: "sender" | "channel" | "message" | undefined;
  } } | undefined;
  readonly notify?: readonly ({
    readonly name: string;
    readonly events: readonly ("approval_waiting" | "run_ended" | "run_failed" | "run_needs_review" | "budget_near" | "gateway_degraded" | "sign_in_needed")[];
    readonly kind: "webhook" | "ntfy" | "pushover" | "command";
    readonly url?: string | undefined;
    readonly secret_env?: string | undefined;
    readonly topic_env?: string | undefined;
    readonly token_env?: string | undefined;
    readonly user_env?: string | undefined;
    readonly command?: readonly string[] | undefined;
    readonly window_secs?: number | undefined;
    readonly quiet_hours?: string | undefined;
    readonly timezone?: string | undefined;
    readonly approvals_break_quiet?: boolean | undefined;
  })[] | undefined;
  readonly runtime?: {
    readonly wasm?: {
      readonly tools_dir?: string | undefined;
      readonly fuel_limit?: number | undefined;
      readonly max_fuel?: number | undefined;
      readonly memory_limit_mb?: number | undefined;
      readonly max_module_size_mb?: number | undefined;
      readonly timeout_secs?: number | undefined;
      readonly allow_workspace_read?: boolean | undefined;
      readonly allow_workspace_write?: boolean | undefined;
      readonly allowed_hosts?: readonly string[] | undefined;
      readonly security?: {
        readonly require_workspace_relative_tools_dir?: boolean | undefined;
        readonly reject_symlink_modules?: boolean | undefined;
        readonly reject_symlink_tools_dir?: boolean | undefined;
        readonly capability_escalation_mode?: "deny" | undefined;
        readonly module_hash_policy?: "enforce" | "warn" | undefined;
      } | undefined;
    } | undefined;
  } | undefined;
  readonly plugins?: {
    readonly registry_url?: string | undefined;
    readonly user_dir?: string | undefined;
    readonly allow_process?: boolean | undefined;
    readonly allow_ffi?: boolean | undefined;
    readonly sandbox?: "auto" | "require" | "off" | undefined;
    readonly ffi?: "process" | "in_process" | undefined;
    readonly timeout_secs?: number | undefined;
    readonly max_output_bytes?: number | undefined;
    readonly config?: { readonly [name: string]: { readonly [name: string]: string | number | boolean | {
      readonly secret: string;
      readonly prefix?: string | undefined;
    } } } | undefined;
  } | undefined;
  readonly skills?: {
    readonly dirs?: readonly string[] | undefined;
  } | undefined;
  readonly sops?: {
    readonly dirs?: readonly string[] | undefined;
    readonly approval_timeout_secs?: number | undefined;
  } | undefined;
  readonly hardware?: {
    readonly boards?: { readonly [name: string]: {
      readonly gdb_remote?: string | undefined;
      readonly memory_map?: readonly {
        readonly name: string;
        readonly start: number;
        readonly length: number;
      }[] | undefined;
    } } | undefined;
  } | undefined;
  readonly storage?: {
    readonly driver?: "sqlite" | "memory" | "postgres" | undefined;
    readonly url?: string | undefined;
    readonly url_env?: string | undefined;
    readonly url_file?: string | undefined;
    readonly direct_url_env?: string | undefined;
    readonly key_env?: string | undefined;
    readonly old_key_env?: string | undefined;
    readonly schema?: string | undefined;
    readonly pool_size?: number | undefined;
    readonly statement_timeout_secs?: number | undefined;
    readonly engine_unchecked?: boolean | undefined;
  } | undefined;
  readonly cluster?: {
    readonly lease_secs?: number | undefined;
    readonly workspace_id?: string | undefined;
    readonly workspace_wait_secs?: number | undefined;
    readonly advertise_url?: string | undefined;
    readonly token_env?: string | undefined;
    readonly insecure?: boolean | undefined;
    readonly stale_auth_secs?: number | undefined;
  } | undefined;
  readonly logging?: {
    readonly level?: "error" | "warn" | "info" | "debug" | undefined;
    readonly format?: "pretty" | "json" | undefined;
  } | undefined;
  readonly memory?: {
    readonly embedding_route?: string | undefined;
  } | undefined;
  readonly conversations?: {
    readonly retention_days?: number | undefined;
  } | undefined;
}
