import { existsSync } from "node:fs";
import { rmdir } from "node:fs/promises";
import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { untilEffectMayBegin } from "../../base/effect_right.ts";
import { ToolError } from "../../base/errors.ts";
import { lazily, type Lazy } from "../../base/lazily.ts";
import { createSystemRandom, type Random } from "../../base/random.ts";
import type { RedactPart } from "../../base/redact.ts";
import { UNTAINTED } from "../../base/taint.ts";
import type { CommandRequest, CommandResult, ProcessRequest, ProcessResult, runCommand } from "./run_command.ts";
import type { CommandLookup } from "./command_lookup.ts";
import type { Relay } from "../net/relay.ts";
import type { AllowedHosts } from "../net/url_rules.ts";
import type { OutputPart } from "./command_output.ts";
import {
  type CommandContainment,
  type Containment,
  type ContainmentFinder,
  containmentOf,
  type ContainmentSettings,
  createContainmentFinder,
} from "./containment.ts";
import type { Bounds } from "./bounds.ts";
import { killLeftovers, temporaryFolder } from "./leftover_processes.ts";
import { RightUncertain } from "./gated_start.ts";
import type { AnyRequest, Preparation, PreparedCommand } from "./prepare_command.ts";
import type { PreparedProgram, ProgramOptions, ProgramRequest, RunningProgram, WriteWatch } from "./prepare_program.ts";
import type { Aftermath } from "./quarantine.ts";
import { type ProcessInfo, ProcessTable } from "./process_table.ts";
import type { requireStarted, tryBubblewrap } from "./sandbox.ts";
import type { ArgumentScope, NamedFile, ScreenOptions } from "./screen_arguments.ts";
import type { Surveys } from "./surveys.ts";
import type { AfterProgram, TaintedWrites } from "./workspace_watch.ts";

/** Request for a process that runs on. */
export interface StartRequest extends ProcessRequest {
  /** Processes that may run at the same time */
  readonly maxProcesses: number;
  readonly owner: ProcessInfo["owner"];
  readonly startedBy: ProcessInfo["startedBy"];
}

/** Relays of commands. */
export interface ProcessRelays {
  /** Creates a relay that does not listen yet. @param hosts of one program. Default: those of `[url_access] domain_allowlist` */
  readonly create: (hosts?: AllowedHosts) => Promise<Relay>;
  /** Absolute path of the folder for their sockets; made with the first one */
  readonly folder: string;
  /** `[url_access] domain_allowlist` as it is now */
  readonly allowlist: () => readonly string[];
}

/** Place of the protected names that appear while a command runs. */
export interface ProcessQuarantine {
  /** Absolute path of the folder that they are moved to; made with the first one */
  readonly folder: string;
  /** Receives what was moved there, or could not be. Default: nothing is called */
  readonly onFound?: (found: Aftermath) => void;
}

/** Services and places that starting programs needs. */
export interface ProcessesOptions extends ScreenOptions {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  /** The same at each start on one data directory and no other: what a killed gateway leaves is found by it. No secret */
  readonly marker: string;
  /** Id of the gateway in a cluster. Default: the gateway is alone */
  readonly gateway?: string | undefined;
  readonly quarantine: ProcessQuarantine;
  /** Absolute path of the folder for notes of the commands that run; made with the first one */
  readonly notes: string;
  /** Relays of commands with `network = "allowlist"`. Default: such commands are refused */
  readonly relays?: ProcessRelays | undefined;
  /** Receives the files that a command with taint has written. Default: nobody does */
  readonly onTainted?: ((written: TaintedWrites) => Promise<void>) | undefined;
  /** Default: the operating system's */
  readonly random?: Random;
  /** Masks secrets in the output of the model's commands. Default: nothing is masked */
  readonly redact?: RedactPart;
  /** Receives each look for bubblewrap. Default: nobody does */
  readonly onLook?: (found: Containment) => void;
  /** Bounds of contained programs that take the place of this machine's. Default: none */
  readonly bounds?: Partial<Bounds>;
}

/** Time that a composed command gets to remove its lock files after it is told to stop. */
const GRACE_MS = 1000;

/**
 * Programs for tools: the only way a tool starts one (docs/design/paths_and_commands.md "Commands").
 * Nothing is started before the first call.
 */
