import type { Readable } from "node:stream";
import type { RedactPart } from "../../base/redact.ts";

/** Part of an output stream that was kept. */
export interface Captured {
  /** Invalid UTF-8 is replaced; never cut through a character */
  readonly text: string;
  /** Bytes the command wrote, as far as they were read */
  readonly bytes: number;
  readonly truncated: boolean;
}

/** A stream of a command while it is read. */
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

/** A part of what was written, by its place in the whole. */
export interface OutputPart {
  readonly text: string;
  /** Place of the first byte of `text`; later than asked for when that is no longer kept */
  readonly offset: number;
  /** Where to go on */
  readonly nextOffset: number;
  /** Bytes written in all */
  readonly total: number;
}

/** The last bytes of an output. */
export interface OutputRing {
  write(chunk: Uint8Array): void;
  /** Nothing more comes */
  end(): void;
  /**
   * From `offset`, counted from the first byte ever written, at most `maxBytes`; whole characters alone. Secrets are masked, and
   * what may be the begin of one waits for the rest; places count what was written, not what is shown.
   */
  read(offset: number, maxBytes: number): OutputPart;
}

/** Keeps the last `maxBytes`, and for a moment up to as much again. */
export function createOutputRing(maxBytes: number, redact?: RedactPart): OutputRing {
  let kept: Uint8Array[] = [];
  let keptBytes = 0;
  let total = 0;
  let isEnded = false;
  return {
    write(chunk) {
      kept.push(chunk);
      keptBytes += chunk.length;
      total += chunk.length;
      if (keptBytes < maxBytes * 2) return;
      kept = [Buffer.concat(kept).slice(-maxBytes)];
      keptBytes = maxBytes;
    },
    end() {
      isEnded = true;
    },
    read(offset, limit) {
      const bytes = Buffer.concat(kept).subarray(-maxBytes);
      kept = [bytes];
      keptBytes = bytes.length;
      const first = total - bytes.length;
      const start = Math.min(Math.max(offset, first), total);
      const from = start - first;
      const end = bytes.length - (isEnded ? 0 : redact?.pending(bytes) ?? 0);
      const part = wholeCharacters(bytes.subarray(from, Math.max(from, Math.min(from + limit, end))));
      const shown = redact?.redact(bytes, { from, to: from + part.length }) ?? part;
      return {
        text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(shown),
        offset: start,
        nextOffset: start + part.length,
        total,
      };
    },
  };
}

/** Without a character at the end that has not come whole. */
function wholeCharacters(bytes: Uint8Array): Uint8Array {
  for (let back = 1; back <= Math.min(3, bytes.length - 1); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? bytes.subarray(0, bytes.length - back) : bytes;
  }
  return bytes;
}
