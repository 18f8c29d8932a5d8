import type { Readable } from "node:stream";
import { cancelError, cancelReason } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import type { RedactPart } from "../../base/redact.ts";
import { type Capture, type Captured, captureOutput } from "./command_output.ts";
import { type CommandLine, type Exit, startGroup } from "./process_group.ts";

export interface RunCommandOptions {
  readonly timeoutMs: number;
  /** Kept of each stream */
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Masks secrets in what is kept. Default: nothing is masked */
  readonly redact?: RedactPart | undefined;
  /** Milliseconds it has to clean up after itself once it is told to stop. Default 0: it is killed at once */
  readonly graceMs?: number;
}

/** How a command ended, and what it wrote. */
export interface CommandResult {
  readonly ending:
    | Exit
    | { readonly kind: "timeout" }
    /** Killed for writing more than FLOOD_BYTES */
    | { readonly kind: "flood" };
  readonly stdout: Captured;
  readonly stderr: Captured;
}

/** Bytes of one stream that are read. Those beyond the cap are thrown away, so that most commands still end by themselves. */
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
  const { clock, signal, timeoutMs, maxOutputBytes, redact, graceMs = 0 } = options;
  if (signal.aborted) throw cancelError(signal);
  const group = startGroup(line);
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
