import { isRecord, type JsonSchema } from "../../base/json.ts";
import { listOf } from "./open_schema.ts";

/** Keywords that count for values of one type alone; all others count for each. */
const KEYWORD_TYPES: ReadonlyMap<string, readonly string[]> = new Map(Object.entries({
  properties: ["object"],
  required: ["object"],
  items: ["array"],
  minItems: ["array"],
  maxItems: ["array"],
  enum: ["string"],
  minimum: ["number", "integer"],
  maximum: ["number", "integer"],
}));

/** Writes a node of one type, which may be null too, or a node of several types as a union of such nodes. */
export function splitTypes(written: JsonSchema, nullable: boolean): Record<string, unknown> {
  const types = listOf(written["type"]);
  if (types.length === 0) return nullable ? { ...written, nullable } : written;
  const branches = types.map((type) => {
    const own = Object.entries(written).filter(([keyword]) =>
      !["type", "description"].includes(keyword) && KEYWORD_TYPES.get(keyword)?.includes(String(type)) !== false
    );
    return { type, ...Object.fromEntries(own) };
  });
  return { anyOf: withNull(branches, nullable) };
}

/** Returns the branches of a union, the first of which may be null too. */
export function withNull(branches: readonly JsonSchema[], isNullable: boolean): readonly JsonSchema[] {
  const [first, ...others] = branches;
  if (!isNullable) return branches;
  if (first === undefined) return [{ type: "string", nullable: true }];
  if (first["anyOf"] === undefined) return [{ ...first, nullable: true }, ...others];
  return [{ ...first, anyOf: withNull(listOf(first["anyOf"]).filter(isRecord), true) }, ...others];
}

/** Tells whether a branch of a union allows null alone. */
export function isNull(branch: unknown): boolean {
  return isRecord(branch) && (branch["type"] === "null" || branch["const"] === null);
}
