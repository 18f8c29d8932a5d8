import * as v from "valibot";
import type { Logger } from "../base/telemetry/log.ts";
import { clusterSchema } from "../config/schema/gateway.ts";
import type { Config } from "../config/config.ts";
import { type KeyPath, toKeyText } from "../config/toml.ts";
import { BUILTIN_TOOLS } from "./builtin.ts";
import type { ToolExecutor } from "./runtime/tool_executor.ts";

/** Setting that was given and changes nothing in this version. */
export interface IdleSetting {
  readonly path: KeyPath;
  /** Whole sentence, such as `[web_fetch] does nothing: this version has no tool "web_fetch"` */
  readonly message: string;
  /** Way to make the setting count, for people. Absent: there is none, so that it is to be taken out */
  readonly use?: string;
}

/** Tables of the configuration, with the tools that they are for. `tools` is empty for a feature without tools. */
const SERVED: readonly { readonly key: string; readonly tools: readonly string[]; readonly feature: string }[] = [
  { key: "web_fetch", tools: ["web_fetch"], feature: 'tool "web_fetch"' },
  { key: "browser", tools: ["browser", "browser_open"], feature: 'tool "browser"' },
];

/** Names that the lists of tools accept beside the tools' own. Source: docs/design/policy.md "Autonomy" */
const OTHER_NAMES = ["glob", "search", "memory_read"];
/** Names of tools that come and go while the gateway runs: those of nodes and MCP servers */
const FOREIGN = /^(node|mcp)__/;

/**
 * Lists the settings that were given and do nothing, each named with the reason: they must not look as if they protected or enabled
 * anything.
 * @param options.builtin names of the tools that this version has. Default: the built-in ones
 * @param options.isShared whether other gateways use the same database. Default: with `driver = "postgres"`
 * @param options.others names of tools of plugins, of nodes and of the program that the gateway is mounted in
 */
export function idleSettings(
  config: Config,
  { builtin = BUILTIN_TOOLS.map(({ name }) => name), others, isShared = config.storage.driver === "postgres" }: {
    readonly builtin?: readonly string[];
    readonly others: readonly string[];
    readonly isShared?: boolean | undefined;
  },
): readonly IdleSetting[] {
  const known: KnownTools = { builtin, all: new Set([...builtin, ...others, ...OTHER_NAMES]) };
  const sections = [...idleServers(config), ...idleSections(config, builtin)];
  return [...sections, ...idleNames(config, known), ...idleValues(config, { ...known, isShared })];
}

/** Names of tools. */
interface KnownTools {
  readonly builtin: readonly string[];
  readonly all: ReadonlySet<string>;
}

/** Logs a warning for each setting that does nothing: for a start, and for a changed configuration. @param tools all tools, on or off */
export function warnOfIdleSettings(
  config: Config,
  { log, tools, isShared }: {
    readonly log: Logger;
    readonly tools: Pick<ToolExecutor, "list">;
    /** See idleSettings */
    readonly isShared?: boolean | undefined;
  },
): void {
  const others = tools.list().map(({ name }) => name);
  for (const { path, message } of idleSettings(config, { others, isShared })) {
    log.warn(message, { key: toKeyText(path) });
  }
}

function idleSections(config: Config, known: readonly string[]): readonly IdleSetting[] {
  return SERVED.filter(({ key, tools }) => config.given.includes(key) && !tools.some((name) => known.includes(name)))
    .map(({ key, feature }) => ({
      path: key.split("."),
      message: `[${key}] does nothing: this version has no ${feature}`,
    }));
}

/** Finds MCP servers that are off, and names of servers that are not there. */
function* idleServers({ mcp: { servers }, security: { mcp }, given }: Config): Iterable<IdleSetting> {
  const { enabled, allowed_servers: allowed } = mcp;
  if (enabled && allowed.length === 0 && given.includes("security.mcp")) {
    const message = "[security.mcp] does nothing: allowed_servers names no [mcp.servers.<name>]";
    yield { path: ["security", "mcp"], message };
  }
  for (const [index, name] of allowed.entries()) {
    if (Object.hasOwn(servers, name)) continue;
    const path = ["security", "mcp", "allowed_servers", index];
    yield {
      path,
      message: `"${name}" in "${toKeyText(path.slice(0, -1))}" does nothing: there is no [mcp.servers.${name}]`,
    };
  }
  for (const name of Object.keys(servers)) {
    if (enabled && allowed.includes(name)) continue;
    const why = enabled ? `allowed_servers of [security.mcp] does not name it` : "[security.mcp] enabled is false";
    const use = commandsToEnable(mcp, [name]).join(" && ");
    yield { path: ["mcp", "servers", name], message: `[mcp.servers.${name}] does nothing: ${why}`, use };
  }
}

