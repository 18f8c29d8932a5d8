import fastStringWidth from "fast-string-width";
import { exactLine } from "../../lib/base/text.ts";
import type { CliIo } from "../command.ts";

// deno-lint-ignore no-control-regex -- these are the characters to escape
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** Escapes control characters, except tab and newline: text from a model, a tool or a client must not drive the terminal. */
export function printable(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(
    CONTROL,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}

/** Most lines, which show what they hold. */
const PLAIN = /^[\t\x20-\x7e]*$/;

/** Escapes control characters and newlines, so that the text stays on one line, and spells out what nobody sees or what turns the line around. */
export function printableLine(text: string): string {
  return PLAIN.test(text) ? text : exactLine(printable(text));
}

/** Characters beyond which a line is wider than any terminal, and is not measured. */
const MAX_MEASURED = 1_000;

/** Returns the columns of a terminal that a line takes: 2 for a wide character, none for one that is drawn over another. */
function widthOf(line: string): number {
  return line.length > MAX_MEASURED || PLAIN.test(line) ? line.length : fastStringWidth(line);
}

function padEnd(line: string, width: number): string {
  return line + " ".repeat(Math.max(0, width - widthOf(line)));
}

/** Narrowest column that words are wrapped in. With less room, the text stands below its name. */
const LEAST_COLUMN = 20;
/** Blanks between two columns. */
const GAP = "  ";

/**
 * Breaks a text between words into lines of at most `width` columns. Its own lines and their indents stay. A word that is longer
 * than a line stays whole: the terminal breaks it, and it can still be copied as one.
 * @param width columns of the terminal. Undefined: only the text's own newlines break it
 */
export function wrapText(text: string, width: number | undefined): readonly string[] {
  const lines = text.split("\n");
  return width === undefined ? lines : lines.flatMap((line) => wrapLine(line, width));
}

function wrapLine(text: string, width: number): readonly string[] {
  const indent = /^ */.exec(text)?.[0] ?? "";
  const lines: string[] = [];
  let line: string | undefined;
  let taken = 0;
  for (const word of text.slice(indent.length).split(" ")) {
    taken += 1 + widthOf(word);
    if (line !== undefined && taken > width) {
      lines.push(line);
      line = undefined;
    }
    if (line === undefined) taken = indent.length + widthOf(word);
    line = line === undefined ? `${indent}${word}` : `${line} ${word}`;
  }
  return [...lines, line ?? ""];
}

/**
 * Returns names, each with its meaning beside it, indented by two blanks. A meaning is wrapped in its column or, where the terminal is
 * too narrow for that, stands below its name.
 * @param columns width of the terminal in columns. Undefined: nothing is wrapped
 */
export function toDefinitions(rows: readonly (readonly [string, string])[], columns: number | undefined): string {
  const width = Math.max(0, ...rows.map(([name]) => widthOf(name)));
  const margin = GAP.length + width + GAP.length;
  const isNarrow = columns !== undefined && columns - margin < LEAST_COLUMN;
  return rows.map(([name, meaning]) => {
    if (isNarrow) return [`${GAP}${name.trimEnd()}`, ...indented(wrapText(meaning, columns - 4), 4)].join("\n");
    const [first = "", ...more] = wrapText(meaning, columns === undefined ? undefined : columns - margin);
    return [`${GAP}${padEnd(name, width)}${GAP}${first}`.trimEnd(), ...indented(more, margin)].join("\n");
  }).join("\n");
}

function indented(lines: readonly string[], count: number): readonly string[] {
  return lines.map((line) => " ".repeat(count) + line);
}

/**
 * Returns rows under a heading, in columns as wide as their widest cell. In a terminal that is too narrow the last column is wrapped;
 * without room for that, the columns that fit stay, and the other cells of each row stand below it with their names.
 *
 * Spells out invisible characters: a mark in a label or path that turns the line around would show another record than there is.
 * @param columns width of the terminal in columns. Undefined: the table is as wide as its cells
 */
export function toTable(
  heading: readonly string[],
  rows: readonly (readonly string[])[],
  columns: number = Number.POSITIVE_INFINITY,
): string {
  const shown = rows.map((row) => row.map(exactLine));
  const widths = heading.map((name, column) =>
    Math.max(widthOf(name), ...shown.map((row) => widthOf(row[column] ?? "")))
  );
  const last = heading.length - 1;
  const room = columns - startOf(widths, last);
  if (room >= Math.min(LEAST_COLUMN, widths[last] ?? 0)) {
    return [heading, ...shown].flatMap((row) => {
      const [first, ...more] = wrapText(row[last] ?? "", room);
      return [toLine([...row.slice(0, last), first ?? ""], widths), ...indented(more, columns - room)];
    }).join("\n");
  }
  const overflow = widths.findIndex((width, column) => startOf(widths, column) + width > columns);
  const fitting = Math.max(1, overflow);
  return [
    toLine(heading.slice(0, fitting), widths),
    ...shown.flatMap((row) => [
      toLine(row.slice(0, fitting), widths),
      ...toCells(heading.slice(fitting), row.slice(fitting), columns),
    ]),
  ].join("\n");
}

/** Returns the place in the line where a column begins. */
function startOf(widths: readonly number[], column: number): number {
  return widths.slice(0, column).reduce((sum, width) => sum + width + GAP.length, 0);
}

function toLine(cells: readonly string[], widths: readonly number[]): string {
  return cells.map((cell, column) => padEnd(cell, widths[column] ?? 0)).join(GAP).trimEnd();
}

/** Returns the cells that hold something, each with its name. */
function toCells(names: readonly string[], cells: readonly string[], columns: number): readonly string[] {
  const width = Math.max(...names.map(widthOf));
  const filled = cells.flatMap((cell, i) => (cell === "" ? [] : [[padEnd(names[i] ?? "", width), cell] as const]));
  return filled.length === 0 ? [] : [toDefinitions(filled, columns)];
}

/** Returns the width of the terminal that messages go to, in columns. Undefined where stderr is no terminal. */
export function messageColumns({ isTerminal, columns }: Pick<CliIo, "isTerminal" | "columns">): number | undefined {
  return isTerminal.stderr ? columns : undefined;
}

/** Codes of colours. Source: ECMA-48 "SGR" */
const COLOURS = { green: "32", yellow: "33", red: "1;31" } as const;
/** TextColour that a terminal is asked to draw in. */
export type TextColour = keyof typeof COLOURS;

/** Returns a text in a colour. Undefined: as it is. */
export function paint(text: string, colour: TextColour | undefined): string {
  return colour === undefined ? text : `\u001b[${COLOURS[colour]}m${text}\u001b[0m`;
}

/** Tells whether a stream may be written to in colour: a terminal, with neither `NO_COLOR` nor `TERM=dumb`. */
export function takesColour(
  { isTerminal, env }: Pick<CliIo, "isTerminal" | "env">,
  stream: "stdout" | "stderr",
): boolean {
  return isTerminal[stream] && (env["NO_COLOR"] ?? "") === "" && env["TERM"] !== "dumb";
}
