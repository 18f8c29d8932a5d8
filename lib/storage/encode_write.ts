import { checkName, checkSeq } from "./check_arguments.ts";
import type { Write } from "./store.ts";

/** A checked write whose bodies are JSON texts: what the drivers apply. */
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
  | { readonly op: "delete"; readonly collection: string; readonly key: string }
  | { readonly op: "append"; readonly stream: string; readonly expectedSeq: number; readonly jsons: readonly string[] }
  | { readonly op: "drop"; readonly stream: string };

/**
 * Checks a write and takes a copy of it, so that a bad one fails alone and a body changed later is not written.
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
    case "append":
      return {
        op: "append",
        stream: checkName("stream", write.stream),
        expectedSeq: checkSeq(write.expectedSeq),
        jsons: write.records.map(toJson),
      };
    case "drop":
      return { op: "drop", stream: checkName("stream", write.stream) };
  }
}

function place(write: { readonly collection: string; readonly key: string }): { collection: string; key: string } {
  return { collection: checkName("collection", write.collection), key: checkName("key", write.key) };
}

function toJson(body: unknown): string {
  const json: string | undefined = JSON.stringify(body);
  if (json === undefined) throw new TypeError(`Cannot store a body of type ${typeof body}: it is not a JSON value`);
  return json;
}
