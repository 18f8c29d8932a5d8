import { parseTOML } from "confbox/toml";
import { ConfigError } from "../base/errors.ts";
import type { KeyPath, RawTable } from "./toml.ts";
import { isTable, schemaAt } from "./schema_keys.ts";
import { switches } from "./schema/security.ts";

/**
 * Brings one source of values (file, environment or flags) to its one form before layers are joined: switches stand in
 * `[security]`, the level is one of its three words, `forbidden_chars` is a list.
 * @returns the table, and the switches that this source gives two different values
 */
export function normalizeLayer(layer: RawTable): { readonly table: RawTable; readonly conflicts: readonly KeyPath[] } {
  const table = { ...layer };
  const conflicts: KeyPath[] = [];
  const { security: given = {} } = table;
  if (isTable(given)) {
    const security: RawTable = { ...given };
    for (const name of Object.keys(switches)) {
      if (table[name] === undefined) continue;
      if (security[name] !== undefined && security[name] !== table[name]) conflicts.push(["security", name]);
      security[name] ??= table[name];
      delete table[name];
    }
    const shell = security["shell"];
    if (isTable(shell) && typeof shell["forbidden_chars"] === "string") {
      security["shell"] = { ...shell, forbidden_chars: [...shell["forbidden_chars"]] };
    }
    if (Object.keys(security).length > 0) table["security"] = security;
  }
  const autonomy = table["autonomy"];
  if (isTable(autonomy)) table["autonomy"] = normalizeAutonomy(autonomy);
  return { table, conflicts };
}

/** Joins layers, the later ones over the earlier: tables key by key, lists and values whole. */
export function mergeLayers(layers: readonly RawTable[]): RawTable {
  const merged: RawTable = {};
  for (const layer of layers) {
    for (const [key, value] of Object.entries(layer)) {
      const before = merged[key];
      const both = isTable(before) && isTable(value);
      // defineProperty: a key called __proto__ stays a key, and is then refused as unknown
      Object.defineProperty(merged, key, {
        value: both ? mergeLayers([before, value]) : value,
        enumerable: true,
        configurable: true,
        writable: true,
      });
    }
  }
  return merged;
}

function normalizeAutonomy(autonomy: RawTable): RawTable {
  const level = autonomy["level"];
  if (typeof level !== "string") return autonomy;
  return {
    ...autonomy,
    level: ["read_only", "supervised", "full"].find((word) => fold(word) === fold(level)) ?? level,
  };
}

function fold(word: string): string {
  return word.toLowerCase().replace(/[-_]/g, "");
}

/** A variable that sets a key. */
export interface EnvironmentKey {
  readonly path: KeyPath;
  readonly variable: string;
}

const PREFIX = "POSTERN__";

/**
 * The keys set by `POSTERN__SECTION__KEY` variables, names read without case.
 * @throws {ConfigError} `config_environment` for a name with an empty part, or two variables of which one is inside the other
 */
export function environmentLayer(
  env: Readonly<Record<string, string | undefined>>,
): { readonly table: RawTable; readonly keys: readonly EnvironmentKey[] } {
  const table: RawTable = {};
  const keys: EnvironmentKey[] = [];
  for (const [variable, text] of Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (!variable.startsWith(PREFIX) || text === undefined) continue;
    const path = variable.slice(PREFIX.length).toLowerCase().split("__");
    if (path.includes("") || !setAt(table, path, parseValue(text, path))) {
      const reason =
        "the name must be POSTERN__SECTION__KEY, and no variable may set a table that another one sets a key of";
      throw new ConfigError("config_environment", `Cannot use the environment variable "${variable}": ${reason}`);
    }
    keys.push({ path, variable });
  }
  return { table, keys };
}

/** Puts a value into nested tables, making them as needed. @returns false when a value is in the way */
export function setAt(table: RawTable, path: KeyPath, value: unknown): boolean {
  const [first, ...rest] = path.map(String);
  if (first === undefined) return false;
  const before = Object.hasOwn(table, first) ? table[first] : undefined;
  if (rest.length === 0) {
    if (before !== undefined) return false;
    Object.defineProperty(table, first, { value, enumerable: true, configurable: true, writable: true });
    return true;
  }
  if (before !== undefined && !isTable(before)) return false;
  const inner: RawTable = before ?? {};
  Object.defineProperty(table, first, { value: inner, enumerable: true, configurable: true, writable: true });
  return setAt(inner, rest, value);
}

/**
 * A value given as text in an environment variable or on the command line: a TOML value, else the text itself.
 * Where the key takes text, `123` and `true` are text as well.
 */
export function parseValue(text: string, path: KeyPath): unknown {
  const value = tomlValue(text);
  const type = schemaAt(path)?.type;
  const wantsText = type === "string" || type === "picklist";
  return value === undefined || (wantsText && typeof value !== "string") ? text : value;
}

function tomlValue(text: string): unknown {
  try {
    const table = parseTOML<RawTable>(`value = ${text}`);
    // A line break in the text must not smuggle in a second key
    return Object.keys(table).length === 1 ? table["value"] : undefined;
  } catch {
    return undefined;
  }
}
