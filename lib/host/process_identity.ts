import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import process from "node:process";

const PS_LIMIT_MS = 5_000;

/**
 * Returns a text that no other process with the same number has: the time it was started, and on Linux the boot.
 * @returns undefined when there is no such process any more, or nobody has buried it yet
 */
export async function processIdentity(pid: number): Promise<string | undefined> {
  return process.platform === "linux" ? await fromProc(pid) : await fromPs(pid);
}

/**
 * State and start of a process, on Linux. The start is in ticks since the boot, 100 a second on every architecture.
 * @throws {Error} there is no such process
 * Source: proc(5), `/proc/pid/stat`: the name is in parentheses and may hold any character; state is the 3rd field, start time the 22nd
 */
export async function readProcessStat(pid: number): Promise<{ readonly state: string; readonly startTicks: string }> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state = "", startTicks = ""] = [fields[0], fields[19]];
  return { state, startTicks };
}

async function fromProc(pid: number): Promise<string | undefined> {
  try {
    const [{ state, startTicks }, boot] = await Promise.all([
      readProcessStat(pid),
      readFile("/proc/sys/kernel/random/boot_id", "utf8"),
    ]);
    return state === "Z" || state === "X" ? undefined : `${boot.trim()} ${startTicks}`;
  } catch {
    return undefined;
  }
}

function fromPs(pid: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const env = { PATH: "/usr/bin:/bin", LC_ALL: "C" };
    execFile("ps", ["-o", "lstart=,stat=", "-p", String(pid)], { env, timeout: PS_LIMIT_MS }, (error, stdout) => {
      const [, started, state = "Z"] = /^(.*\d)\s+(\S+)\s*$/.exec(stdout) ?? [];
      resolve(error !== null || state.startsWith("Z") ? undefined : started?.trim());
    });
  });
}