export class Processes {
  readonly #options: ProcessesOptions;
  readonly #closing = new AbortController();
  /** Work that `close()` waits for */
  readonly #working = new Set<Promise<unknown>>();
  readonly #table: ProcessTable;
  readonly #programs = new Set<RunningProgram>();
  readonly #finder: ContainmentFinder;
  #halted: string | undefined = undefined;
  readonly #runner: Lazy<Promise<CommandRunner>>;

  constructor(options: ProcessesOptions) {
    const { commands, clock, onLook, bounds } = options;
    this.#options = options;
    this.#table = new ProcessTable(clock, options.redact, options.gateway);
    const look: typeof tryBubblewrap = async (given) => await (await import("./sandbox.ts")).tryBubblewrap(given);
    this.#finder = createContainmentFinder({ commands, clock, signal: this.#closing.signal, bounds }, look, onLook);
    this.#runner = lazily(() => loadRunner(options, this.#finder));
  }

  /** How commands are contained under these settings; waits for the first look alone, at most 10 s. */
  containment(settings: ContainmentSettings): Promise<CommandContainment> {
    const known = settings.sandbox === "off" ? Promise.resolve(undefined) : this.#finder.known();
    return this.#track(known.then((found) => containmentOf(settings, found)));
  }

  /**
   * Checks that a command could be run: it is there, its arguments name nothing that they may not, and it can be contained as the
   * setting says. Runs nothing.
   * @throws {ToolError} `unsupported_platform`, `command_not_found`, `sandbox_unavailable`, and those of `screenArguments`
   */
  async screen(request: Pick<ProcessRequest, "words" | "line" | "scope" | "sandbox" | "network">): Promise<void> {
    const { preparation } = await this.#runner();
    await preparation.screen(request);
  }

  /** Looks at the files of the workspace that the arguments name, or those of each part. @throws {CancelError} when the signal aborts */
  async named({ words, line, scope, signal }: Pick<ProcessRequest, "words" | "line" | "signal"> & {
    readonly scope: Pick<ArgumentScope, "workspaceRoot">;
  }): Promise<readonly NamedFile[]> {
    const { namedFiles } = await import("./screen_arguments.ts");
    const named: NamedFile[] = [];
    for (const { args, folders } of line ?? [{ args: words.slice(1), folders: undefined }]) {
      const found = await namedFiles(args, { workspaceRoot: scope.workspaceRoot, folders, signal });
      named.push(...found.filter(({ path }) => !named.some((other) => other.path === path)));
    }
    return named;
  }

  /**
   * Runs one command in the workspace and waits for its end.
   * @throws {ToolError} as `screen`, and `command_not_started`, `command_not_noted`, `quarantine_full`
   * @throws {CancelError} when the signal aborts or the gateway closes; nothing of the command is left running
   */
  run(request: CommandRequest): Promise<ProcessResult> {
    return this.#track(this.#run(request));
  }

  /**
   * Starts a process that runs on until it ends, is killed, or the gateway closes.
   * @throws {ToolError} as `run`, and `too_many_processes`
   * @throws {CancelError} as `run`, before anything is started
   */
  start(request: StartRequest): Promise<ProcessInfo> {
    return this.#track(this.#start(request));
  }

  /**
   * Makes a program ready that a person has installed, for one call. It is in no list; whoever starts it ends it, and the gateway does
   * when it closes.
   * @throws {ToolError} as `prepareProgram` @throws {CancelError} when the signal aborts or the gateway closes
   */
  prepareProgram(request: ProgramRequest): Promise<PreparedProgram> {
    return this.#track(this.#prepareProgram(request));
  }

