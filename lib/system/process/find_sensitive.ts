import type { Dirent } from "node:fs";
import { opendir } from "node:fs/promises";
import { basename, join } from "node:path";
import { isSensitive } from "../files/sensitive_names.ts";

/** Looked at in one search, the shallow ones first */
const MAX_ENTRIES = 100_000;
/** Folders read at once */
const READ_AHEAD = 16;

/**
 * Files and folders below `root` that usually hold credentials, by name, links among them; nothing inside such a folder. Of a
 * very large tree what lies deepest is not looked at.
 * @param root real, absolute path
 */
export async function findSensitive(root: string): Promise<readonly string[]> {
  const found: string[] = [];
  let level: (readonly string[])[] = [[]];
  let left = MAX_ENTRIES;
  while (level.length > 0 && left > 0) {
    const next: (readonly string[])[] = [];
    for (let i = 0; i < level.length && left > 0; i += READ_AHEAD) {
      const folders = level.slice(i, i + READ_AHEAD);
      const lists = await Promise.all(folders.map((names) => entriesOf(join(root, ...names), left)));
      for (const [index, entries] of lists.entries()) {
        left -= entries.length;
        const names = folders[index] ?? [];
        const parent = names.at(-1) ?? basename(root);
        for (const entry of entries) {
          if (isSensitive([entry.name], parent)) found.push(join(root, ...names, entry.name));
          else if (entry.isDirectory()) next.push([...names, entry.name]);
        }
      }
    }
    level = next;
  }
  return found;
}

/** A folder that went away or may not be read has nothing that a command could read. */
async function entriesOf(folder: string, limit: number): Promise<readonly Dirent[]> {
  const entries: Dirent[] = [];
  try {
    for await (const entry of await opendir(folder, { bufferSize: 1024 })) {
      if (entries.push(entry) >= limit) break;
    }
  } catch {
    return entries;
  }
  return entries;
}
