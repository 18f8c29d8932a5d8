import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";

const CLEAR = 256;
const END = 257;
const TABLE = 4096;

export interface LzwOptions {
  /** Code lengths grow one code early, as PDF has it by default */
  readonly earlyChange: boolean;
  /** Bytes */
  readonly limit: number;
  readonly budget: WorkBudget;
}

/** Undoes LZW; what is damaged is read as far as it goes. Source: ISO 32000-2, section 7.4.4 */
export function decodeLzw(bytes: Uint8Array, { earlyChange, limit, budget }: LzwOptions): Uint8Array {
  const prefixes = new Uint16Array(TABLE);
  const lasts = new Uint8Array(TABLE);
  const lengths = new Uint16Array(TABLE);
  for (let code = 0; code < 256; code++) {
    lasts[code] = code;
    lengths[code] = 1;
  }
  const early = earlyChange ? 1 : 0;
  let output = new Uint8Array(Math.min(Math.max(bytes.length * 4, 1024), limit));
  let size = 0;
  let next = END + 1;
  let width = 9;
  let previous = -1;
  let bits = 0;
  let held = 0;

  /** Writes what a code stands for, from its end. @returns its first byte */
  const write = (code: number): number => {
    const length = lengths[code] ?? 1;
    if (size + length > output.length) output = grown(output, size + length, limit);
    size += length;
    let at = size;
    for (let part = code; at > size - length; part = prefixes[part] ?? 0) output[--at] = lasts[part] ?? 0;
    return output[at] ?? 0;
  };

  for (const byte of bytes) {
    bits = (bits << 8) | byte;
    held += 8;
    if (held < width) continue;
    held -= width;
    const code = (bits >>> held) & ((1 << width) - 1);
    bits &= (1 << held) - 1;
    if (code === END) break;
    if (code === CLEAR) {
      next = END + 1;
      width = 9;
      previous = -1;
      continue;
    }
    budget.step();
    if (previous === -1) {
      if (code > 255) break;
      write(code);
    } else {
      if (code > next || (code === next && next >= TABLE)) break;
      const known = code < next;
      const first = write(known ? code : previous);
      if (!known) {
        if (size + 1 > output.length) output = grown(output, size + 1, limit);
        output[size++] = first;
      }
      if (next < TABLE) {
        prefixes[next] = previous;
        lasts[next] = first;
        lengths[next] = (lengths[previous] ?? 1) + 1;
        next++;
      }
    }
    previous = code;
    if (next + early >= 1 << width && width < 12) width++;
  }
  return output.subarray(0, size);
}

function grown(bytes: Uint8Array, needed: number, limit: number): Uint8Array<ArrayBuffer> {
  if (needed > limit) {
    throw new DocumentError(
      "document_too_large",
      `a compressed part of it holds more than the ${limit} bytes that are read`,
    );
  }
  const larger = new Uint8Array(Math.min(Math.max(bytes.length * 2, needed), limit));
  larger.set(bytes);
  return larger;
}
