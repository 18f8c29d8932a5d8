import { open } from "node:fs/promises";

const MAX_BYTES = 16_384;
const MAX_LINES = 20;

/**
 * The last lines of a log, at most 20 or 16 KiB, for a person who wants to know why a start failed.
 * @param from bytes to leave out at the beginning: what was there before. A shorter file has been rotated since, and is read whole
 * @returns "" when it cannot be read
 */
export async function readLogEnd(path: string, from = 0): Promise<string> {
  try {
    const file = await open(path, "r");
    try {
      const { size } = await file.stat();
      const begin = Math.max(size >= from ? from : 0, size - MAX_BYTES);
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - begin), 0, size - begin, begin);
      return buffer.subarray(0, bytesRead).toString("utf8").trimEnd().split("\n").slice(-MAX_LINES).join("\n");
    } finally {
      await file.close();
    }
  } catch {
    return "";
  }
}
