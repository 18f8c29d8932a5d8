import { closeSync, openSync } from "node:fs";

/** Whether the terminal this process was started from has been closed: then SIGHUP is its end, not a word from the administrator. */
export function hasLostTerminal(): boolean {
  try {
    closeSync(openSync("/dev/tty", "r"));
    return false;
  } catch {
    return true;
  }
}
