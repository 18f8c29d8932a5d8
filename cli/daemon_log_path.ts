import { join } from "node:path";

/** Where a data directory's daemon writes its log; older parts beside it as `.1` to `.5`. */
export function daemonLogPath(dataDir: string): string {
  return join(dataDir, "daemon.log");
}
