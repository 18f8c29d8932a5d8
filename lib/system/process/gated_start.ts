import { needsEffectRight, untilEffectMayBegin } from "../../base/effect_right.ts";
import { type CommandLine, type ProcessGroup, startGroup } from "./process_group.ts";

/**
 * Waits for a line on its input, and becomes the command, whose input is empty. A gateway that is gone closes the input, and the command never
 * begins. The shell leaves no variable of its own behind.
 */
const GATE = 'read -r go || exit 1; unset go PWD OLDPWD SHLVL; exec "$@" < /dev/null';

/**
 * Starts a program, which begins once the work at hand may have effects, see `untilEffectMayBegin`.
 *
 * To start a process takes milliseconds, and a gateway that is paused meanwhile goes on from there however late it is. So the process is
 * started first and waits behind a gate, and the right is asked for when nothing is left to do but to open it.
 * @param line without an input
 * @throws {ToolError} `command_not_started`; {CancelError} when the right is lost or the signal aborts first: the program has not begun
 */
export async function startWithRight(line: CommandLine, signal: AbortSignal): Promise<ProcessGroup> {
  if (!needsEffectRight()) return startGroup(line);
  const group = startGroup(behindGate(line));
  try {
    await untilEffectMayBegin(signal);
  } catch (error) {
    group.kill();
    throw error;
  }
  group.stdin?.end("\n");
  return group;
}

/** Returns the line of a program that waits for a line on its input, and then begins. */
export function behindGate(line: CommandLine): CommandLine {
  return { ...line, file: "/bin/sh", args: ["-c", GATE, "sh", line.file, ...line.args], hasInput: true };
}
