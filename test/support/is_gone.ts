import { readFileSync } from "node:fs";
import process from "node:process";
import { systemClock } from "../../lib/base/clock.ts";

/** Waits up to 60 s until no process has this id; one that nobody has buried yet counts as gone. */
export async function isGone(id: string): Promise<boolean> {
  for (let i = 0; i < 3000; i++) {
    try {
      process.kill(Number(id), 0);
      if (process.platform === "linux" && / Z /.test(readFileSync(`/proc/${id.trim()}/stat`, "utf8"))) return true;
    } catch {
      return true;
    }
    await systemClock.sleep(20);
  }
  return false;
}
