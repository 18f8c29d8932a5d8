import { access, constants, lstat, readdir, realpath, stat, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { listSome } from "../../lib/base/text.ts";
import { isOwnDataDir } from "../../lib/config/folders.ts";
import { DATABASE_NAME } from "../../lib/storage/back_up.ts";
import { cutOffRestores } from "../../lib/storage/cut_off_restores.ts";
import { daemonLogPath } from "../../lib/host/daemon/log_file.ts";
import { type Check, failure, type Finding, fine, warning } from "./finding.ts";

const NAME = "data directory";
const LEAST_FREE_BYTES = 100_000_000;
const MAX_FILES = 1_000;
const MAX_NAMED = 3;

/** Checks that the data directory exists, belongs to this user alone, can be written and has room. */
export const dataDirectoryCheck: Check = {
  name: NAME,
  async run({ loaded: { dataDir } }) {
    const cutOff = await checkRestores(dataDir);
    const found = await stat(dataDir).catch(() => undefined);
    if (found === undefined) return cutOff.length > 0 ? cutOff : await checkMissing(dataDir);
    if (!found.isDirectory()) return failure(NAME, `${dataDir} is no folder`, "name another with --data-dir");
    const uid = process.getuid?.();
    if (uid !== undefined && found.uid !== uid) {
      return failure(NAME, `${dataDir} belongs to another user (${found.uid})`, `sudo chown -R ${uid} "${dataDir}"`);
    }
    if (!await isWritable(dataDir)) return failure(NAME, `${dataDir} cannot be written`, `chmod u+rwx "${dataDir}"`);
    const names = await readdir(dataDir);
    const problems = [...cutOff, ...checkMode(dataDir, found.mode, names), ...await checkFiles(dataDir, names)];
    return [...problems.length === 0 ? [fine(NAME, dataDir)] : problems, ...await checkRoom(dataDir)];
  },
};

async function checkMissing(dataDir: string): Promise<Finding> {
  let parent = dirname(dataDir);
  while (parent !== dirname(parent) && !await exists(parent)) parent = dirname(parent);
  if (await isWritable(parent)) return fine(NAME, `${dataDir} is made by the first start`);
  return failure(NAME, `${dataDir} cannot be made: "${parent}" cannot be written`, "name another with --data-dir");
}

/** Names what killed restores left. Without a database between the folders, the data is in one of them. */
async function checkRestores(dataDir: string): Promise<readonly Finding[]> {
  const whole = await realpath(dataDir).catch(() => dataDir);
  const isThere = await exists(join(whole, DATABASE_NAME));
  return cutOffRestores(whole).map(({ made, before }) =>
    isThere
      ? warning(NAME, `${made} is of a restore that was cut off, if none is at work`, `rm -r "${made}"`)
      : failure(
        NAME,
        `${whole} has no database: a restore was cut off, and left ${made}`,
        `postern restore <file>, again; to go back, rm -r "${made}" and rename "${before}" to "${whole}"`,
      )
  );
}

function checkMode(dataDir: string, mode: number, names: readonly string[]): readonly Finding[] {
  if ((mode & 0o077) === 0 || process.platform === "win32") return [];
  const fix = `chmod 700 "${dataDir}"`;
  const shown = `${dataDir} is open to other users (mode ${(mode & 0o777).toString(8)})`;
  return [isOwnDataDir(names) ? warning(NAME, `${shown}; the next start closes it`, fix) : failure(NAME, shown, fix)];
}

async function checkFiles(dataDir: string, names: readonly string[]): Promise<readonly Finding[]> {
  if (process.platform === "win32") return [];
  const open: string[] = [];
  for (const name of names.slice(0, MAX_FILES)) {
    // The file may have been removed meanwhile
    const found = await stat(join(dataDir, name)).catch(() => undefined);
    if (found?.isFile() === true && (found.mode & 0o077) !== 0) open.push(name);
  }
  if (open.length === 0) return [];
  const message = `Files in it are open to other users: ${listSome(open, MAX_NAMED)}`;
  return [warning(NAME, message, `chmod -R go= "${dataDir}"`)];
}

async function checkRoom(dataDir: string): Promise<readonly Finding[]> {
  const { bavail, bsize } = await statfs(dataDir);
  const free = bavail * bsize;
  if (free >= LEAST_FREE_BYTES) return [];
  return [warning(NAME, `Its disk has ${Math.floor(free / 1_000_000)} MB left`, `df -h "${dataDir}"`)];
}

async function isWritable(path: string): Promise<boolean> {
  return await access(path, constants.W_OK | constants.X_OK).then(() => true, () => false);
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(() => true, () => false);
}

const LOG = "log";

/** Checks that the daemon can write its log. */
export const logCheck: Check = {
  name: LOG,
  async run({ loaded: { dataDir } }) {
    const path = daemonLogPath(dataDir);
    const found = await lstat(path).catch(() => undefined);
    if (found === undefined) return fine(LOG, `${path} is made by the first postern daemon start`);
    if (!found.isFile()) return failure(LOG, `${path} is no regular file`, `mv "${path}" "${path}.old"`);
    const isWritable = await access(path, constants.W_OK).then(() => true, () => false);
    if (!isWritable) return failure(LOG, `${path} cannot be written`, `chmod u+w "${path}"`);
    return fine(LOG, `${path}, ${(found.size / 1_000_000).toFixed(1)} MB`);
  },
};
