import { readdirSync } from "node:fs";
import { basename, dirname, resolve } from "node:path";

/** Text after a data directory's name in the name of the folder that a restore makes, until the backup is put in place. */
const RESTORING = ".restoring-";
/** Text after a data directory's name in the name of the folder that keeps what was there before a restore. */
const BEFORE_RESTORE = ".before-restore-";
const TIME = /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z$/;

/** The two folders that a restore makes beside a data directory. */
export interface RestoreFolders {
  /** The folder that is made whole, and then gets the name of the data directory */
  readonly made: string;
  /** The folder that the data directory becomes */
  readonly before: string;
}

/** Names the folders of one restore. @param now milliseconds since the epoch */
export function restoreFolders(dataDir: string, now: number): RestoreFolders {
  return foldersOf(dataDir, new Date(now).toISOString().replaceAll(":", "-"));
}

/**
 * Finds the restores that made their folder and did not yet put it in the place of the data directory. Such a restore was cut off, or
 * is at work and holds the data directory's lock. Nothing needs the folder: the backup that it is made of is there.
 * @returns empty where the folder around the data directory cannot be listed
 */
export function cutOffRestores(dataDir: string): readonly RestoreFolders[] {
  const whole = resolve(dataDir);
  const start = `${basename(whole)}${RESTORING}`;
  return namesIn(dirname(whole))
    .filter((name) => name.startsWith(start) && TIME.test(name.slice(start.length)))
    .sort()
    .map((name) => foldersOf(whole, name.slice(start.length)));
}

function foldersOf(dataDir: string, time: string): RestoreFolders {
  return { made: `${dataDir}${RESTORING}${time}`, before: `${dataDir}${BEFORE_RESTORE}${time}` };
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
