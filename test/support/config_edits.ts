import assert from "node:assert/strict";
import { parseToml } from "../../lib/config/toml.ts";
import type { Config } from "../../lib/config/config.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";

/** A configuration file as a table. */
export type ConfigTable = Readonly<Record<string, unknown>>;

/** The configuration such a file gives. Fails the test when it is refused. */
export function toConfig(table: ConfigTable): Config {
  const validation = validateConfig([structuredClone(table)]);
  assert.ok("config" in validation, JSON.stringify(validation));
  return validation.config;
}

/** Does what a decision's `change` says, word by word. Fails the test for a sentence that cannot be followed. */
export function applyEdit(table: ConfigTable, edit: string): ConfigTable {
  const set = /^set (\[[\w.]+\]) (\w+ = .+)$/.exec(edit);
  if (set !== null) return merge(table, parseToml(`${set[1]}\n${set[2]}`, "the edit"));
  const routes = /^set (\w+ = \[\{.+\}\])$/.exec(edit);
  if (routes !== null) return merge(table, parseToml(`${routes[1]}`, "the edit"));
  const rule = /^remove "(.+)" from \[\[autonomy\.rules\]\]$/.exec(edit);
  if (rule !== null) {
    const { rules } = table["autonomy"] as { readonly rules: readonly { readonly name: string }[] };
    assert.ok(rules.some(({ name }) => name === rule[1]), edit);
    return merge(table, { autonomy: { rules: rules.filter(({ name }) => name !== rule[1]) } });
  }
  const list = /^(add|remove) "(.+)" (?:to|from) \[([\w.]+)\] (\w+)$/.exec(edit);
  assert.ok(list !== null, `Nobody can follow: ${edit}`);
  const [, verb, entry, section = "", key = ""] = list;
  const names = (table[section] as Record<string, readonly string[]> | undefined)?.[key] ?? [];
  assert.equal(names.includes(entry as string), verb === "remove", edit);
  const changed = verb === "add" ? [...names, entry] : names.filter((name) => name !== entry);
  return merge(table, { [section]: { [key]: changed } });
}

function merge(table: ConfigTable, change: ConfigTable): ConfigTable {
  const merged: Record<string, unknown> = { ...table };
  for (const [key, value] of Object.entries(change)) {
    const nested = typeof value === "object" && value !== null && !Array.isArray(value);
    merged[key] = nested ? merge((merged[key] ?? {}) as ConfigTable, value as ConfigTable) : value;
  }
  return merged;
}
