import { readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";

/** Returns the paths in the folder that this process has open; Linux alone. Other test files run in this process too, on Deno. */
export function openHandles(folder: string): readonly string[] {
  return readdirSync("/proc/self/fd").flatMap((name) => {
    try {
      const path = readlinkSync(join("/proc/self/fd", name));
      return path.startsWith(folder) ? [path] : [];
    } catch {
      // The handle of this listing, or one that was closed meanwhile
      return [];
    }
  });
}
