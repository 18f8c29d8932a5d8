import { type ChildProcess, spawn } from "node:child_process";
import process from "node:process";
import type { Readable } from "node:stream";
import { cancelError, cancelReason } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { type Capture, type Captured, captureOutput } from "./capture_output.ts";

/** A program as the operating system starts it: no shell in between. */
export interface CommandLine {
  /** Absolute path */
  readonly file: string;
  readonly args: readonly string[];
  /** Absolute path of the working folder */
  readonly cwd: string;
  /** The whole environment: nothing is inherited */
  readonly env: Readonly<Record<string, string>>;
}

export interface RunCommandOptions {
  readonly timeoutMs: number;
  /** Kept of each stream */
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** How a command ended, and what it wrote. */
export interface CommandResult {
  readonly ending:
    | { readonly kind: "exit"; readonly code: number }
    | { readonly kind: "signal"; readonly name: string }
    | { readonly kind: "timeout" }
    /** Killed for writing more than FLOOD_BYTES */
    | { readonly kind: "flood" };
  readonly stdout: Captured;
  readonly stderr: Captured;
}

/** Of one stream: what lies beyond the cap is read and thrown away up to here, so that most commands still end by themselves. */
export const FLOOD_BYTES = 67_108_864;
/** A process that outlived the command may hold its output open: two silent rounds of this length end the reading */
const QUIET_MS = 125;
const MAX_ROUNDS = 8;

/**
 * Runs a program to its end, in a process group of its own, with nothing on its input.
 *
 * The group is killed by timeout, abort and flood, and what is left of it once the program itself has ended.
 * @throws {ToolError} `command_not_started`
 * @throws {CancelError} when the signal aborts; `timeout` there is an ending, as the command's own time limit
 */
export async function runCommand(line: CommandLine, options: RunCommandOptions): Promise<CommandResult> {
  const { clock, signal, timeoutMs, maxOutputBytes } = options;
  if (signal.aborted) throw cancelError(signal);
  const child = start(line);
  let killedBy: "timeout" | "flood" | undefined;
  const killFor = (reason: "timeout" | "flood") => {
    killedBy ??= reason;
    killGroup(child);
  };
  const onAbort = () => killGroup(child);
  signal.addEventListener("abort", onAbort, { once: true });
  const timer = clock.after(timeoutMs, () => killFor("timeout"));
  const capture = (stream: Readable) =>
    captureOutput(stream, { maxBytes: maxOutputBytes, floodBytes: FLOOD_BYTES, onFlood: () => killFor("flood") });
  const stdout = capture(child.stdout);
  const stderr = capture(child.stderr);
  try {
    const closed = new Promise<"closed">((resolve) => child.once("close", () => resolve("closed")));
    const exit = await exitOf(child, line);
    await settle(closed, [stdout, stderr], clock);
    if (signal.aborted && cancelReason(signal) !== "timeout") throw cancelError(signal);
    const ending = signal.aborted ? "timeout" : killedBy;
    return {
      ending: ending === undefined ? exit : { kind: ending },
      stdout: stdout.result(),
      stderr: stderr.result(),
    };
  } finally {
    timer.clear();
    signal.removeEventListener("abort", onAbort);
    killGroup(child);
    child.stdout.destroy();
    child.stderr.destroy();
  }
}

type Child = ChildProcess & { readonly stdout: Readable; readonly stderr: Readable };

function start({ file, args, cwd, env }: CommandLine): Child {
  try {
    return spawn(file, args, { cwd, env, detached: true, shell: false, stdio: ["ignore", "pipe", "pipe"] });
  } catch (error) {
    throw notStarted(file, error);
  }
}

function exitOf(child: Child, line: CommandLine): Promise<CommandResult["ending"]> {
  return new Promise((resolve, reject) => {
    child.once("error", (error) => reject(notStarted(line.file, error)));
    child.once("exit", (code, name) => {
      resolve(name === null ? { kind: "exit", code: code ?? 0 } : { kind: "signal", name });
    });
  });
}

/** Waits for the end of the output: a stalled event loop can make one round look silent, not two. */
async function settle(closed: Promise<"closed">, captures: readonly Capture[], clock: Clock): Promise<void> {
  const total = () => captures.reduce((sum, capture) => sum + capture.bytes(), 0);
  for (let round = 0, quiet = 0; round < MAX_ROUNDS && quiet < 2; round++) {
    const before = total();
    const waiting = new AbortController();
    const waited = await Promise.race([closed, clock.sleep(QUIET_MS, waiting.signal).catch(() => {})]);
    waiting.abort();
    if (waited === "closed") return;
    quiet = total() === before ? quiet + 1 : 0;
  }
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // Nobody is left in it
  }
}

function notStarted(file: string, error: unknown): ToolError {
  const reason = error instanceof Error && "code" in error ? String(error.code) : "an unknown error";
  return new ToolError("command_not_started", `Cannot start "${file}": the operating system says ${reason}`, {
    cause: error,
  });
}
