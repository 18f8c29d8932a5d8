import type { StatusReply } from "../../lib/base/records/gateway_status.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import type { ControlRecord } from "../../lib/host/control_file.ts";
import type { Health } from "../../lib/host/daemon/daemon_state.ts";
import type { CommandContext } from "../command.ts";
import { paint, printableLine, type TextColour, wrapText } from "../terminal/terminal_text.ts";

/** State of a finding. `warning`: works, but not as well as possible or not safely. `failure`: something does not work. */
export type FindingState = "ok" | "warning" | "failure";

/** Result of one check. */
export interface Finding {
  /** Name of the thing that was checked, such as `data directory` */
  readonly name: string;
  readonly state: FindingState;
  /** Sentence of one line, without a full stop */
  readonly message: string;
  /** Command that mends the problem, or what a person must do. Null: nothing to do */
  readonly fix: string | null;
}

/** Facts that a running gateway reports. */
export interface RunningFacts {
  readonly record: ControlRecord;
  readonly health: Health;
  /** Status of the gateway. Undefined when it does not answer */
  readonly status: StatusReply | undefined;
}

/** Installation that the checks examine. */
export interface Installation {
  readonly context: CommandContext;
  readonly loaded: LoadedConfig;
  /** Gateway that runs on the data directory, whoever started it. Undefined when none runs */
  readonly running: RunningFacts | undefined;
  /** Takes a secret that must be masked in all findings */
  readonly addSecret: (secret: string) => void;
}

/** Check of one thing, which changes nothing. An error that it throws is a failure of this check alone. */
export interface Check {
  readonly name: string;
  /** Time after which the check counts as failed, in ms. Default 15,000 */
  readonly limitMs?: number;
  readonly run: (installation: Installation) => Promise<Finding | readonly Finding[]>;
}

/** Returns the finding that all is well. */
export function fine(name: string, message: string): Finding {
  return { name, state: "ok", message, fix: null };
}

/** Returns a warning. @param fix command that mends the problem, or what to do */
export function warning(name: string, message: string, fix: string): Finding {
  return { name, state: "warning", message, fix };
}

/** Returns a failure. @param fix command that mends the problem, or what to do */
export function failure(name: string, message: string, fix: string): Finding {
  return { name, state: "failure", message, fix };
}

const COLOURS: Readonly<Record<FindingState, TextColour>> = { ok: "green", warning: "yellow", failure: "red" };
const STATE_WIDTH = "failure".length;
/** Least width of the column of messages. In a narrower terminal each message stands below its name */
const LEAST_MESSAGE_WIDTH = 36;

/** Returns the findings for people: a line each, with the fix below it, and the counts at the end. Wraps between words where a width is given. */
export function findingsText(findings: readonly Finding[], { columns, colour }: {
  /** Width of the terminal, in characters. Undefined: lines are not wrapped */
  readonly columns: number | undefined;
  readonly colour: boolean;
}): string {
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
