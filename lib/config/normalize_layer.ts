import type { KeyPath } from "./key_path.ts";
import type { RawTable } from "./parse_toml.ts";
import { switches } from "./schema/security.ts";

/**
 * Brings one source of values (file, environment or flags) to its one form before layers are joined: switches stand in
 * `[security]`, the level is one of its three words, `forbidden_chars` is a list.
 * @returns the table, and the switches that this source gives two different values
 */
export function normalizeLayer(layer: RawTable): { readonly table: RawTable; readonly conflicts: readonly KeyPath[] } {
  const table = { ...layer };
  const conflicts: KeyPath[] = [];
  if (isTable(table["security"] ?? {})) {
    const security: RawTable = { ...(table["security"] as RawTable | undefined) };
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

/** Whether a value of a TOML text is a table. */
export function isTable(value: unknown): value is RawTable {
  if (value === null || typeof value !== "object") return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
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