  /**
   * Watches the workspace for what a program that runs on writes from now on until `after`, as during one request to it.
   * @throws {ToolError} `command_not_noted`
   */
  async watchWrites(request: WriteWatch): Promise<AfterProgram> {
    const [{ programs }, { watchWrites }] = await Promise.all([this.#runner(), import("./prepare_program.ts")]);
    const watched = await watchWrites(request, programs);
    return { ...watched, after: () => this.#track(this.#afterOf(watched)) };
  }

  /** Returns the processes that run and the last that ended, in the order of their start. */
  list(): readonly ProcessInfo[] {
    return this.#table.list();
  }

  /** Returns one process. @throws {ToolError} `process_not_found` */
  get(id: string): ProcessInfo {
    return this.#table.get(id);
  }

  /**
   * Returns what a process wrote, both streams as they came.
   * @param options.offset bytes from the first one ever written
   * @throws {ToolError} `process_not_found`
   */
  output(id: string, options: { readonly offset: number; readonly maxBytes: number }): OutputPart {
    return this.#table.output(id, options);
  }

  /** Kills a process with all it started, and waits for its end. @throws {ToolError} `process_not_found` */
  kill(id: string): Promise<ProcessInfo> {
    return this.#table.kill(id);
  }

  /** Kills what an earlier gateway on this data directory left; only with its lock. @returns how many */
  killLeftovers(): Promise<number> {
    return killLeftovers(this.#options.marker);
  }

  /**
   * Removes the sockets that a killed gateway left, and moves what its commands made under protected names into quarantine; with the lock, once its processes are gone
   * and before the first command. Names that a person made there in the meantime are moved too.
   */
  lookAfterKill(): Promise<Aftermath> {
    return this.#track(this.#lookAfterKill());
  }

  /** Lets no program of an MCP server or a plugin start. @param reason the end of a sentence. Undefined: they may start again */
  holdPrograms(reason: string | undefined): void {
    this.#halted = reason;
  }

  /** Kills processes that run on, which calls of these tools and runs started, and waits for their end. */
  endOf(isMeant: (tool: string, runId: string) => boolean): Promise<void> {
    return this.#table.killAll(isMeant);
  }

  /** Kills all processes that run on, and the programs of MCP servers and plugins, and waits for their end. Others may be started later. */
  async endAll(): Promise<void> {
    await Promise.all([this.#table.killAll(), ...[...this.#programs].map((program) => program.end())]);
  }

  /** Kills what runs and waits for it. Later calls throw a CancelError. Repeating it does nothing */
  async close(): Promise<void> {
    this.#closing.abort(new CancelError("shutdown"));
    await Promise.all(this.#working);
    await this.endAll();
    await (await this.#runner.made())?.surveys.close();
    // With files that could not be removed it stays, for the next start
    await rmdir(temporaryFolder(this.#options.marker)).catch(() => {});
  }

  #track<T>(work: Promise<T>): Promise<T> {
    const settled = work.catch(() => {}).finally(() => this.#working.delete(settled));
    this.#working.add(settled);
    return work;
  }

  /** Prepares a command for `use`, and again when it did not begin: the workspace may have changed while its right to effects was uncertain. */
  async #whenItMayBegin<T>(
    request: AnyRequest,
    use: (prepared: PreparedCommand, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { preparation } = await this.#runner();
    const signal = AbortSignal.any([request.signal, this.#closing.signal]);
    for (;;) {
      await untilEffectMayBegin(signal);
      const prepared = await preparation.prepare(request);
      try {
        return await use(prepared, signal);
      } catch (error) {
        if (!(error instanceof RightUncertain)) throw error;
      }
    }
  }

  #run(request: CommandRequest): Promise<ProcessResult> {
    return this.#whenItMayBegin(request, async (prepared, signal) => {
      const { line, contained, bounds, relay } = prepared;
      const { requireStarted, runCommand } = await this.#runner();
      const { timeoutMs, maxOutputBytes, composed } = request;
      const graceMs = composed === undefined ? 0 : composed.graceMs ?? GRACE_MS;
      const { clock } = this.#options;
      // A composed command is read by Postern itself, before the model gets anything of it
      const redact = composed === undefined ? this.#options.redact : undefined;
      let result: CommandResult;
      try {
        const limits = { timeoutMs, maxOutputBytes, graceMs };
        result = await runCommand(line, { ...limits, signal, clock, redact, isEffect: true });
      } catch (error) {
        // Cancelled: what it had done until then is looked at all the same
        await (error instanceof RightUncertain ? prepared.drop() : this.#afterOf(prepared));
        throw error;
      }
      const after = await this.#afterOf(prepared);
      if (contained) requireStarted(request.words, result);
      relay?.requireStarted(result);
      return { ...result, contained, bounds, refused: relay?.problems() ?? [], ...after };
    });
  }

  #start(request: StartRequest): Promise<ProcessInfo> {
    return this.#whenItMayBegin(request, async (prepared, signal) => {
      const { line, contained, bounds, relay } = prepared;
      const { words, owner, startedBy, taint = UNTAINTED, maxProcesses, maxOutputBytes } = request;
      const about = {
        words,
        contained,
        bounds,
        network: relay === undefined ? "none" : "allowlist",
        owner,
        startedBy,
        taint,
      } as const;
      const refused = () => relay?.problems() ?? [];
      const onEnd = () => this.#afterOf(prepared);
      try {
        if (signal.aborted) throw cancelError(signal);
        return await this.#table.start(line, { ...about, refused, maxProcesses, maxOutputBytes, onEnd });
      } catch (error) {
        await prepared.drop();
        throw error;
      }
    });
  }

  async #prepareProgram(request: ProgramRequest): Promise<PreparedProgram> {
    if (this.#halted !== undefined) throw new ToolError("halted", `Cannot start the program: ${this.#halted}`);
    const [{ programs }, { prepareProgram }] = await Promise.all([this.#runner(), import("./prepare_program.ts")]);
    const signal = AbortSignal.any([request.signal, this.#closing.signal]);
    if (signal.aborted) throw cancelError(signal);
    const prepared = await prepareProgram({ ...request, signal }, programs);
    return {
      ...prepared,
      start: () => this.#track(this.#startProgram(prepared)),
      after: () => this.#track(this.#afterOf(prepared)),
    };
  }

  async #startProgram(prepared: PreparedProgram): Promise<RunningProgram> {
    const { atEnd } = prepared;
    const started = await prepared.start().catch(async (error: unknown) => {
      await atEnd?.drop();
      throw error;
    });
    const finish = async () => {
      await started.end();
      if (atEnd !== undefined) await this.#afterOf(atEnd);
      this.#programs.delete(program);
    };
    let ending: Promise<void> | undefined;
    const end = () => ending ??= finish();
    const program: RunningProgram = { ...started, end };
    this.#programs.add(program);
    if (!this.#closing.signal.aborted) return program;
    await program.end();
    throw cancelError(this.#closing.signal);
  }

  /** Returns what was found after a command. Calls `onFound` when protected names appeared or nobody could look for them. */
  async #afterOf({ after }: Pick<PreparedCommand, "after">): Promise<Aftermath> {
    const found = await after();
    if (found.quarantined.length > 0 || found.unchecked) this.#options.quarantine.onFound?.(found);
    return found;
  }

  async #lookAfterKill(): Promise<Aftermath> {
    const { relays } = this.#options;
    if (relays !== undefined && existsSync(relays.folder)) {
      const { removeLeftSockets } = await import("./command_relay.ts");
      await removeLeftSockets(relays.folder);
    }
    const nothing: Aftermath = { quarantined: [], unchecked: false };
    if (!existsSync(this.#options.notes)) return nothing;
    const { leftNotes } = await import("./call_notes.ts");
    const left = await leftNotes(this.#options.notes);
    if (left.length === 0) return nothing;
    const { preparation } = await this.#runner();
    return await preparation.afterKill(left);
  }
}

/** Parts that the first command loads. */
interface CommandRunner {
  readonly preparation: Preparation;
  readonly programs: ProgramOptions;
  readonly surveys: Surveys;
  readonly requireStarted: typeof requireStarted;
  readonly runCommand: typeof runCommand;
}

async function loadRunner(options: ProcessesOptions, containment: ContainmentFinder): Promise<CommandRunner> {
  const [
    { Preparation, ENVIRONMENT },
    { requireStarted },
    { createLauncherFinder, runCommand },
    { Surveys },
    { createQuarantine },
    { createCallNotes },
    { createCommandRelays },
    { WorkspaceWatch },
  ] = await Promise.all([
    import("./prepare_command.ts"),
    import("./sandbox.ts"),
    import("./run_command.ts"),
    import("./surveys.ts"),
    import("./quarantine.ts"),
    import("./call_notes.ts"),
    import("./command_relay.ts"),
    import("./workspace_watch.ts"),
  ]);
  const surveys = new Surveys({ clock: options.clock });
  const random = options.random ?? createSystemRandom();
  const quarantine = createQuarantine({ folder: options.quarantine.folder, clock: options.clock, random });
  const notes = createCallNotes({ folder: options.notes, random });
  const relays = createCommandRelays({
    folder: options.relays?.folder ?? "",
    random,
    createRelay: options.relays?.create,
    allowlist: options.relays?.allowlist,
  });
  const watch = new WorkspaceWatch({ ...options, surveys, quarantine, notes });
  const { commands, clock, marker } = options;
  const launcher = createLauncherFinder({ commands, clock, env: ENVIRONMENT });
  const preparation = new Preparation({ ...options, containment, launcher, watch, relays });
  const programs = { commands, clock, marker, containment, watch, relays, launcher, environment: ENVIRONMENT };
  return { preparation, programs, surveys, requireStarted, runCommand };
}
