import type { WorkBudget } from "../work_budget.ts";
import type { PdfDict, PdfReader } from "./pdf_object.ts";

const MAX_ROW_BYTES = 1_048_576;
const TIFF = 2;
const PNG = 10;

export interface PredictorOptions {
  readonly reader: PdfReader;
  readonly budget: WorkBudget;
}

/** Undoes the prediction that stands before a compression, as cross-reference streams use it. Source: ISO 32000-2, section 7.4.4.4 */
export function undoPredictor(
  bytes: Uint8Array,
  parameters: PdfDict,
  { reader, budget }: PredictorOptions,
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
