import type { PdfObject } from "./pdf_object.ts";
import type { Point } from "./text_layout.ts";

/** `[a b c d e f]`. Source: ISO 32000-2, section 8.3.4 */
export type Matrix = readonly [number, number, number, number, number, number];

export const IDENTITY: Matrix = [1, 0, 0, 1, 0, 0];

/** First `inner`, then `outer`. */
export function multiply(inner: Matrix, outer: Matrix): Matrix {
  const [a, b, c, d, e, f] = inner;
  const [oa, ob, oc, od, oe, of] = outer;
  return [
    a * oa + b * oc,
    a * ob + b * od,
    c * oa + d * oc,
    c * ob + d * od,
    e * oa + f * oc + oe,
    e * ob + f * od + of,
  ];
}

/** Where a matrix puts a point. */
export function apply([a, b, c, d, e, f]: Matrix, { x, y }: Point): Point {
  return { x: a * x + c * y + e, y: b * x + d * y + f };
}

/** Six numbers as a matrix; the identity for anything else. */
export function toMatrix(items: readonly PdfObject[]): Matrix {
  const numbers = items.filter((item): item is number => typeof item === "number");
  const [a, b, c, d, e, f] = numbers;
  if (a === undefined || b === undefined || c === undefined || d === undefined || e === undefined || f === undefined) {
    return IDENTITY;
  }
  return [a, b, c, d, e, f];
}
