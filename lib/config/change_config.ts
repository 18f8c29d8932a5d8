import { isDeepStrictEqual } from "node:util";
import { ConfigError } from "../base/errors.ts";
import { type Config, freeze } from "./config.ts";
import { crossChecks } from "./cross_checks.ts";
import { KEY_CHANGES } from "./key_changes.ts";
import { type KeyPath, toKeyText } from "./key_path.ts";
import { isTable } from "./normalize_layer.ts";
import type { RawTable } from "./parse_toml.ts";

/** What becomes of a running configuration by a newly loaded one. Keys are texts, as `gateway.port`. */
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
