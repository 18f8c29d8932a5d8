import { existsSync } from "node:fs";
import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { lazily } from "../../base/lazily.ts";
import { createSystemRandom, type Random } from "../../base/random.ts";
import type { RedactPart } from "../../base/redact.ts";
import type { CommandRequest, ProcessRequest, ProcessResult } from "./command_request.ts";
import type { CommandLookup } from "./command_lookup.ts";
import type { OutputPart } from "./command_output.ts";
import {
  type CommandContainment,
  type Containment,
  containmentOf,
  createContainmentFinder,
  type SandboxMode,
} from "./containment.ts";
import { killLeftovers } from "./leftover_processes.ts";
import type { PreparedCommand } from "./prepare_command.ts";
import type { Aftermath } from "./quarantine.ts";
import { createProcessTable, type ProcessInfo } from "./process_table.ts";
import type { CommandResult } from "./run_command.ts";
import type { ArgumentScope, NamedFile, ScreenOptions } from "./screen_arguments.ts";

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
  /** Returns the processes that run and the last that ended, in the order of their start. */
  list(): readonly ProcessInfo[];
  /** Returns one process. @throws {ToolError} `process_not_found` */
  get(id: string): ProcessInfo;
  /**
   * Returns what a process wrote, both streams as they came.
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

export interface ProcessesOptions extends ScreenOptions {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  /** The same at each start on one data directory and no other: what a killed gateway leaves is found by it. No secret */
  readonly marker: string;
  /** Absolute path of the folder where protected names go that appear while a command runs; made when one does */
  readonly quarantine: string;
  /** Absolute path of the folder for notes of the commands that run; made with the first one */
  readonly notes: string;
  /** Default: the operating system's */
  readonly random?: Random;
  /** Told what was moved there, or could not be. Default: nobody is */
  readonly onQuarantine?: (found: Aftermath) => void;
  /** Masks secrets in the output of the model's commands. Default: nothing is masked */
  readonly redact?: RedactPart;
  /** Told of each look for bubblewrap. Default: nobody is */
  readonly onLook?: (found: Containment) => void;
}

/** Time that a composed command gets to remove its lock files after it is told to stop. */
const GRACE_MS = 1000;

/** Programs for tools. Nothing is started before the first call. */
export function createProcesses(options: ProcessesOptions): Processes {
  const { commands, clock, marker } = options;
  const closing = new AbortController();
  const working = new Set<Promise<unknown>>();
  const table = createProcessTable(clock, options.redact);
  const finder = createContainmentFinder({ commands, clock, signal: closing.signal, onLook: options.onLook });
  const preparing = lazily(async () => {
    const [
      { createPreparation, requireStarted },
      { runCommand },
      { createSurveys },
      { createQuarantine },
      { createCallNotes },
    ] = await Promise.all([
      import("./prepare_command.ts"),
      import("./run_command.ts"),
      import("./surveys.ts"),
      import("./quarantine.ts"),
      import("./call_notes.ts"),
    ]);
    const surveys = createSurveys({ clock });
    const random = options.random ?? createSystemRandom();
    const quarantine = createQuarantine({ folder: options.quarantine, clock, random });
    const notes = createCallNotes({ folder: options.notes, random });
    const preparation = createPreparation({ ...options, containment: finder, surveys, quarantine, notes });
    return { ...preparation, requireStarted, runCommand, surveys };
  });

  /** Returns what was found after a command. Tells `onQuarantine` when protected names appeared or nobody could look for them. */
  const afterOf = async ({ after }: PreparedCommand): Promise<Aftermath> => {
    const found = await after();
    if (found.quarantined.length > 0 || found.unchecked) options.onQuarantine?.(found);
    return found;
  };

  /** `close()` waits for it. */
  const track = <T>(work: Promise<T>): Promise<T> => {
    const settled = work.catch(() => {}).finally(() => working.delete(settled));
    working.add(settled);
    return work;
  };

  const run: Processes["run"] = async (request) => {
    const { prepare, requireStarted, runCommand } = await preparing();
    const prepared = await prepare(request);
    const { line, contained } = prepared;
    const { timeoutMs, maxOutputBytes, composed } = request;
    const signal = AbortSignal.any([request.signal, closing.signal]);
    const graceMs = composed === undefined ? 0 : GRACE_MS;
    // A composed command is read by Postern itself, before the model gets anything of it
    const redact = composed === undefined ? options.redact : undefined;
    let result: CommandResult;
    try {
      result = await runCommand(line, { timeoutMs, maxOutputBytes, signal, clock, redact, graceMs });
    } catch (error) {
      // Cancelled: what it had done until then is looked at all the same
      await afterOf(prepared);
      throw error;
    }
    const after = await afterOf(prepared);
    if (contained) requireStarted(request.words, result);
    return { ...result, contained, ...after };
  };

  const start: Processes["start"] = async (request) => {
    const prepared = await (await preparing()).prepare(request);
    const { line, contained } = prepared;
    const { words, owner, maxProcesses, maxOutputBytes } = request;
    const signal = AbortSignal.any([request.signal, closing.signal]);
    const onEnd = () => afterOf(prepared);
    try {
      if (signal.aborted) throw cancelError(signal);
      return await table.start(line, { words, contained, owner, maxProcesses, maxOutputBytes, onEnd });
    } catch (error) {
      await prepared.drop();
      throw error;
    }
  };

  const lookAfterKill = async (): Promise<Aftermath> => {
    if (!existsSync(options.notes)) return { quarantined: [], unchecked: false };
    const { leftNotes } = await import("./call_notes.ts");
    const left = await leftNotes(options.notes);
    return left.length === 0 ? { quarantined: [], unchecked: false } : await (await preparing()).afterKill(left);
  };

  const containment: Processes["containment"] = async (sandbox) =>
    containmentOf(sandbox, sandbox === "off" ? undefined : await finder.known());

  return {
    containment: (sandbox) => track(containment(sandbox)),
    screen: async (request) => await (await preparing()).screen(request),
    async named({ words, scope, signal }) {
      const { namedFiles } = await import("./screen_arguments.ts");
      return await namedFiles(words.slice(1), { workspaceRoot: scope.workspaceRoot, signal });
    },
    run: (request) => track(run(request)),
    start: (request) => track(start(request)),
    list: table.list,
    get: table.get,
    output: table.output,
    kill: table.kill,
    killLeftovers: () => killLeftovers(marker),
    lookAfterKill: () => track(lookAfterKill()),
    async close() {
      closing.abort(new CancelError("shutdown"));
      await Promise.all(working);
      await table.killAll();
      await (await preparing.made())?.surveys.close();
    },
  };
}
