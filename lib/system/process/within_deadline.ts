import { readFileSync } from "node:fs";
import process from "node:process";
import type { Clock } from "../../base/clock.ts";
import { effectRight } from "../../base/effect_right.ts";
import type { CommandLine } from "./process_group.ts";

/** Exit code of a program that was not started any more: EX_TEMPFAIL of sysexits.h */
export const TOO_LATE = 75;

/**
 * Compares the time of the machine with the deadline, in hundredths of a second, and becomes the command. A file that cannot be read gives
 * no number, and the command does not start. The shell leaves no variable of its own behind.
 */
const PROGRAM = 'read -r up rest < /proc/uptime; up="${up%.*}${up#*.}"; ' +
  'if [ "$up" -le "$0" ]; then unset up rest PWD OLDPWD SHLVL; exec "$@"; fi; ' +
  'echo "Not started: the gateway stood still until others could take its work over" >&2; ' +
  `exit ${TOO_LATE}`;

/**
 * Returns a command line that starts its program until a deadline, and ends with `TOO_LATE` after it.
 *
 * A gateway looks at its deadline and then starts the program. A process that is paused between the two goes on from there, however late it
 * is: so the started process looks again by itself. Linux alone: elsewhere the line is returned as it is.
 * @param leftMs milliseconds until the deadline, from now on
 */
export function withinDeadline(line: CommandLine, leftMs: number): CommandLine {
  const now = uptime();
  if (now === undefined) return line;
  const deadline = now + Math.floor(leftMs / 10);
  return { ...line, file: "/bin/sh", args: ["-c", PROGRAM, String(deadline), line.file, ...line.args] };
}

/**
 * Resolves with the line to start when the work at hand may have effects, see `effectRight`.
 * @throws {CancelError} when it may not any more
 */
export async function whenItMayBegin(line: CommandLine, clock: Pick<Clock, "monotonic">): Promise<CommandLine> {
  const right = effectRight();
  if (right === undefined) return line;
  await right.mayAct();
  return withinDeadline(line, right.deadline() - clock.monotonic());
}

/** Returns the time since the machine was started, with the time that it was suspended, in hundredths of a second. Undefined: it tells none */
function uptime(): number | undefined {
  if (process.platform !== "linux") return undefined;
  try {
    const [text = ""] = readFileSync("/proc/uptime", "utf8").split(" ");
    return Math.round(100 * Number(text));
  } catch {
    return undefined;
  }
}
