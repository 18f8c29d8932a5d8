import { cancelError } from "../../base/cancel.ts";
import type { OpenFile } from "./files.ts";

/** Bytes of one part, after which the signal is asked again */
const PART_BYTES = 1_048_576;

/**
 * Reads a whole file into shared memory, which a thread gets without a copy. Of a file that shrinks meanwhile the rest is zero.
 * @param options.onPart takes each part as it is read, such as for a digest, so that a large file is not hashed in one go
 * @throws {CancelError} when the signal aborts
 */
export async function readShared(
  file: OpenFile,
  { signal, onPart }: { readonly signal: AbortSignal; readonly onPart?: (part: Uint8Array) => void },
): Promise<SharedArrayBuffer> {
  const shared = new SharedArrayBuffer(file.size);
  const bytes = new Uint8Array(shared);
  const buffer = new Uint8Array(Math.min(PART_BYTES, bytes.length));
  for (let at = 0; at < bytes.length; at += buffer.length) {
    if (signal.aborted) throw cancelError(signal);
    const length = await file.read(buffer.subarray(0, bytes.length - at), at);
    const part = buffer.subarray(0, length);
    onPart?.(part);
    bytes.set(part, at);
  }
  return shared;
}
