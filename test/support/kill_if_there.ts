import process from "node:process";

/** Sends the signal, by default SIGKILL; a process that has ended meanwhile is no failure. */
export function killIfThere(pid: number | undefined, signal: NodeJS.Signals = "SIGKILL"): void {
  if (pid === undefined) return;
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
