import { harmlessLine } from "./terminal_text.ts";

/** Rows under a heading in columns as wide as their widest cell; the last column is not padded. */
export function toTable(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [heading, ...rows.map((row) => row.map(harmlessLine))];
  const widths = heading.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all.map((row) =>
    row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join("  ")
  ).join("\n");
}
