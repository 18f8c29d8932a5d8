import { spawn } from "node:child_process";
import process from "node:process";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { untilEffectMayBegin } from "../../base/effect_right.ts";
import { ToolError } from "../../base/errors.ts";
import { SEARCH_PATH } from "./command_lookup.ts";
import type { Exit } from "./process_group.ts";

/** Program that is started for the user, and belongs to the user once it has run for a while. */
export interface HandedProgram {
  /** Absolute path. */
  readonly file: string;
  readonly args: readonly string[];
  /** Variables beside the search path. */
  readonly env: Readonly<Record<string, string>>;
  /** Milliseconds that its end is waited for. */
  readonly waitMs: number;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/**
 * Starts a program that may become the user's own, as the browser that opens an address does: outside of the sandbox, without input and
 * output, in a process group of its own. Until the wait is over it is the call's, and is killed when that is cancelled. After that nothing
 * of Postern ends it: it has no marker and no parent-death signal, so that no window of the user closes with the gateway.
 * @returns how it ended, or `running` when the wait was over first
 * @throws {ToolError} `command_not_started`
 * @throws {CancelError} when the signal aborts
 */
export async function handOver(
  { file, args, env, waitMs, clock, signal }: HandedProgram,
): Promise<Exit | { readonly kind: "running" }> {
  await untilEffectMayBegin(signal);
  if (signal.aborted) throw cancelError(signal);
  const child = spawn(file, args, {
    cwd: "/",
    env: { PATH: SEARCH_PATH.join(":"), ...env },
    detached: true,
    shell: false,
    stdio: "ignore",
  });
  const { promise, resolve, reject } = Promise.withResolvers<Exit | { readonly kind: "running" }>();
  child.once("error", (error: NodeJS.ErrnoException) => {
    const reason = error.code ?? "an unknown error";
    const text = `Cannot start "${file}": the operating system says ${reason}`;
    reject(new ToolError("command_not_started", text, { cause: error }));
  });
  child.once("exit", (code, name) => {
    resolve(name === null ? { kind: "exit", code: code ?? 0 } : { kind: "signal", name });
  });
  const onAbort = () => {
    killGroup(child.pid);
    reject(cancelError(signal));
  };
  signal.addEventListener("abort", onAbort, { once: true });
  const wait = clock.after(waitMs, () => resolve({ kind: "running" }));
  try {
    return await promise;
  } finally {
    wait.clear();
    signal.removeEventListener("abort", onAbort);
    // A browser that stays open does not keep the gateway from ending
    child.unref();
  }
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // Nobody is left in it
  }
}
