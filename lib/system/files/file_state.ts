import { createHash, hash } from "node:crypto";
import { constants } from "node:fs";
import { lstat, open, readlink } from "node:fs/promises";
import { cancelError } from "../../base/cancel.ts";

/** State of a path: a regular file, a folder, a link that is not followed, something else, or nothing. */
export interface FileState {
  readonly kind: "file" | "folder" | "link" | "other" | "none";
  /** SHA-256 of the file's content or of the link's target, hexadecimal; null for the other kinds */
  readonly sha256: string | null;
  /** The owner may run it */
  readonly executable: boolean;
}

/** Larger files are told apart by device, inode, size and times of change: to read them would take minutes */
export const MAX_DIGESTED_BYTES = 268_435_456;
const CHUNK_BYTES = 1_048_576;

/**
 * Looks at a path without following a link at its end, so that two looks tell whether it changed in between.
 * @param path absolute
 * @throws {CancelError} when the signal aborts
 */
export async function fileState(path: string, signal: AbortSignal): Promise<FileState> {
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined) return { kind: "none", sha256: null, executable: false };
  if (found.isDirectory()) return { kind: "folder", sha256: null, executable: false };
  if (found.isSymbolicLink()) {
    const target = await readlink(path).catch(() => "");
    return { kind: "link", sha256: hash("sha256", target), executable: false };
  }
  if (!found.isFile()) return { kind: "other", sha256: null, executable: false };
  const executable = (found.mode & 0o100) !== 0;
  // A link or a pipe that takes its place meanwhile is not opened
  const flags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
  const handle = await open(path, flags).catch(() => undefined);
  if (handle === undefined) return { kind: "other", sha256: null, executable };
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await handle.stat({ bigint: true });
    const hash = createHash("sha256");
    if (size > MAX_DIGESTED_BYTES) {
      hash.update(["large", dev, ino, size, mtimeNs, ctimeNs].join(":"));
      return { kind: "file", sha256: hash.digest("hex"), executable };
    }
    // With room for the end of the file: most files are far smaller than a chunk
    const buffer = new Uint8Array(Math.min(CHUNK_BYTES, Number(size) + 1));
    for (let position = 0; position <= MAX_DIGESTED_BYTES;) {
      if (signal.aborted) throw cancelError(signal);
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, position);
      if (bytesRead === 0) break;
      hash.update(buffer.subarray(0, bytesRead));
      position += bytesRead;
    }
    return { kind: "file", sha256: hash.digest("hex"), executable };
  } finally {
    await handle.close();
  }
}
