import { type BigIntStats, constants } from "node:fs";
import { type FileHandle, link, lstat, open, opendir, rename, unlink } from "node:fs/promises";
import { systemCodeOf, ToolError } from "../../base/errors.ts";
import { isTemporary, type TemporaryNames } from "../../base/durable_files.ts";
import { fileError } from "./file_error.ts";
import type { ContentSource } from "./files.ts";
import { statOf } from "./hold_place.ts";
import { shown } from "./parse_path.ts";
import type { Folder } from "./reach.ts";

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
const MAX_NAMES_TRIED = 5;
/** Entries looked at for leftovers: more would make each write to a huge folder slow */
const MAX_ENTRIES = 10_000;
/** File systems without hard links say one of these */
const NO_LINKS: ReadonlySet<string> = new Set(["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"]);

/** A file under a temporary name, whole and on stable storage. */
export interface StagedFile {
  readonly name: string;
  readonly dev: bigint;
  readonly ino: bigint;
}

/** Target of a staged file, with mode and owner. */
export interface StageOptions {
  /** For messages */
  readonly path: string;
  readonly names: TemporaryNames;
  /** The file it will replace, whose mode and owner it takes */
  readonly like: BigIntStats | undefined;
  /** Permission bits where there is none. Default: as the process makes files */
  readonly mode: number | undefined;
}

/** Writes a temporary file in a folder. Leaves none behind when it fails. */
export async function stageFile(
  folder: Folder,
  content: Uint8Array | ContentSource,
  options: StageOptions,
): Promise<StagedFile> {
  const { like, path } = options;
  const mode = like === undefined ? options.mode : Number(like.mode & 0o777n);
  try {
    const { name, handle } = await createTemporary(folder, options.names, mode === undefined ? 0o666 : 0o600);
    try {
      await writeContent(handle, content);
      // Only the superuser may give files away, and for anybody else the owner is already right
      if (like !== undefined) await handle.chown(Number(like.uid), Number(like.gid)).catch(() => {});
      if (mode !== undefined) await handle.chmod(mode);
      await handle.sync();
      const { dev, ino } = await handle.stat({ bigint: true });
      await handle.close();
      return { name, dev, ino };
    } catch (error) {
      await handle.close();
      await removeTemporary(folder, name);
      throw error;
    }
  } catch (error) {
    throw fileError("write", path, error);
  }
}

/** Reads a file of a folder, once it is known to be the one that was looked at. */
export async function readExpected(folder: Folder, name: string, expected: BigIntStats): Promise<Uint8Array> {
  const handle = await open(folder.place(name), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  try {
    if (!isSameFile(await handle.stat({ bigint: true }), expected)) throw changed(name);
    const buffer = new Uint8Array(Number(expected.size));
    let filled = 0;
    while (filled < buffer.length) {
      const { bytesRead } = await handle.read(buffer, filled, buffer.length - filled, filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return buffer.subarray(0, filled);
  } finally {
    await handle.close();
  }
}

/** Gives a temporary file its name, where nothing of that name may be. Never replaces what appeared meanwhile. */
export async function putNew(folder: Folder, temporary: string, name: string): Promise<void> {
  try {
    await link(folder.place(temporary), folder.place(name));
  } catch (error) {
    const code = systemCodeOf(error) ?? "";
    if (code === "EEXIST") throw changed(name);
    if (!NO_LINKS.has(code)) throw error;
    if (await statOf(folder, name, name) !== undefined) throw changed(name);
    await rename(folder.place(temporary), folder.place(name));
    return;
  }
  await unlink(folder.place(temporary));
}

/**
 * Moves a file to a temporary name, from which it can be removed or brought back.
 * @throws {ToolError} `path_changed` when another file was there, which is put back
 */
export async function takeAway(
  folder: Folder,
  name: string,
  { names, expected }: {
    readonly names: TemporaryNames;
    readonly expected: { readonly dev: bigint; readonly ino: bigint };
  },
): Promise<string> {
  const temporary = names.next();
  await rename(folder.place(name), folder.place(temporary));
  if (isSameFile(await lstat(folder.place(temporary), { bigint: true }), expected)) return temporary;
  await rename(folder.place(temporary), folder.place(name));
  throw changed(name);
}

/** Removes a temporary file, when it is still there. */
export async function removeTemporary(folder: Folder, name: string): Promise<void> {
  await unlink(folder.place(name)).catch(() => {});
}

/** Removes what a crash left in a folder. */
export async function removeLeftovers(folder: Folder, names: TemporaryNames): Promise<void> {
  const found: string[] = [];
  let seen = 0;
  // Leaving the loop closes the folder
  for await (const { name } of await opendir(folder.place("."))) {
    if (isTemporary(name)) found.push(name);
    if (++seen === MAX_ENTRIES) break;
  }
  for (const name of found) {
    const stat = await statOf(folder, name, name);
    if (stat?.isFile() && names.isLeftover(name, Number(stat.mtimeMs))) await removeTemporary(folder, name);
  }
}

/** Makes the names in a folder last; where a folder cannot be synced the system does so by itself. */
export async function syncNames(folder: Folder): Promise<void> {
  const handle = await open(folder.place("."), O_RDONLY | O_DIRECTORY).catch(() => undefined);
  try {
    await handle?.sync().catch(() => {});
  } finally {
    await handle?.close();
  }
}

/** Tells whether two looks saw one file, by device and inode. */
export function isSameFile(
  a: { readonly dev: bigint; readonly ino: bigint },
  b: { readonly dev: bigint; readonly ino: bigint },
): boolean {
  return a.dev === b.dev && a.ino === b.ino;
}

/** Returns the error for a file that is not the one that was looked at. */
export function changed(path: string): ToolError {
  return new ToolError("path_changed", `Cannot write ${shown(path)}: it was changed meanwhile, read it again`);
}

async function createTemporary(
  folder: Folder,
  names: TemporaryNames,
  mode: number,
): Promise<{ readonly name: string; readonly handle: FileHandle }> {
  for (let tried = 1;; tried++) {
    const name = names.next();
    const handle = await folder.prove(
      () =>
        open(folder.place(name), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode).catch((error: unknown) => {
          const taken = systemCodeOf(error) === "EEXIST";
          if (!taken || tried === MAX_NAMES_TRIED) throw error;
          return undefined;
        }),
      async (opened) => {
        if (opened === undefined) return;
        await opened.close();
        await removeTemporary(folder, name);
      },
    );
    if (handle !== undefined) return { name, handle };
  }
}

async function writeContent(handle: FileHandle, content: Uint8Array | ContentSource): Promise<void> {
  if (typeof content !== "function") return void await writeAll(handle, content, 0);
  let position = 0;
  await content(async (bytes) => {
    position = await writeAll(handle, bytes, position);
  });
}

/** @returns where the next bytes go */
async function writeAll(handle: FileHandle, content: Uint8Array, position: number): Promise<number> {
  let written = 0;
  while (written < content.length) {
    written += (await handle.write(content, written, content.length - written, position + written)).bytesWritten;
  }
  return position + written;
}
