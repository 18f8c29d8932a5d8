import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import process from "node:process";

/**
 * What tells a process from every other that gets its number later: when it was started, and on Linux in which boot.
 * @returns undefined when there is no such process any more, or nobody has buried it yet
 */
export async function processIdentity(pid: number): Promise<string | undefined> {
  return process.platform === "linux" ? await fromProc(pid) : await fromPs(pid);
}

/** Source: proc(5), `/proc/pid/stat`: the name is in parentheses and may hold any character; state is the 3rd field, start time the 22nd */
async function fromProc(pid: number): Promise<string | undefined> {
  try {
    const [stat, boot] = await Promise.all([
      readFile(`/proc/${pid}/stat`, "utf8"),
      readFile("/proc/sys/kernel/random/boot_id", "utf8"),
    ]);
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [state] = fields;
    return state === "Z" || state === "X" ? undefined : `${boot.trim()} ${fields[19]}`;
  } catch {
    return undefined;
  }
}

function fromPs(pid: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const env = { PATH: "/usr/bin:/bin", LC_ALL: "C" };
    execFile("ps", ["-o", "lstart=,stat=", "-p", String(pid)], { env }, (error, stdout) => {
      const [, started, state = "Z"] = /^(.*\d)\s+(\S+)\s*$/.exec(stdout) ?? [];
      resolve(error !== null || state.startsWith("Z") ? undefined : started?.trim());
    });
  });
}
