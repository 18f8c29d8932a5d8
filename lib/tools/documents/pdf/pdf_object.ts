/** What a PDF file is made of. Source: ISO 32000-2, section 7.3 */
export type PdfObject = null | boolean | number | PdfName | PdfString | PdfRef | PdfDict | PdfStream | PdfArray;

export interface PdfName {
  readonly kind: "name";
  readonly name: string;
}

export interface PdfString {
  readonly kind: "string";
  /** One character from 0 to 255 a byte */
  readonly bytes: string;
}

export interface PdfRef {
  readonly kind: "ref";
  readonly number: number;
  readonly generation: number;
}

export interface PdfDict {
  readonly kind: "dict";
  readonly entries: ReadonlyMap<string, PdfObject>;
}

export interface PdfStream {
  readonly kind: "stream";
  readonly dict: PdfDict;
  /** As they stand in the file, before its filters; decrypted */
  readonly raw: () => Uint8Array;
}

export type PdfArray = readonly PdfObject[];

/** A word that is no object: an operator, a bracket, `obj`; empty at the end. */
export interface PdfKeyword {
  readonly kind: "keyword";
  readonly word: string;
}

export const EMPTY_DICT: PdfDict = { kind: "dict", entries: new Map() };

/** Follows references; null for what is not there. */
export type Resolve = (object: PdfObject | undefined) => PdfObject;

/** Whether an object is of a kind that carries one. */
export function isKind<K extends "name" | "string" | "ref" | "dict" | "stream">(
  object: PdfObject | PdfKeyword | undefined,
  kind: K,
): object is Extract<PdfObject, { readonly kind: K }> {
  return typeof object === "object" && object !== null && "kind" in object && object.kind === kind;
}

/** Reads the entries of dictionaries, with references followed. */
export interface PdfReader {
  readonly resolve: Resolve;
  get(dict: PdfDict, key: string): PdfObject;
  /** The dictionary of an entry, that of a stream too; undefined for another kind */
  dict(dict: PdfDict, key: string): PdfDict | undefined;
  /** Empty for another kind */
  array(dict: PdfDict, key: string): PdfArray;
  number(dict: PdfDict, key: string): number | undefined;
  name(dict: PdfDict, key: string): string | undefined;
  /** Bytes, as in PdfString */
  string(dict: PdfDict, key: string): string | undefined;
}

export function createReader(resolve: Resolve): PdfReader {
  const get = (dict: PdfDict, key: string) => resolve(dict.entries.get(key));
  return {
    resolve,
    get,
    dict: (dict, key) => toDict(get(dict, key)),
    array(dict, key) {
      const found = get(dict, key);
      return Array.isArray(found) ? found : [];
    },
    number(dict, key) {
      const found = get(dict, key);
      return typeof found === "number" && Number.isFinite(found) ? found : undefined;
    },
    name(dict, key) {
      const found = get(dict, key);
      return isKind(found, "name") ? found.name : undefined;
    },
    string(dict, key) {
      const found = get(dict, key);
      return isKind(found, "string") ? found.bytes : undefined;
    },
  };
}

/** A dictionary, or the one of a stream. */
export function toDict(object: PdfObject): PdfDict | undefined {
  return isKind(object, "dict") ? object : isKind(object, "stream") ? object.dict : undefined;
}
