import * as v from "valibot";
import { type Config, configSchema, freeze } from "./config.ts";
import { crossChecks } from "./cross_checks.ts";
import type { KeyPath } from "./key_path.ts";
import { isTable, mergeLayers, normalizeLayer } from "./normalize_layer.ts";
import type { RawTable } from "./parse_toml.ts";
import { BUILT_IN_FORBIDDEN_PATHS, switches } from "./schema/security.ts";
import { expectationAt, listsForTables, nearestKey, unknownKeys } from "./schema_keys.ts";
import { hidesValue } from "./secrets.ts";

/** Something wrong with the value at `path`; `reason` goes on after `Cannot use "key" (place): `. Holds no secret. */
export interface ValidationFinding {
  readonly path: KeyPath;
  readonly reason: string;
}

export type Validation = { readonly config: Config } | { readonly findings: readonly ValidationFinding[] };

const MAX_SHOWN_CHARACTERS = 60;

/**
 * The one validator for file, command line and boot: joins the layers (later ones win), fills in defaults, and finds
 * everything that is wrong at once.
 */
export function validateConfig(layers: readonly RawTable[]): Validation {
  const normalized = layers.map(normalizeLayer);
  const raw = mergeLayers(normalized.map((layer) => layer.table));
  const conflicts = normalized.flatMap((layer) => layer.conflicts).map((path) => ({
    path,
    reason: `${path.at(-1)} has another value at top level; keep one of the two`,
  }));
  const result = v.safeParse(configSchema, raw);
  const lists = listsForTables(raw).map((path) => ({ path, reason: "it must be a table, not a list" }));
  const unknown = [...lists, ...unknownKeys(raw).map((path) => ({ path, reason: unknownKey(path) }))];
  if (!result.success) return { findings: [...conflicts, ...unknown, ...result.issues.flatMap(toFindings)] };
  const config = complete(result.output, layers);
  const findings = [...conflicts, ...unknown, ...crossChecks(config)];
  return findings.length > 0 ? { findings } : { config };
}

function complete(output: v.InferOutput<typeof configSchema>, layers: readonly RawTable[]): Config {
  const { security, autonomy } = output;
  for (const name of Object.keys(switches) as (keyof typeof switches)[]) output[name] = security[name];
  autonomy.forbidden_paths = [...new Set([...BUILT_IN_FORBIDDEN_PATHS, ...autonomy.forbidden_paths])];
  return freeze({ ...output, given: [...new Set(layers.flatMap(givenKeys))] });
}

function givenKeys(layer: RawTable): readonly string[] {
  const { security } = layer;
  const inner = isTable(security) ? Object.keys(security).map((key) => `security.${key}`) : [];
  return [...Object.keys(layer), ...inner];
}

function toFindings(issue: v.BaseIssue<unknown>): readonly ValidationFinding[] {
  const path = (issue.path ?? []).map((item) => item.key as string | number);
  // Valibot names the first unknown key of a table only; unknownKeys finds all
  if (issue.type === "strict_object" && issue.expected === "never") return [];
  if (issue.type === "strict_object" && issue.received === "undefined") return [{ path, reason: "it must be given" }];
  // A name of the user's choice that does not fit its pattern: the issue's origin is the key, not the value
  if (issue.path?.at(-1)?.origin === "key") return [{ path, reason: "a name here is 1-64 of a-z, 0-9, _ and -" }];
  if (issue.type === "max_length") return [{ path, reason: `it may be ${issue.expected?.slice(2)} long at most` }];
  return [{ path, reason: `it must be ${expectationAt(path)}${shown(path, issue.input)}` }];
}

function unknownKey(path: KeyPath): string {
  const key = nearestKey(path);
  return `there is no such key${key === undefined ? "" : `; did you mean "${key}"?`}`;
}

function shown(path: KeyPath, value: unknown): string {
  if (hidesValue(path)) return "";
  if (typeof value === "string") return value.length <= MAX_SHOWN_CHARACTERS ? `, not ${JSON.stringify(value)}` : "";
  if (typeof value === "number" || typeof value === "boolean") return `, not ${value}`;
  if (Array.isArray(value)) return ", not a list";
  return value instanceof Date ? ", not a date" : ", not a table";
}
