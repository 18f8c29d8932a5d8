import { parseTOML } from "confbox/toml";
import type { KeyPath } from "./key_path.ts";
import type { RawTable } from "./parse_toml.ts";
import { schemaAt } from "./schema_keys.ts";

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
