import { paint, printableLine, type TextColour, wrapText } from "../terminal/terminal_text.ts";
import type { Finding, FindingState } from "./finding.ts";

/** Options of `findingsText`. */
export interface FindingsTextOptions {
  /** Width of the terminal, in characters. Undefined: lines are not wrapped */
  readonly columns: number | undefined;
  readonly colour: boolean;
}

const COLOURS: Readonly<Record<FindingState, TextColour>> = { ok: "green", warning: "yellow", failure: "red" };
const STATE_WIDTH = "failure".length;
/** Least width of the column of messages. In a narrower terminal each message stands below its name */
const LEAST_MESSAGE_WIDTH = 36;

/** Returns the findings for people: a line each, with the fix below it, and the counts at the end. Wraps between words where a width is given. */
export function findingsText(findings: readonly Finding[], { columns, colour }: FindingsTextOptions): string {
  const nameWidth = Math.max(0, ...findings.map(({ name }) => printableLine(name).length));
  const indent = STATE_WIDTH + nameWidth + 4;
  const isNarrow = columns !== undefined && columns - indent < LEAST_MESSAGE_WIDTH;
  const margin = isNarrow ? 2 : indent;
  const width = columns === undefined ? Number.POSITIVE_INFINITY : Math.max(1, columns - margin);
  const lines = findings.flatMap(({ name, state, message, fix }) => {
    const painted = paint(state.padEnd(STATE_WIDTH), colour ? COLOURS[state] : undefined);
    const shown = printableLine(name);
    const heading = `${painted}  ${isNarrow ? shown : shown.padEnd(nameWidth)}`;
    const [first = "", ...more] = wrapText(printableLine(message), width);
    const fixed = fix === null ? [] : wrapText(`-> ${printableLine(fix)}`, width);
    const below = [...more, ...fixed].map((line) => " ".repeat(margin) + line);
    return isNarrow ? [heading, " ".repeat(margin) + first, ...below] : [`${heading}  ${first}`, ...below];
  });
  return `${lines.join("\n")}\n\n${summary(findings)}`;
}

/** Counts the findings by state, such as `3 ok, 1 warning`. */
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
