import type { CommandContainment, SandboxMode } from "./containment.ts";
import type { NamedFile } from "./named_files.ts";
import type { Aftermath } from "./prepare_command.ts";
import type { OutputPart } from "./output_ring.ts";
import type { ProcessInfo } from "./process_table.ts";
import type { CommandResult } from "./run_command.ts";
import type { ArgumentScope } from "./screen_arguments.ts";

/** Programs for tools: the only way a tool starts one (docs/design/paths_and_commands.md "Commands"). */
export interface Processes {
  /** How commands are contained under this setting; waits for the first look alone, at most 10 s. */
  containment(sandbox: SandboxMode): Promise<CommandContainment>;
  /**
   * Checks that a command could be run: it is there, its arguments name nothing that they may not, and it can be contained as the
   * setting says. Runs nothing.
   * @throws {ToolError} `unsupported_platform`, `command_not_found`, `sandbox_unavailable`, and those of `screenArguments`
   */
  screen(request: Pick<ProcessRequest, "words" | "scope" | "sandbox">): Promise<void>;
  /** Looks at the files of the workspace that the arguments name. @throws {CancelError} when the signal aborts */
  named(
    request: Pick<ProcessRequest, "words" | "signal"> & { readonly scope: Pick<ArgumentScope, "workspaceRoot"> },
  ): Promise<readonly NamedFile[]>;
  /**
   * Runs one command in the workspace and waits for its end.
   * @throws {ToolError} as `screen`, and `command_not_started`, `command_not_noted`, `quarantine_full`
   * @throws {CancelError} when the signal aborts or the gateway closes; nothing of the command is left running
   */
  run(request: CommandRequest): Promise<ProcessResult>;
  /**
   * Starts a process that runs on until it ends, is killed, or the gateway closes.
   * @throws {ToolError} as `run`, and `too_many_processes`
   * @throws {CancelError} as `run`, before anything is started
   */
  start(
    request: ProcessRequest & { readonly maxProcesses: number; readonly owner: ProcessInfo["owner"] },
  ): Promise<ProcessInfo>;
  /** Those that run, and the last that ended, by their start */
  list(): readonly ProcessInfo[];
  /** @throws {ToolError} `process_not_found` */
  get(id: string): ProcessInfo;
  /**
   * What a process wrote, both streams as they came.
   * @param options.offset bytes from the first one ever written
   * @throws {ToolError} `process_not_found`
   */
  output(
    id: string,
    options: { readonly offset: number; readonly maxBytes: number },
  ): OutputPart;
  /** Kills a process with all it started, and waits for its end. @throws {ToolError} `process_not_found` */
  kill(id: string): Promise<ProcessInfo>;
  /** Kills what an earlier gateway on this data directory left; only with its lock. @returns how many */
  killLeftovers(): Promise<number>;
  /**
   * Moves what the commands of a killed gateway made under protected names into quarantine; with the lock, once its processes are gone
   * and before the first command. Names that a person made there in the meantime are moved too.
   */
  lookAfterKill(): Promise<Aftermath>;
  /** Kills what runs and waits for it. Later calls throw a CancelError. Repeating it does nothing */
  close(): Promise<void>;
}

export interface ProcessRequest {
  /** The command, a bare name that the caller has found allowed, and its arguments */
  readonly words: readonly string[];
  readonly scope: ArgumentScope;
  /** `auto`: uncontained only where there is no sandbox at all; `require`: refused there; `off`: never contained */
  readonly sandbox: SandboxMode;
  /** Kept: of each stream by `run`, of both together by `start` */
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
}

export interface CommandRequest extends ProcessRequest {
  readonly timeoutMs: number;
  /** Default: the words are the model's, and are screened */
  readonly composed?: ComposedCommand;
}

/**
 * Of a command that Postern itself has put together, each word of it checked: nothing is screened or hidden, and it is asked to
 * stop before it is killed.
 */
export interface ComposedCommand {
  /** Variables beside the fixed ones; they win */
  readonly env: Readonly<Record<string, string>>;
  /** false: inside the sandbox it has none */
  readonly network: boolean;
  /** false: inside the sandbox it can only read the workspace */
  readonly writes: boolean;
}

export interface ProcessResult extends CommandResult, Aftermath {
  /** It ran inside the sandbox, where a signal is the exit code 128 + its number */
  readonly contained: boolean;
}
