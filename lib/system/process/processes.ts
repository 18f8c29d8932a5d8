import type { CommandResult } from "./run_command.ts";
import type { Containment } from "./sandbox.ts";
import type { ArgumentScope } from "./screen_arguments.ts";

/** Programs for tools: the only way a tool starts one (DESIGN.md section 8, "Processes"). */
export interface Processes {
  /** Whether commands can be contained here; tried once */
  containment(): Promise<Containment>;
  /**
   * Runs one command in the workspace and waits for its end.
   * @throws {ToolError} `unsupported_platform`, `command_not_found`, `sandbox_unavailable`, `command_not_started`, and those
   * of `screenArguments`
   * @throws {CancelError} when the signal aborts or the gateway closes; nothing of the command is left running
   */
  run(request: ProcessRequest): Promise<ProcessResult>;
  /** Kills what runs and waits for it. Later calls of `run` throw a CancelError. Repeating it does nothing */
  close(): Promise<void>;
}

export interface ProcessRequest {
  /** The command, a bare name that the caller has found allowed, and its arguments */
  readonly words: readonly string[];
  readonly scope: ArgumentScope;
  /** `auto`: contained where that works; `require`: refused elsewhere */
  readonly sandbox: "auto" | "require" | "off";
  readonly timeoutMs: number;
  /** Kept of each stream */
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
}

export interface ProcessResult extends CommandResult {
  /** It ran inside the sandbox, where a signal is the exit code 128 + its number */
  readonly contained: boolean;
}
