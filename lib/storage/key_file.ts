import { constants } from "node:fs";
import { link, open, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { systemClock } from "../base/clock.ts";
import { ConfigError, systemCodeOf } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import { createTemporaryNames, syncFolder } from "../base/durable_files.ts";

/** Length of an AES-256 key. */
export const KEY_BYTES = 32;
/** Ending of the file of a new key, which takes the place of the old one once every record is encrypted with it. */
export const NEXT_KEY = ".next";

/**
 * Loads the key of a file, which holds 32 bytes and nothing else. Makes a missing file, mode 0600, whole or not at all. When several
 * processes try, one makes it.
 * @throws {ConfigError} `key_file` for one that is a link or no file, that others may read, or that has another length
 */
export async function loadKeyFile(
  path: string,
  random: Random,
  options: { readonly syncFolder: typeof syncFolder } = { syncFolder },
): Promise<Uint8Array> {
  const found = await readKey(path);
  if (found !== undefined) return found;
  await makeKey(path, random);
  // Syncs the key's name to the disk, since data that is encrypted with the key must not outlive it
  await options.syncFolder(dirname(path));
  const made = await readKey(path);
  if (made === undefined) throw unusable(path, "it was removed while it was made");
  return made;
}

async function readKey(path: string): Promise<Uint8Array | undefined> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(path, flags).catch((cause: unknown) => {
    const code = systemCodeOf(cause);
    if (code === "ENOENT") return undefined;
    throw unusable(path, code === "ELOOP" ? "it is a symbolic link" : "it cannot be opened", cause);
  });
  if (file === undefined) return undefined;
  try {
    const info = await file.stat();
    if (!info.isFile()) throw unusable(path, "it is no regular file");
    if ((info.mode & 0o077) !== 0) {
      throw unusable(
        path,
        `others may read or write it (mode ${(info.mode & 0o777).toString(8)}); chmod 600 closes it`,
      );
    }
    if (info.size !== KEY_BYTES) throw unusable(path, `it has ${info.size} bytes in place of ${KEY_BYTES}; restore it`);
    const key = new Uint8Array(KEY_BYTES);
    const { bytesRead } = await file.read(key, 0, KEY_BYTES, 0);
    if (bytesRead !== KEY_BYTES) throw unusable(path, "it was changed while it was read");
    return key;
  } finally {
    await file.close();
  }
}

/** Makes the key's file by a link: whole or not at all, and never over a key that is there. */
async function makeKey(path: string, random: Random): Promise<void> {
  const temporary = join(dirname(path), createTemporaryNames({ clock: systemClock, random }).next());
  try {
    const file = await open(temporary, "wx", 0o600);
    try {
      await file.writeFile(random.bytes(KEY_BYTES));
      await file.sync();
    } finally {
      await file.close();
    }
    await link(temporary, path);
  } catch (cause) {
    if (systemCodeOf(cause) !== "EEXIST") throw unusable(path, "it cannot be made", cause);
  } finally {
    await rm(temporary, { force: true });
  }
}

function unusable(path: string, reason: string, cause?: unknown): ConfigError {
  const message = `Cannot use the key file "${basename(path)}" of the data directory: ${reason}`;
  return new ConfigError("key_file", message, { file: path, cause });
}
