import process from "node:process";
import type { Readable } from "node:stream";
import { cancelError, cancelReason } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import type { RedactPart } from "../../base/redact.ts";
import type { Taint } from "../../base/taint.ts";
import { type Capture, type Captured, captureOutput } from "./command_output.ts";
import { startWithRight } from "./gated_start.ts";
import { type CommandLine, type ProgramEnd, startGroup } from "./process_group.ts";
import type { Bounds } from "./bounds.ts";
import type { RelayProblem } from "../net/relay.ts";
import type { CommandLookup } from "./command_lookup.ts";
import type { CommandNetwork, SandboxMode } from "./containment.ts";
import type { PlacedPart } from "./placed_parts.ts";
import type { Aftermath } from "./quarantine.ts";
import type { ArgumentScope } from "./screen_arguments.ts";

/** A program that a tool starts. */
export interface ProcessRequest {
  /** The command, a bare name that the caller has found allowed, and its arguments */
  readonly words: readonly string[];
  /** Parts of a line that bash runs, whose words are screened in place of the command's. Such a command is contained or refused. Default: none */
  readonly line?: readonly PlacedPart[] | undefined;
  readonly scope: ArgumentScope;
  /** `auto`: uncontained only where there is no sandbox at all; `require`: refused there; `off`: never contained */
  readonly sandbox: SandboxMode;
  /** Network inside the sandbox; a composed command has its own. A command that would run uncontained is refused with `allowlist`. Default `none` */
  readonly network?: CommandNetwork | undefined;
  /** Paths of Unix sockets that the sandbox lets through, from the workspace on. Default: none, and none is made inside */
  readonly localSockets?: readonly string[] | undefined;
  /** Outside content that the files which the command writes are made from. Default: none */
  readonly taint?: Taint | undefined;
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
  /** Places that it may write to inside the sandbox: the workspace, real absolute paths in it, or none. */
  readonly writes: boolean | readonly string[];
  /** Absolute paths of git folders that it works on, and of names of such: refused while a program runs that may have made them. Default: none */
  readonly gitPlaces?: readonly string[] | undefined;
  /** Contents that stand read-only in the place of files inside the sandbox, by absolute path. Default: none */
  readonly copies?: ReadonlyMap<string, Uint8Array> | undefined;
  /** Absolute paths without links of folders outside the workspace that it sees, read-only. Refused while a program may exchange folders. Default: none */
  readonly reads?: readonly string[] | undefined;
  /** Content of the descriptor FIRST_GIVEN, which it reads to its end. Default: none */
  readonly given?: Uint8Array | undefined;
  /** Milliseconds that it has to clean up once it is told to stop; 0: it is killed at once. Default 1000 */
  readonly graceMs?: number;
}

/** Bounds on one command that is run to its end. */
export interface RunCommandOptions {
  readonly timeoutMs: number;
  /** Bytes that are kept of each stream */
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Masks secrets in what is kept. Default: nothing is masked */
  readonly redact?: RedactPart | undefined;
  /** Text on its input, for a program that is no effect. Default: there is nothing on it */
  readonly input?: string | undefined;
  /** True: it begins if the work at hand may have effects, see `startWithRight`. Default false */
  readonly isEffect?: boolean;
  /** Milliseconds it has to clean up after itself once it is told to stop. Default 0: it is killed at once */
  readonly graceMs?: number;
}

/** How a command ended, and what it wrote. */
export interface CommandResult {
  readonly ending:
    | ProgramEnd
    | { readonly kind: "timeout" }
    /** End of a command that was killed for writing more than FLOOD_BYTES */
    | { readonly kind: "flood" };
  readonly stdout: Captured;
  readonly stderr: Captured;
}

/** The end of a command, with its output and with the protected names that it made. */
export interface ProcessResult extends CommandResult, Aftermath {
  /** True when it ran inside the sandbox, where a signal shows as the exit code 128 + its number. */
  readonly contained: boolean;
  /** Bounds that it ran in. Undefined: none */
  readonly bounds?: Bounds | undefined;
  /** Requests that the relay of the command refused or could not carry out */
  readonly refused: readonly RelayProblem[];
}

/** Bytes of one stream that are read. Those beyond the cap are thrown away, so that most commands still end by themselves. */
export const FLOOD_BYTES = 67_108_864;
/** A process that outlived the command may hold its output open: two silent rounds of this length end the reading */
const QUIET_MS = 125;
const MAX_ROUNDS = 8;

