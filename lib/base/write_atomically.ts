import { mkdir, open, readdir, realpath, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { systemClock } from "./clock.ts";
import { createSystemRandom } from "./random.ts";
import { syncFolder } from "./sync_folder.ts";
import { createTemporaryNames, isTemporary, type TemporaryNames } from "./temporary_names.ts";

const NEW_FILE_MODE = 0o600;

/**
 * Writes a file so that a reader, or the next start after a power loss, sees the old text or the new one, never a part.
 * Once it resolves, the new text survives a loss of power. A symbolic link keeps pointing at the file; the file keeps its mode, a new one gets 0600, its folder 0700.
 */
export async function writeAtomically(
  path: string,
  text: string,
  options: { readonly syncFolder: typeof syncFolder } = { syncFolder },
): Promise<void> {
  const target = await realpath(path).catch(() => path);
  const mode = await stat(target).then((info) => info.mode & 0o7777, () => NEW_FILE_MODE);
  const folder = dirname(target);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const temporary = join(folder, temporaryNames().next());
  try {
    const file = await open(temporary, "wx", NEW_FILE_MODE);
    try {
      await file.writeFile(text);
      await file.chmod(mode);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, target);
    await options.syncFolder(folder);
  } catch (cause) {
    await rm(temporary, { force: true });
    throw cause;
  }
}

/** Removes what processes that were killed in the middle of `writeAtomically` left in a folder. Never throws. */
export async function removeUnfinished(folder: string): Promise<void> {
  const names = temporaryNames();
  for (const name of (await readdir(folder).catch(() => [])).filter(isTemporary)) {
    const path = join(folder, name);
    const modifiedMs = await stat(path).then((info) => info.mtimeMs, () => Infinity);
    if (names.isLeftover(name, modifiedMs)) await rm(path, { force: true }).catch(() => {});
  }
}

function temporaryNames(): TemporaryNames {
  return createTemporaryNames({ clock: systemClock, random: createSystemRandom() });
}
