import { cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import type { OpenFile } from "./files.ts";
import { shown } from "./parse_path.ts";

/** Bytes of one part, after which the signal is asked again */
const PART_BYTES = 1_048_576;

/**
 * Reads a whole file, as long as it was when it was opened, into shared memory, which a thread gets without a copy.
 * @param options.path of the file, for the error
 * @param options.onPart takes each part as it is read, such as for a digest, so that a large file is not hashed in one go
 * @throws {ToolError} `path_changed` when the file becomes shorter meanwhile; {CancelError} when the signal aborts
 */
export async function readShared(
  file: OpenFile,
  { path, signal, onPart }: {
    readonly path: string;
    readonly signal: AbortSignal;
    readonly onPart?: (part: Uint8Array) => void;
  },
): Promise<SharedArrayBuffer> {
  const shared = new SharedArrayBuffer(file.size);
  const bytes = new Uint8Array(shared);
  const buffer = new Uint8Array(Math.min(PART_BYTES, bytes.length));
  for (let at = 0; at < bytes.length;) {
    if (signal.aborted) throw cancelError(signal);
    const length = await file.read(buffer.subarray(0, bytes.length - at), at);
    if (length === 0) {
      throw new ToolError("path_changed", `Cannot read ${shown(path)}: it became shorter while it was read; try again`);
    }
    const part = buffer.subarray(0, length);
    onPart?.(part);
    bytes.set(part, at);
    at += length;
  }
  return shared;
}
