import { toStoredJson } from "../base/records/stored_object.ts";
import { isLonger } from "../base/text.ts";
import type { ScanOptions, Write } from "./store.ts";
import { toUnit } from "./vectors.ts";

/** A checked write for the drivers. Its bodies are JSON texts. */
export type EncodedWrite =
  | {
    readonly op: "put" | "insert";
    readonly collection: string;
    readonly key: string;
    readonly json: string;
    readonly text: string | undefined;
  }
  | {
    readonly op: "putIf";
    readonly collection: string;
    readonly key: string;
    readonly version: number;
    readonly json: string;
    readonly text: string | undefined;
  }
  | { readonly op: "append"; readonly stream: string; readonly expectedSeq: number; readonly jsons: readonly string[] }
  | Extract<Write, { readonly op: "delete" | "vector" | "check" | "drop" }>;

/**
 * Checks a write and copies its bodies, so that a bad write fails alone and a body that changes later is not written.
 * @throws {TypeError} a body JSON cannot carry, a bad name. @throws {RangeError} a bad version or position
 */
export function encodeWrite(write: Write): EncodedWrite {
  switch (write.op) {
    case "put":
    case "insert":
      return { op: write.op, ...place(write), json: toJson(write.body), text: write.text };
    case "putIf":
      return {
        op: "putIf",
        ...place(write),
        version: checkSeq(write.version),
        json: toJson(write.body),
        text: write.text,
      };
    case "delete":
      return { op: "delete", ...place(write) };
    case "vector": {
      const { model, values } = write.vector;
      return {
        op: "vector",
        ...place(write),
        version: checkSeq(write.version),
        vector: { model, values: toUnit(values) },
      };
    }
    case "check":
      return { op: "check", ...place(write), version: checkSeq(write.version) };
    case "append":
      return {
        op: "append",
        stream: checkName("stream", write.stream),
        expectedSeq: checkSeq(write.expectedSeq),
        // Records of a stream are never written again, so they carry nothing
        jsons: write.records.map((record) => checked(record, JSON.stringify(record))),
      };
    case "drop":
      return { op: "drop", stream: checkName("stream", write.stream) };
  }
}

function place(write: { readonly collection: string; readonly key: string }): { collection: string; key: string } {
  return { collection: checkName("collection", write.collection), key: checkName("key", write.key) };
}

function toJson(body: unknown): string {
  return checked(body, toStoredJson(body));
}

function checked(body: unknown, json: string | undefined): string {
  if (json === undefined) throw new TypeError(`Cannot store a body of type ${typeof body}: it is not a JSON value`);
  return json;
}

const MAX_KEY_BYTES = 2048;
const MAX_LIMIT = 1000;

/**
 * Checks a collection, stream or key: 1-2048 bytes of valid Unicode without NUL, which every driver can keep.
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

/** Checks a limit of records. @throws {RangeError} unless it is a whole number of 1-1000 */
export function checkLimit(limit: ScanOptions["limit"]): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= MAX_LIMIT) return limit;
  throw new RangeError(`Cannot read ${limit} records: the limit must be a whole number of 1-${MAX_LIMIT}`);
}

/** Checks a position in a stream. @throws {RangeError} unless it is a whole number of 0 or more */
export function checkSeq(seq: number): number {
  if (Number.isSafeInteger(seq) && seq >= 0) return seq;
  throw new RangeError(`Cannot use ${seq} as a position: it must be a whole number of 0 or more`);
}
