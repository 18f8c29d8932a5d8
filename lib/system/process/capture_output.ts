import type { Readable } from "node:stream";
import type { RedactPart } from "../../base/redact.ts";

/** What was kept of one output stream. */
export interface Captured {
  /** Invalid UTF-8 is replaced; never cut through a character */
  readonly text: string;
  /** Bytes the command wrote, as far as they were read */
  readonly bytes: number;
  readonly truncated: boolean;
}

export interface Capture {
  /** Bytes read until now */
  bytes(): number;
  result(): Captured;
}

/**
 * Keeps the first `maxBytes` of a stream and counts the rest.
 * @param options.redact masks secrets, also one that the limit cuts through
 * @param options.onFlood called once more than `floodBytes` were read: nothing is read after that
 */
export function captureOutput(
  stream: Readable,
  options: {
    readonly maxBytes: number;
    readonly floodBytes: number;
    readonly redact?: RedactPart | undefined;
    readonly onFlood: () => void;
  },
): Capture {
  const { maxBytes, floodBytes, redact, onFlood } = options;
  const keptBytes = maxBytes + (redact?.reach() ?? 0);
  const kept: Uint8Array[] = [];
  let bytes = 0;
  stream.on("data", (chunk: Uint8Array) => {
    if (bytes < keptBytes) kept.push(chunk.slice(0, keptBytes - bytes));
    bytes += chunk.length;
    if (bytes <= floodBytes) return;
    onFlood();
    stream.destroy();
  });
  // A pipe that breaks has ended; how the command ended says why
  stream.on("error", () => {});
  return {
    bytes: () => bytes,
    result() {
      const truncated = bytes > maxBytes;
      const all = Buffer.concat(kept);
      const shown = redact?.redact(all, { from: 0, to: Math.min(maxBytes, all.length) }) ?? all.subarray(0, maxBytes);
      const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(shown, { stream: truncated });
      return { text, bytes, truncated };
    },
  };
}
