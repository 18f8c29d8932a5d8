import { hash } from "node:crypto";

/**
 * Writes JSON with sorted keys and no white space: the same value always gives the same text.
 *
 * Properties that are `undefined` are left out, as JSON.stringify does.
 * @throws {TypeError} for values JSON cannot carry (NaN, Infinity, bigint, functions) and for cycles
 * Source: RFC 8785
 */
export function canonicalJson(value: unknown): string {
  if (value === null || typeof value === "boolean" || typeof value === "string") return JSON.stringify(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new TypeError(`Cannot write ${value} as canonical JSON: it is not finite`);
    return JSON.stringify(value);
  }
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item ?? null)).join(",")}]`;
  if (typeof value !== "object") throw new TypeError(`Cannot write a ${typeof value} as canonical JSON`);
  const parts: string[] = [];
  // RFC 8785 sorts by UTF-16 code units, which is the default order of sort()
  for (const key of Object.keys(value).sort()) {
    // The key was just listed on this object
    const item = (value as Record<string, unknown>)[key];
    if (item !== undefined) parts.push(`${JSON.stringify(key)}:${canonicalJson(item)}`);
  }
  return `{${parts.join(",")}}`;
}

/** Returns the SHA-256 of the canonical JSON, 64 lower-case hexadecimal digits. */
export function canonicalDigest(value: unknown): string {
  return hash("sha256", canonicalJson(value));
}

/** Tells whether JSON nests no deeper than `depth` levels of objects and arrays. */
export function isShallow(value: unknown, depth: number): boolean {
  if (value === null || typeof value !== "object") return true;
  return depth > 0 && Object.values(value).every((item) => isShallow(item, depth - 1));
}

/** Tells whether a value is an object with members: no array, and not null. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** Tells whether a text is JSON, and not the beginning of it alone. */
export function isWholeJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** A value that JSON can carry. */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;

/** An object that JSON can carry. */
export interface JsonObject {
  readonly [key: string]: JsonValue;
}

/** A JSON Schema of draft 2020-12, as sent to models and clients. */
export interface JsonSchema {
  readonly [keyword: string]: unknown;
}

/** Input schema of a tool: an object schema without a top-level union (OpenAI and Anthropic accept no other). */
export interface ObjectJsonSchema extends JsonSchema {
  readonly type: "object";
  readonly properties: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  /** Absent: every other field is allowed */
  readonly additionalProperties?: JsonSchema | boolean;
}

/** Type whose parts cannot be changed, however deep. */
export type DeepReadonly<T> = T extends readonly (infer Item)[] ? readonly DeepReadonly<Item>[]
  : T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> }
  : T;
