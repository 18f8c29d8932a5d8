import { isLonger } from "../base/is_longer.ts";
import type { ScanOptions } from "./store.ts";

const MAX_KEY_BYTES = 2048;
const MAX_LIMIT = 1000;

/**
 * A collection, stream or key as every driver can keep it: 1-2048 bytes of valid Unicode without NUL.
 * @throws {TypeError} for anything else: two such keys could become one on disk
 */
export function checkName(kind: "collection" | "stream" | "key", name: string): string {
  const shown = JSON.stringify(name.slice(0, 80));
  if (name === "") throw new TypeError(`Cannot use an empty ${kind}`);
  if (name.includes("\0") || !name.isWellFormed()) {
    throw new TypeError(`Cannot use ${kind} ${shown}: it must be valid Unicode without NUL`);
  }
  if (isLonger(name, MAX_KEY_BYTES)) {
    throw new TypeError(`Cannot use ${kind} ${shown}: it is longer than ${MAX_KEY_BYTES} bytes`);
  }
  return name;
}

/** @throws {RangeError} unless it is a whole number of 1-1000 */
export function checkLimit(limit: ScanOptions["limit"]): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= MAX_LIMIT) return limit;
  throw new RangeError(`Cannot read ${limit} records: the limit must be a whole number of 1-${MAX_LIMIT}`);
}

/** @throws {RangeError} unless it is a whole number of 0 or more */
export function checkSeq(seq: number): number {
  if (Number.isSafeInteger(seq) && seq >= 0) return seq;
  throw new RangeError(`Cannot use ${seq} as a position: it must be a whole number of 0 or more`);
}
