import type { Dirent } from "node:fs";
import type { FolderList } from "./reach.ts";

/** Takes at most `limit` entries of a folder, which ends the loop over them; links and special files are left out. */
export async function listFolder(
  entries: AsyncIterable<Dirent> | Iterable<Dirent>,
  limit: number,
): Promise<FolderList> {
  const folders: string[] = [];
  const files: string[] = [];
  let seen = 0;
  let truncated = false;
  for await (const entry of entries) {
    if (++seen > limit) {
      truncated = true;
      break;
    }
    if (entry.isDirectory()) folders.push(entry.name);
    else if (entry.isFile()) files.push(entry.name);
  }
  return { folders, files, truncated };
}
