import { isDeepStrictEqual } from "node:util";
import { ConfigError } from "../base/errors.ts";
import { type Config, freeze } from "./config.ts";
import { crossChecks } from "./validate_config.ts";
import { type KeyPath, type RawTable, toKeyText } from "./toml.ts";
import { isTable } from "./schema_keys.ts";

/** Outcome of joining a running configuration and a newly loaded one. Keys are texts, such as `gateway.port`. */
export interface ConfigChange {
  /** The running values of keys that need a restart, the new ones of all others */
  readonly config: Config;
  /** Keys whose new value counts from now on */
  readonly applied: readonly string[];
  /** Keys that keep their running value until the next start */
  readonly needsRestart: readonly string[];
}

/**
 * Joins a running configuration and a newly loaded one; neither is changed.
 * @throws {ConfigError} `config_invalid` when the new values contradict those that stay until the next start
 */
export function changeConfig(running: Config, next: Config): ConfigChange {
  const applied: string[] = [];
  const needsRestart: string[] = [];
  let config: Config = next;
  for (const [table, change] of Object.entries(restartsAgent(running, next))) {
    const path = table.split(".");
    const [before, after] = [valueAt(running, path), valueAt(next, path)];
    if (isDeepStrictEqual(before, after)) continue;
    (change === "live" ? applied : needsRestart).push(...differences(before, after, path));
    if (change === "restart") config = withValueAt(config, path, before);
  }
  const [contradiction] = needsRestart.length === 0 ? [] : crossChecks(config);
  if (contradiction !== undefined) {
    const key = toKeyText(contradiction.path);
    const reason = `${contradiction.reason}; or restart, as ${needsRestart.join(", ")} can only change then`;
    throw new ConfigError("config_invalid", `Cannot use "${key}" while the gateway runs: ${reason}`, { key });
  }
  return { config: freeze(config), applied, needsRestart };
}

/** An agent comes and goes with a start only. */
function restartsAgent(running: Config, next: Config): typeof KEY_CHANGES {
  const [had, has] = [running, next].map(({ provider }) => provider.kind !== "none");
  return had === has ? KEY_CHANGES : { ...KEY_CHANGES, provider: "restart" };
}

function valueAt(value: unknown, path: KeyPath): unknown {
  // Only tables of the schema are gone into, which all have these keys
  return path.reduce((table, key) => (table as Readonly<Record<string, unknown>>)[key], value);
}

function withValueAt<T>(table: T, [key = "", ...rest]: KeyPath, value: unknown): T {
  const inner = rest.length === 0 ? value : withValueAt(valueAt(table, [key]), rest, value);
  return { ...table, [key]: inner };
}

/** The keys that differ; a list is one value. */
function differences(before: unknown, after: unknown, path: KeyPath): readonly string[] {
  if (isDeepStrictEqual(before, after)) return [];
  if (!isTable(before) && !isTable(after)) return [toKeyText(path)];
  const [old, now] = [before, after].map((table) => (isTable(table) ? table : {})) as [RawTable, RawTable]; // two in, two out
  const keys = new Set([...Object.keys(old), ...Object.keys(now)]);
  return [...keys].flatMap((key) => differences(old[key], now[key], [...path, key]));
}

/**
 * When a changed value begins to count: `live` with the next piece of work, `restart` with the next start of the gateway, since
 * what depends on it is built once.
 */
export type KeyChange = "live" | "restart";

/** Every key of the schema is below exactly one of these: keys, and tables for all that is in them. */
export const KEY_CHANGES: Readonly<Record<string, KeyChange>> = {
  "data_dir": "restart",
  "workspace": "restart",
  "enable_git": "live",
  "enable_agents_ipc": "live",
  "enable_composio": "live",
  "enable_pushover": "live",
  "gateway.host": "restart",
  "gateway.port": "restart",
  // Changes of pairing and of a public address count only after a restart
  "gateway.require_pairing": "restart",
  "gateway.allow_public_bind": "restart",
  "gateway.allowed_hosts": "live",
  "gateway.public_url": "live",
  "gateway.answer_links": "live",
  "gateway.cors_origins": "live",
  "gateway.rate_limit_max": "live",
  "gateway.rate_limit_window_secs": "live",
  "gateway.rate_limit_per_identity": "live",
  "gateway.rate_limit_scope": "live",
  "gateway.max_request_bytes": "live",
  "gateway.pairing_code_ttl_secs": "live",
  "gateway.shutdown_grace_secs": "restart",
  "gateway.request_timeout_secs": "restart",
  "gateway.websocket": "restart",
  "gateway.node_control": "restart",
  // From or to kind = "none" it needs a restart: see changeConfig
  "provider": "live",
  "providers": "live",
  "agent": "live",
  "runs": "live",
  "budget": "live",
  "proxy": "live",
  "autonomy": "live",
  "tools": "live",
  "security.enable_git": "live",
  "security.enable_agents_ipc": "live",
  "security.enable_composio": "live",
  "security.enable_pushover": "live",
  "security.allowed_commands": "live",
  "security.read_file": "live",
  "security.write_file": "live",
  "security.shell": "live",
  "security.process": "live",
  "security.git": "live",
  "security.mcp": "live",
  "security.audit": "live",
  "mcp": "live",
  "url_access": "live",
  "secrets": "live",
  "http_request": "live",
  "web_fetch": "live",
  "web_search": "live",
  "browser": "live",
  "cron": "live",
  "agents": "live",
  "model_routes": "live",
  "embedding_routes": "live",
  "query_classification": "live",
  "channels": "live",
  "notify": "live",
  "runtime": "live",
  "plugins.registry_url": "live",
  "plugins.user_dir": "restart",
  "plugins.allow_process": "live",
  "plugins.allow_ffi": "live",
  "plugins.sandbox": "live",
  "plugins.ffi": "live",
  "plugins.timeout_secs": "live",
  "plugins.max_output_bytes": "live",
  "plugins.config": "live",
  "skills": "live",
  "sops": "live",
  "hardware": "live",
  "storage": "restart",
  "cluster": "restart",
  "logging.level": "live",
  "logging.format": "restart",
  "memory": "live",
  "conversations": "live",
};
