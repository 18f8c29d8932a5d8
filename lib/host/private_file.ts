import type { Stats } from "node:fs";
import { open } from "node:fs/promises";
import process from "node:process";

/** Text of a file that this user alone wrote and can read; undefined for any other. */
export async function readPrivateFile(path: string): Promise<string | undefined> {
  try {
    const file = await open(path, "r");
    try {
      return isPrivate(await file.stat()) ? await file.readFile("utf8") : undefined;
    } finally {
      await file.close();
    }
  } catch {
    return undefined;
  }
}

/** Another user's record would lead root's command line to that user's own server, or to a process that user chose. */
function isPrivate({ mode, uid }: Stats): boolean {
  if (process.platform === "win32") return true;
  return (mode & 0o077) === 0 && uid === process.getuid?.();
}
