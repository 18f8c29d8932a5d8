import { ConfigError } from "../base/errors.ts";
import type { KeyPath } from "./key_path.ts";
import { isTable } from "./normalize_layer.ts";
import type { RawTable } from "./parse_toml.ts";
import { parseValue } from "./parse_value.ts";

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
