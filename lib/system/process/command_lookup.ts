import { access, constants, stat } from "node:fs/promises";
import { join } from "node:path";

/** Where a command would be found; nothing is run. */
export interface CommandLookup {
  /**
   * @param command a bare name, without a path separator
   * @returns absolute path of the executable file, undefined when no folder of the search path has one
   */
  find(command: string): Promise<string | undefined>;
  /**
   * Returns a text that changes when the executable that `find` gives is changed, or when another takes its place.
   * @returns undefined where `find` does
   */
  identify(command: string): Promise<string | undefined>;
}

/** Where commands are looked up, whatever PATH says: nothing a workspace contains is found. */
export const SEARCH_PATH: readonly string[] = [
  "/usr/local/sbin",
  "/usr/local/bin",
  "/usr/sbin",
  "/usr/bin",
  "/sbin",
  "/bin",
  "/opt/homebrew/bin",
];

const MAX_NAME = 255;

/** Creates a lookup of commands by their bare names. @param searchPath absolute folders, first match wins. Default: SEARCH_PATH */
export function createCommandLookup(searchPath: readonly string[] = SEARCH_PATH): CommandLookup {
  const find: CommandLookup["find"] = async (command) => {
    if (command === "" || command.length > MAX_NAME || /[/\\\0]/.test(command) || /^\.+$/.test(command)) {
      return undefined;
    }
    for (const folder of searchPath) {
      const path = join(folder, command);
      if (await isExecutable(path)) return path;
    }
    return undefined;
  };
  return {
    find,
    async identify(command) {
      const path = await find(command);
      if (path === undefined) return undefined;
      const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
      return [path, dev, ino, size, mtimeNs, ctimeNs].join(":");
    },
  };
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}
