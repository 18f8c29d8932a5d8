import { rmSync } from "node:fs";
import { until } from "./until.ts";

/** Removes it with all that is in it, again where a process that is about to end still wrote into it; Deno knows no `maxRetries`. */
export function removeFolder(folder: string): Promise<void> {
  return until(() => {
    try {
      rmSync(folder, { recursive: true, force: true });
      return true;
    } catch (error) {
      if (!["EBUSY", "ENOTEMPTY"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
      return false;
    }
  }, `${folder} cannot be removed`);
}