/** Returns the commands that let the agent use MCP servers. Empty where it may already. @param mcp `[security.mcp]` */
export function commandsToEnable(
  { enabled, allowed_servers: allowed }: Pick<Config["security"]["mcp"], "enabled" | "allowed_servers">,
  names: readonly string[],
): readonly string[] {
  const missing = names.filter((name) => !allowed.includes(name));
  const list = JSON.stringify([...allowed, ...missing]);
  return [
    ...(enabled ? [] : ["postern config set security.mcp.enabled true"]),
    ...(missing.length === 0 ? [] : [`postern config set security.mcp.allowed_servers '${list}'`]),
  ];
}

const IDLE_NAME = "does nothing: no built-in tool and no plugin that is there has this name";

/** Finds names in the lists of tools that no tool has. A pattern is never idle: tools that match may come later. */
function* idleNames(config: Config, { all }: KnownTools): Iterable<IdleSetting> {
  const { autonomy, agent, agents } = config;
  const lists: readonly (readonly [KeyPath, readonly string[]])[] = [
    [["autonomy", "auto_approve"], autonomy.auto_approve],
    [["autonomy", "always_ask"], autonomy.always_ask],
    ...autonomy.rules.map(({ tool }, index) => [["autonomy", "rules", index, "tool"], [tool]] as const),
    [["agent", "tools"], agent.tools],
    ...Object.entries(agents).map(([name, { allowed_tools }]) =>
      [["agents", name, "allowed_tools"], allowed_tools] as const
    ),
  ];
  for (const [path, names] of lists) {
    for (const name of names) {
      if (name.includes("*") || FOREIGN.test(name) || all.has(name)) continue;
      const message = `${JSON.stringify(name)} in "${toKeyText(path)}" ${IDLE_NAME}`;
      yield { path, message };
    }
  }
}

function* idleValues(
  { gateway, storage, cluster, tools }: Config,
  { builtin, all, isShared }: KnownTools & { readonly isShared: boolean },
): Iterable<IdleSetting> {
  const why = `storage.driver is "${storage.driver}"`;
  const use = "postern config set storage.driver postgres";
  if (gateway.rate_limit_scope !== "gateway" && !isShared) {
    yield { path: ["gateway", "rate_limit_scope"], message: `"gateway.rate_limit_scope" does nothing: ${why}`, use };
  }
  const alone: Readonly<Record<string, unknown>> = v.parse(clusterSchema, {});
  for (const [key, value] of isShared ? [] : Object.entries(cluster)) {
    if (value === alone[key]) continue;
    yield { path: ["cluster", key], message: `"cluster.${key}" does nothing: ${why}`, use };
  }
  // Before a move the address is named, and the driver left alone
  const move = storage.driver === "sqlite" ? "postern storage migrate --from sqlite --to postgres" : undefined;
  const purpose = `${move === undefined ? "" : "postern storage migrate and "}storage.driver = "postgres"`;
  for (const key of ["url", "url_env", "url_file", "direct_url_env"] as const) {
    if (storage[key] === "" || storage.driver === "postgres") continue;
    const message = `"storage.${key}" does nothing for the gateway, since ${why}: it is for ${purpose}`;
    yield { path: ["storage", key], message, use: move === undefined ? use : `${move}, then ${use}` };
  }
  for (const name of Object.keys(tools)) {
    const isBuiltIn = builtin.includes(name);
    if (FOREIGN.test(name) || (all.has(name) && !isBuiltIn)) continue;
    const path = ["tools", name];
    const why = isBuiltIn ? "does nothing: the access of a built-in tool is its own" : IDLE_NAME;
    yield { path, message: `[${toKeyText(path)}] ${why}` };
  }
}
