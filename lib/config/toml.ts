import { isRecord } from "../base/json.ts";
import { parseTOML } from "confbox/toml";
import { ConfigError } from "../base/errors.ts";

/** A table as it was written: not yet checked. */
export type RawTable = Record<string, unknown>;

/**
 * The tables and values of a TOML text.
 * @param file named in errors
 * @throws {ConfigError} `config_syntax` with line and column; the offending line itself is not quoted, it may hold a secret
 */
export function parseToml(text: string, file: string): RawTable {
  try {
    return parseTOML<RawTable>(withoutMark(text));
  } catch (cause) {
    const { line, column, reason } = tomlFault(cause, text);
    throw new ConfigError(
      "config_syntax",
      `Cannot read the configuration (${file}:${line}:${column}): it is not valid TOML, ${reason}`,
      { file, line },
    );
  }
}

/** Way out for a Windows path in double quotes, where a backslash begins an escape. */
export const USE_SINGLE_QUOTES = "write a Windows path in single quotes, such as 'C:\\notes'";

/** Place and reason of an error that the TOML parser threw for a text, in the parser's words. Quotes nothing of the text. */
export function tomlFault(
  error: unknown,
  text: string,
): { readonly line: number; readonly column: number; readonly reason: string } {
  // The parser's class, which it does not export
  const { line = 1, column = 1, message } = error as { line?: number; column?: number; message: string };
  const [first = ""] = message.split("\n", 1);
  const reason = first.replace(/^Invalid TOML document: /, "").slice(0, 200);
  const hasPath = /"(?:[A-Za-z]:\\|\\\\)/.test(text.split("\n", line)[line - 1] ?? "");
  return { line, column, reason: hasPath ? `${reason}; ${USE_SINGLE_QUOTES}` : reason };
}

/** Text without a leading byte order mark. */
export function withoutMark(text: string): string {
  return text.startsWith("\uFEFF") ? text.slice(1) : text;
}

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

const PART = /\s*(?:"((?:[^"\\]|\\["\\])*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(\.|$)/y;

/** Where a value stands: table names from the outside in, then the key; items of a list by their index from 0. */
export type KeyPath = readonly (string | number)[];

/** A path as people write it: `gateway.port`, `tools."my.tool".access`. */
export function toKeyText(path: KeyPath): string {
  return path.map((part) => (BARE.test(String(part)) ? String(part) : JSON.stringify(part))).join(".");
}

/** The parts of `gateway.port` or `tools."my.tool".access`; undefined when the text is no key. */
export function parseKeyText(text: string): readonly string[] | undefined {
  const parts: string[] = [];
  // A copy: a sticky expression remembers where it is
  const part = new RegExp(PART);
  for (;;) {
    const match = part.exec(text);
    if (match === null) return undefined;
    parts.push(match[1]?.replace(/\\(["\\])/g, "$1") ?? match[2] ?? match[3] ?? "");
    if (match[4] === "") return parts;
  }
}

/** Tells whether a key is written in these tables. Items of lists are no keys. */
export function hasKey(table: Readonly<Record<string, unknown>>, path: KeyPath): boolean {
  let value: unknown = table;
  for (const part of path) {
    if (!isRecord(value) || !Object.hasOwn(value, part)) return false;
    value = value[part];
  }
  return true;
}
