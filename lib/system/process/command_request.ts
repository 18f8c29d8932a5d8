import type { SandboxMode } from "./containment.ts";
import type { Aftermath } from "./quarantine.ts";
import type { CommandResult } from "./run_command.ts";
import type { ArgumentScope } from "./screen_arguments.ts";

/** A program that a tool starts. */
export interface ProcessRequest {
  /** The command, a bare name that the caller has found allowed, and its arguments */
  readonly words: readonly string[];
  readonly scope: ArgumentScope;
  /** `auto`: uncontained only where there is no sandbox at all; `require`: refused there; `off`: never contained */
  readonly sandbox: SandboxMode;
  /** Bytes of output that are kept: of each stream by `run`, of both streams together by `start`. */
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
}

/** A command that a tool starts and waits for. */
export interface CommandRequest extends ProcessRequest {
  readonly timeoutMs: number;
  /** Default: the words are the model's, and are screened */
  readonly composed?: ComposedCommand;
}

/**
 * Settings of a command that Postern itself has put together, each word of it checked. Nothing is screened or hidden, and the command
 * is asked to stop before it is killed.
 */
export interface ComposedCommand {
  /** Variables beside the fixed ones; they win */
  readonly env: Readonly<Record<string, string>>;
  /** True when it has a network inside the sandbox. */
  readonly network: boolean;
  /** True when it may write to the workspace inside the sandbox. */
  readonly writes: boolean;
}

/** The end of a command, with its output and with the protected names that it made. */
export interface ProcessResult extends CommandResult, Aftermath {
  /** True when it ran inside the sandbox, where a signal shows as the exit code 128 + its number. */
  readonly contained: boolean;
}