/**
 * Runs a program to its end, in a process group of its own.
 *
 * The group is killed by timeout, abort and flood, and what is left of it once the program itself has ended.
 * @throws {ToolError} `command_not_started`; {RightUncertain} with `isEffect`
 * @throws {CancelError} when the signal aborts; `timeout` there is an ending, as the command's own time limit
 */
export async function runCommand(line: CommandLine, options: RunCommandOptions): Promise<CommandResult> {
  const { clock, signal, timeoutMs, maxOutputBytes, redact, input, isEffect = false, graceMs = 0 } = options;
  if (signal.aborted) throw cancelError(signal);
  const group = isEffect ? startWithRight(line) : startGroup(input === undefined ? line : { ...line, hasInput: true });
  if (input !== undefined) group.stdin?.end(input);
  let grace: { clear(): void } | undefined;
  const stop = () => {
    if (graceMs === 0) return group.kill();
    group.kill("SIGTERM");
    grace ??= clock.after(graceMs, () => group.kill());
  };
  let killedBy: "timeout" | "flood" | undefined;
  const killFor = (reason: "timeout" | "flood") => {
    killedBy ??= reason;
    stop();
  };
  const onAbort = () => stop();
  signal.addEventListener("abort", onAbort, { once: true });
  const timer = clock.after(timeoutMs, () => killFor("timeout"));
  const capture = (stream: Readable) =>
    captureOutput(stream, {
      maxBytes: maxOutputBytes,
      floodBytes: FLOOD_BYTES,
      redact,
      onFlood: () => killFor("flood"),
    });
  const stdout = capture(group.stdout);
  const stderr = capture(group.stderr);
  try {
    const exit = await group.exited;
    await settle(group.closed, [stdout, stderr], clock);
    if (signal.aborted && cancelReason(signal) !== "timeout") throw cancelError(signal);
    const ending = signal.aborted ? "timeout" : killedBy;
    return {
      ending: ending === undefined ? exit : { kind: ending },
      stdout: stdout.result(),
      stderr: stderr.result(),
    };
  } finally {
    timer.clear();
    grace?.clear();
    signal.removeEventListener("abort", onAbort);
    group.kill();
    group.stdout.destroy();
    group.stderr.destroy();
  }
}

/** Waits for the end of the output: a stalled event loop can make one round look silent, not two. */
async function settle(closed: Promise<"closed">, captures: readonly Capture[], clock: Clock): Promise<void> {
  const total = () => captures.reduce((sum, capture) => sum + capture.bytes(), 0);
  for (let round = 0, quiet = 0; round < MAX_ROUNDS && quiet < 2; round++) {
    const before = total();
    if (await withTimeout(closed, { ms: QUIET_MS, clock }) === "closed") return;
    quiet = total() === before ? quiet + 1 : 0;
  }
}

/** Commands that wait for a try of something that hangs; those after them do without */
const MAX_TRIES = 3;
const TRY_TIMEOUT_MS = 5000;

interface LauncherOptions {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string>>;
}

/** Returns the words before an uncontained command, which end it with the gateway; none where no program does that. */
export type Launcher = () => Promise<readonly string[]>;

/**
 * Finds what an uncontained command is started with, so that it ends when the gateway is killed: `setpriv` with a parent-death
 * signal, where the system knows one. Found once; a try that took too long is made again, at most twice.
 * @returns the words before the command; none where there is no such program
 */
export function createLauncherFinder(options: LauncherOptions): Launcher {
  let finding: Promise<readonly string[] | undefined> | undefined;
  let tries = 0;
  return async () => {
    const found = await (finding ??= findLauncher(options));
    if (found === undefined && ++tries < MAX_TRIES) finding = undefined;
    return found ?? [];
  };
}

/** @returns undefined when the try took too long */
async function findLauncher({ commands, clock, env }: LauncherOptions): Promise<readonly string[] | undefined> {
  if (process.platform !== "linux") return [];
  const [file, program] = await Promise.all([commands.find("setpriv"), commands.find("true")]);
  if (file === undefined || program === undefined) return [];
  const args = ["--pdeathsig", "KILL", "--"];
  const signal = new AbortController().signal;
  const tried = await runCommand({ file, args: [...args, program], cwd: "/", env }, {
    timeoutMs: TRY_TIMEOUT_MS,
    maxOutputBytes: 256,
    signal,
    clock,
  }).catch(() => undefined);
  if (tried?.ending.kind === "timeout") return undefined;
  return tried?.ending.kind === "exit" && tried.ending.code === 0 ? [file, ...args] : [];
}
