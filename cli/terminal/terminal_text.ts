import { exactLine } from "../../lib/base/exact_text.ts";

// deno-lint-ignore no-control-regex -- these are the characters to be made harmless
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** Text from a model, a tool or a client without what a terminal would obey: control characters but tab and newline are spelt out. */
export function harmless(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(
    CONTROL,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}

/** The same on one line: newlines are spelt out too. */
export function harmlessLine(text: string): string {
  return harmless(text).replaceAll("\n", "\\n");
}

/**
 * Rows under a heading in columns as wide as their widest cell; the last column is not padded. Characters that a person would not see
 * are spelled out: a label or path with a mark that turns the line around would show another record than there is.
 */
export function toTable(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [heading, ...rows.map((row) => row.map(exactLine))];
  const widths = heading.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all.map((row) =>
    row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join("  ")
  ).join("\n");
}
