import { constants, type Dirent } from "node:fs";
import { type FileHandle, mkdir, open, opendir, readlink, realpath } from "node:fs/promises";
import process from "node:process";
import { dirname, join } from "node:path";
import { syncFolder } from "../base/durable_files.ts";

/** File of a plugin or of a skill, which is a folder of such files. */
export interface PackageFile {
  /** Path with `/` between its parts, relative to the folder */
  readonly path: string;
  readonly bytes: Uint8Array;
  /** True for a file that may be started as a program */
  readonly executable: boolean;
}

/** Writes a new folder with its files. On disk when it resolves. @throws the file system's error, also where the folder is there already */
export async function writePackageFolder(folder: string, files: readonly PackageFile[]): Promise<void> {
  const folders = new Set([folder]);
  await mkdir(folder, { mode: 0o700 });
  for (const { path, bytes, executable } of files) {
    const place = join(folder, path);
    await mkdir(dirname(place), { recursive: true, mode: 0o700 });
    for (let above = dirname(place); above !== folder; above = dirname(above)) folders.add(above);
    const file = await open(place, "wx", executable ? 0o700 : 0o600);
    try {
      await file.writeFile(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
  }
  for (const place of folders) await syncFolder(place);
}

/**
 * Reads a plain file through one handle, so that what is checked is what is read. A link in the place of the file, or of a folder above it, is
 * refused.
 * @param place absolute, without links
 * @param maxBytes bytes that the file may have
 * @returns the content, or why it was not read: `no_file`: a folder, a device, or something elsewhere; `too_large`; `grew`: while it was read
 * @throws the file system's error
 */
export async function readPlainFile(
  place: string,
  maxBytes: number,
): Promise<Omit<PackageFile, "path"> | "no_file" | "too_large" | "grew"> {
  const flags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
  const file = await open(place, flags);
  try {
    const info = await file.stat();
    if (!info.isFile() || await placeOf(file, place) !== place) return "no_file";
    if (info.size > maxBytes) return "too_large";
    // A byte more shows a file that grew
    const buffer = new Uint8Array(info.size + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(buffer, length, buffer.length - length, length);
      length += bytesRead;
      if (bytesRead === 0 || length === buffer.length) break;
    }
    if (length > info.size) return "grew";
    return { bytes: buffer.subarray(0, length), executable: (info.mode & 0o100) !== 0 };
  } finally {
    await file.close();
  }
}

/**
 * Lists a folder through one handle, so that what is checked is what is listed. A link in its place, or in that of a folder above it, is refused.
 * @param place absolute, without links
 * @param most entries that are wanted: one more shows that there are more
 * @throws the file system's error, and one with the code `ENOTDIR` for a folder that lies elsewhere by now
 */
export async function listPlainFolder(place: string, most: number): Promise<readonly Dirent[]> {
  const flags = constants.O_RDONLY | (constants.O_DIRECTORY ?? 0) | (constants.O_NOFOLLOW ?? 0);
  const folder = await open(place, flags);
  try {
    if (await placeOf(folder, place) !== place) {
      throw Object.assign(new Error("it is no plain folder"), { code: "ENOTDIR" });
    }
    const entries: Dirent[] = [];
    for await (const entry of await opendir(process.platform === "linux" ? `/proc/self/fd/${folder.fd}/.` : place)) {
      entries.push(entry);
      if (entries.length > most) break;
    }
    return entries;
  } finally {
    await folder.close();
  }
}

/** Returns where an open file or folder lies, whatever became of the folders that led to it. @param place path that it was opened by */
async function placeOf(file: FileHandle, place: string): Promise<string> {
  // Only Linux tells, where commands in a sandbox can exchange a folder at any moment
  return await readlink(`/proc/self/fd/${file.fd}`).catch(() => realpath(place));
}
