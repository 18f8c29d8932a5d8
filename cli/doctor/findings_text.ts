import { harmlessLine } from "../terminal/terminal_text.ts";
import type { Finding, FindingState } from "./finding.ts";

export interface FindingsTextOptions {
  /** Characters of a line; undefined: nothing is wrapped */
  readonly columns: number | undefined;
  readonly colour: boolean;
}

/** Bold red, yellow and green. Source: ECMA-48 "SGR" */
const COLOURS: Readonly<Record<FindingState, string>> = { ok: "32", warning: "33", failure: "1;31" };
const STATE_WIDTH = "failure".length;
/** Narrower, messages stand below their names */
const LEAST_MESSAGE_WIDTH = 36;

/** Findings for people: a line each, and below it the command that mends it; wrapped by words where a width is given. */
export function findingsText(findings: readonly Finding[], { columns, colour }: FindingsTextOptions): string {
  const nameWidth = Math.max(0, ...findings.map(({ name }) => harmlessLine(name).length));
  const indent = STATE_WIDTH + nameWidth + 4;
  const isNarrow = columns !== undefined && columns - indent < LEAST_MESSAGE_WIDTH;
  const margin = isNarrow ? 2 : indent;
  const width = columns === undefined ? Number.POSITIVE_INFINITY : Math.max(1, columns - margin);
  const lines = findings.flatMap(({ name, state, message, fix }) => {
    const painted = paint(state.padEnd(STATE_WIDTH), colour ? COLOURS[state] : undefined);
    const shown = harmlessLine(name);
    const heading = `${painted}  ${isNarrow ? shown : shown.padEnd(nameWidth)}`;
    const [first = "", ...more] = wrap(harmlessLine(message), width);
    const fixed = fix === null ? [] : wrap(`-> ${harmlessLine(fix)}`, width);
    const below = [...more, ...fixed].map((line) => " ".repeat(margin) + line);
    return isNarrow ? [heading, " ".repeat(margin) + first, ...below] : [`${heading}  ${first}`, ...below];
  });
  return `${lines.join("\n")}\n\n${summary(findings)}`;
}

/** How many of each, as `3 ok, 1 warning`. */
function summary(findings: readonly Finding[]): string {
  const count = (state: FindingState) => findings.filter((finding) => finding.state === state).length;
  const [warnings, failures] = [count("warning"), count("failure")];
  const parts = [
    `${count("ok")} ok`,
    ...(warnings === 0 ? [] : [`${warnings} ${warnings === 1 ? "warning" : "warnings"}`]),
    ...(failures === 0 ? [] : [`${failures} ${failures === 1 ? "failure" : "failures"}`]),
  ];
  return parts.join(", ");
}

function paint(text: string, code: string | undefined): string {
  return code === undefined ? text : `\u001b[${code}m${text}\u001b[0m`;
}

/** Lines of at most `width` characters, broken between words; a longer word is broken where it must. */
function wrap(text: string, width: number): readonly string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = "";
    }
    line = line === "" ? word : `${line} ${word}`;
    while (line.length > width) {
      lines.push(line.slice(0, width));
      line = line.slice(width);
    }
  }
  return [...lines, line];
}
