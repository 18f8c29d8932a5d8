const BARE = /^[A-Za-z0-9_-]+$/;

/** A key as TOML writes it: bare where it may be, else quoted. */
export function toTomlKey(key: string): string {
  return BARE.test(key) ? key : quote(key);
}

/**
 * A value as TOML writes it, on one line: text, numbers, booleans, dates, lists and tables.
 * @throws {TypeError} null, undefined, and text with half a surrogate pair
 */
export function toTomlValue(value: unknown): string {
  if (typeof value === "string") return quote(value);
  if (typeof value === "boolean") return String(value);
  if (typeof value === "number") return toNumber(value);
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return `[${value.map(toTomlValue).join(", ")}]`;
  if (value === null || typeof value !== "object") throw new TypeError(`TOML has no way to write ${String(value)}`);
  const pairs = Object.entries(value).map(([key, item]) => `${toTomlKey(key)} = ${toTomlValue(item)}`);
  return pairs.length === 0 ? "{}" : `{ ${pairs.join(", ")} }`;
}

function toNumber(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Number.isSafeInteger(value)) return String(value);
  // 1e+21 is a float in TOML too; a large whole number needs a mark to be one
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

function quote(text: string): string {
  if (!text.isWellFormed()) throw new TypeError("TOML cannot hold text with half a surrogate pair");
  // JSON's escapes are all known to TOML, which also wants DEL escaped
  return JSON.stringify(text).replaceAll("\x7f", "\\u007f");
}
