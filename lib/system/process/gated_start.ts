import { mayHaveEffectNow, needsEffectRight } from "../../base/effect_right.ts";
import { type CommandLine, type ProcessGroup, startGroup } from "./process_group.ts";

/** Error of a program that did not begin, since it was not sure any more that the work at hand may have effects: prepare it again. */
export class RightUncertain extends Error {
  override readonly name = "RightUncertain";
}

/** Waits for a line on its input, and becomes the command, whose input is empty. A gateway that is gone closes the input, and nothing begins. */
const GATE = 'read -r go || exit 1; unset go PWD OLDPWD SHLVL; exec "$@" < /dev/null';

/**
 * Starts a program if the work at hand may have effects, see `untilEffectMayBegin`.
 *
 * To start a process takes milliseconds, and a gateway that is paused meanwhile goes on from there however late it is. So the process is
 * started first and waits behind a gate, and the right is looked at when nothing is left to do but to open it. Where `/bin/sh` is bash, the
 * program has `SHLVL` and `_` among its variables.
 * @param line without an input
 * @throws {ToolError} `command_not_started`; {RightUncertain} the program has not begun
 */
export function startWithRight(line: CommandLine): ProcessGroup {
  if (!needsEffectRight()) return startGroup(line);
  const group = startGroup(behindGate(line));
  if (!mayHaveEffectNow()) {
    group.kill();
    throw new RightUncertain("The lease of this gateway ran out while the program was prepared");
  }
  group.stdin?.end("\n");
  return group;
}

/** Returns the line of a program that waits for a line on its input, and then begins. */
export function behindGate(line: CommandLine): CommandLine {
  return { ...line, file: "/bin/sh", args: ["-c", GATE, "sh", line.file, ...line.args], hasInput: true };
}
