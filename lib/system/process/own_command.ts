import { isAbsolute } from "node:path";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { untilEffectMayBegin } from "../../base/effect_right.ts";
import { ToolError } from "../../base/errors.ts";
import type { CommandLookup } from "./command_lookup.ts";
import { runCommand } from "./run_command.ts";

const MAX_OUTPUT_BYTES = 65_536;
const TIMEOUT_MS = 10_000;
/** Variables that password managers need to find their store and to ask the person at the screen. */
const INHERITED =
  /^(HOME|USER|LOGNAME|LANG|LC_[A-Z]+|TZ|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|XDG_[A-Z_]+|DBUS_SESSION_BUS_ADDRESS|GNUPGHOME|GPG_TTY|PASSWORD_STORE_DIR|SSH_AUTH_SOCK)$/;

/** Command of the operator's own configuration, and the surroundings that it runs in. */
export interface OwnCommand {
  /** Program, by an absolute path or a bare name, and its arguments */
  readonly words: readonly string[];
  /** The user's home folder, where it runs */
  readonly home: string;
  /** The gateway's environment. The program gets what finds a session and a home, and no variable beside that */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Text on its input, for a command with an effect. Default: there is nothing on it, and it has none */
  readonly input?: string | undefined;
}

/**
 * Runs a command that is in the configuration, outside of the sandbox, and returns what it prints. For the model's commands there is
 * `Processes`: no word of a model may reach this one.
 *
 * The error output of the program is dropped: it may hold a part of the secret.
 * @throws {ToolError} `command_not_found`, `command_failed`
 * @throws {CancelError} when the signal aborts
 */
export async function runOwnCommand(
  { words, home, environment, commands, clock, signal, input }: OwnCommand,
): Promise<string> {
  const [program = "", ...args] = words;
  const file = isAbsolute(program) ? program : await commands.find(program);
  if (file === undefined) throw new ToolError("command_not_found", `Cannot run "${program}": there is no such program`);
  const inherited = Object.entries(environment).filter(([name, value]) => INHERITED.test(name) && value !== undefined);
  const env = { PATH: "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin", ...Object.fromEntries(inherited) };
  // Values of undefined were left out
  const line = { file, args, cwd: home, env: env as Record<string, string> };
  // The gate of programs with effects takes their input, so the right is asked for here
  if (input !== undefined) await untilEffectMayBegin(signal);
  const { ending, stdout } = await runCommand(line, {
    timeoutMs: TIMEOUT_MS,
    maxOutputBytes: MAX_OUTPUT_BYTES,
    ...{ signal, clock, input },
  });
  if (signal.aborted) throw cancelError(signal);
  const hasFailed = ending.kind === "exit" && ending.code !== 0;
  if (ending.kind === "exit" && !hasFailed && !stdout.truncated) return stdout.text;
  const how = hasFailed ? `it ended with status ${ending.code}` : "it printed too much or took too long";
  throw new ToolError("command_failed", `Cannot use the output of "${program}": ${how}`);
}
