import type { Dir } from "node:fs";
import type { FolderList } from "./reach.ts";

/** Reads at most `limit` entries and closes the folder; links and special files are left out. */
export async function listFolder(dir: Dir, limit: number): Promise<FolderList> {
  const folders: string[] = [];
  const files: string[] = [];
  let seen = 0;
  let truncated = false;
  // Leaving the loop closes the folder
  for await (const entry of dir) {
    if (++seen > limit) {
      truncated = true;
      break;
    }
    if (entry.isDirectory()) folders.push(entry.name);
    else if (entry.isFile()) files.push(entry.name);
  }
  return { folders, files, truncated };
}
