import { access, constants, lstat } from "node:fs/promises";
import { daemonLogPath } from "../daemon/daemon_log.ts";
import { type Check, failure, fine } from "./finding.ts";

const NAME = "log";

/** Whether the daemon can write its log. */
export const logCheck: Check = {
  name: NAME,
  async look({ loaded: { dataDir } }) {
    const path = daemonLogPath(dataDir);
    const found = await lstat(path).catch(() => undefined);
    if (found === undefined) return fine(NAME, `${path} is made by the first postern daemon start`);
    if (!found.isFile()) return failure(NAME, `${path} is no regular file`, `mv "${path}" "${path}.old"`);
    const isWritable = await access(path, constants.W_OK).then(() => true, () => false);
    if (!isWritable) return failure(NAME, `${path} cannot be written`, `chmod u+w "${path}"`);
    return fine(NAME, `${path}, ${(found.size / 1_000_000).toFixed(1)} MB`);
  },
};
