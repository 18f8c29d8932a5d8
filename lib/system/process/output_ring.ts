import type { RedactPart } from "../../base/redact.ts";

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
