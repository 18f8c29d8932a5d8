import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import type { PdfDict, PdfReader } from "./pdf_object.ts";

const CLEAR = 256;
const END = 257;
const TABLE = 4096;

/** Undoes LZW; what is damaged is read as far as it goes. Source: ISO 32000-2, section 7.4.4 */
export function decodeLzw(bytes: Uint8Array, { earlyChange, limit, budget }: {
  /** Code lengths grow one code early, as PDF has it by default */
  readonly earlyChange: boolean;
  /** Bytes */
  readonly limit: number;
  readonly budget: WorkBudget;
}): Uint8Array {
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

const MAX_ROW_BYTES = 1_048_576;
const TIFF = 2;
const PNG = 10;

/** Undoes the prediction that stands before a compression, as cross-reference streams use it. Source: ISO 32000-2, section 7.4.4.4 */
export function undoPredictor(
  bytes: Uint8Array,
  parameters: PdfDict,
  { reader, budget }: { readonly reader: PdfReader; readonly budget: WorkBudget },
): Uint8Array {
  const predictor = reader.number(parameters, "Predictor") ?? 1;
  if (predictor < TIFF) return bytes;
  const colors = reader.number(parameters, "Colors") ?? 1;
  const bits = reader.number(parameters, "BitsPerComponent") ?? 8;
  const columns = reader.number(parameters, "Columns") ?? 1;
  const pixelBytes = Math.max(1, (colors * bits) >> 3);
  const rowBytes = Math.ceil((colors * bits * columns) / 8);
  if (!(rowBytes >= 1 && rowBytes <= MAX_ROW_BYTES)) return bytes;
  if (predictor < PNG) return bits === 8 ? undoTiff(bytes, { rowBytes, pixelBytes, budget }) : bytes;
  return undoPng(bytes, { rowBytes, pixelBytes, budget });
}

interface Rows {
  readonly rowBytes: number;
  readonly pixelBytes: number;
  readonly budget: WorkBudget;
}

function undoTiff(bytes: Uint8Array, { rowBytes, pixelBytes, budget }: Rows): Uint8Array {
  const output = bytes.slice();
  for (let row = 0; row < output.length; row += rowBytes) {
    budget.step(rowBytes >> 3);
    const end = Math.min(row + rowBytes, output.length);
    for (let at = row + pixelBytes; at < end; at++) output[at] = (output[at] ?? 0) + (output[at - pixelBytes] ?? 0);
  }
  return output;
}

function undoPng(bytes: Uint8Array, { rowBytes, pixelBytes, budget }: Rows): Uint8Array {
  const rows = Math.ceil(bytes.length / (rowBytes + 1));
  const output = new Uint8Array(rows * rowBytes);
  let size = 0;
  for (let row = 0; row < rows; row++) {
    budget.step(1 + (rowBytes >> 3));
    const from = row * (rowBytes + 1) + 1;
    const kind = bytes[from - 1] ?? 0;
    const length = Math.min(rowBytes, bytes.length - from);
    const to = row * rowBytes;
    for (let i = 0; i < length; i++) {
      const left = i >= pixelBytes ? output[to + i - pixelBytes] ?? 0 : 0;
      const up = row > 0 ? output[to + i - rowBytes] ?? 0 : 0;
      const corner = row > 0 && i >= pixelBytes ? output[to + i - rowBytes - pixelBytes] ?? 0 : 0;
      output[to + i] = (bytes[from + i] ?? 0) + predicted(kind, { left, up, corner });
    }
    size = to + Math.max(length, 0);
  }
  return output.subarray(0, size);
}

function predicted(
  kind: number,
  { left, up, corner }: { readonly left: number; readonly up: number; readonly corner: number },
): number {
  switch (kind) {
    case 1:
      return left;
    case 2:
      return up;
    case 3:
      return (left + up) >> 1;
    case 4: {
      const guess = left + up - corner;
      const [toLeft, toUp, toCorner] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
      return toLeft <= toUp && toLeft <= toCorner ? left : toUp <= toCorner ? up : corner;
    }
    default:
      return 0;
  }
}
