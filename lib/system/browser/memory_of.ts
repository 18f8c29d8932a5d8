import { readFile } from "node:fs/promises";

/** Processes of one browser that are counted: more than a browser of a few pages has */
const MAX_PROCESSES = 500;
const PAGE_BYTES = 4096;

/**
 * Returns how much private memory a process and all that it started hold, in bytes: what each has mapped from files or shares with
 * others is left out. 0 where the system does not say, which is anywhere but on Linux.
 * Source: Linux, proc_pid_statm(5), proc_tid_children(5)
 */
export async function memoryOf(root: number): Promise<number> {
  const known = new Set([root]);
  let pages = 0;
  for (const id of known) {
    if (known.size > MAX_PROCESSES) break;
    const [statm, children] = await Promise.all([
      read(`/proc/${id}/statm`),
      read(`/proc/${id}/task/${id}/children`),
    ]);
    const [, resident = 0, shared = 0] = statm.split(" ").map(Number);
    pages += Math.max(0, resident - shared);
    for (const child of children.split(" ")) if (child.trim() !== "") known.add(Number(child));
  }
  return pages * PAGE_BYTES;
}

function read(path: string): Promise<string> {
  return readFile(path, "utf8").catch(() => "");
}
