import { exactLine } from "../../lib/base/text.ts";

// deno-lint-ignore no-control-regex -- these are the characters to escape
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** Escapes control characters, except tab and newline: text from a model, a tool or a client must not drive the terminal. */
export function printable(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(
    CONTROL,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}

/** Escapes control characters and newlines, so that the text stays on one line. */
export function printableLine(text: string): string {
  return printable(text).replaceAll("\n", "\\n");
}

/**
 * Returns rows under a heading, in columns as wide as their widest cell. The last column is not padded.
 *
 * Spells out invisible characters: a mark in a label or path that turns the line around would show another record than there is.
 */
export function toTable(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [heading, ...rows.map((row) => row.map(exactLine))];
  const widths = heading.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all.map((row) =>
    row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join("  ")
  ).join("\n");
}
