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
    const { line, column, message } = cause as { line?: number; column?: number; message: string };
    const reason = message.split("\n", 1)[0]?.replace(/^Invalid TOML document: /, "");
    const place = `${file}:${line ?? 1}:${column ?? 1}`;
    throw new ConfigError(
      "config_syntax",
      `Cannot read the configuration (${place}): it is not valid TOML, ${reason}`,
      { file, line },
    );
  }
}

/** Text without a leading byte order mark. */
export function withoutMark(text: string): string {
  return text.startsWith("\uFEFF") ? text.slice(1) : text;
}
