/** A value in a PDF file. Source: ISO 32000-2, section 7.3 */
export type PdfObject = null | boolean | number | PdfName | PdfString | PdfRef | PdfDict | PdfStream | PdfArray;

/** A name object, written `/Name` in the file. */
export interface PdfName {
  readonly kind: "name";
  readonly name: string;
}

/** A string object. */
export interface PdfString {
  readonly kind: "string";
  /** The bytes of the string, each as a character from U+0000 to U+00FF */
  readonly bytes: string;
}

/** A reference to an indirect object, written `5 0 R` in the file. */
export interface PdfRef {
  readonly kind: "ref";
  readonly number: number;
  readonly generation: number;
}

/** A dictionary object. */
export interface PdfDict {
  readonly kind: "dict";
  readonly entries: ReadonlyMap<string, PdfObject>;
}

/** A stream object: its dictionary and its encoded bytes. */
export interface PdfStream {
  readonly kind: "stream";
  readonly dict: PdfDict;
  /** As they stand in the file, before its filters; decrypted */
  readonly raw: () => Uint8Array;
}

/** An array object. */
export type PdfArray = readonly PdfObject[];

/** A word that is no object: an operator, a bracket, `obj`; empty at the end. */
export interface PdfKeyword {
  readonly kind: "keyword";
  readonly word: string;
}

/** A dictionary without entries. */
export const EMPTY_DICT: PdfDict = { kind: "dict", entries: new Map() };

/** Follows references; null for what is not there. */
export type Resolve = (object: PdfObject | undefined) => PdfObject;

/** Returns true when an object is of the given tagged kind. */
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

/** Creates a reader that follows references and checks the kind of each value. */
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

/** Characters of PDFDocEncoding from 0x80 to 0xa0, which differ from Latin 1. */
const UPPER = "•†‡…—–ƒ⁄‹›−‰„“”‘’‚™ﬁﬂŁŒŠŸŽıłœšž\u009f€";

/**
 * Returns the text of a string outside of a page's contents: UTF-16 or UTF-8 with a mark, else PDFDocEncoding.
 * Source: ISO 32000-2, section 7.9.2.2 and annex D.3
 */
export function textString(bytes: string): string {
  const buffer = Buffer.from(bytes, "latin1");
  if (bytes.startsWith("\xfe\xff")) return new TextDecoder("utf-16be").decode(buffer);
  if (bytes.startsWith("\xff\xfe")) return new TextDecoder("utf-16le").decode(buffer);
  if (bytes.startsWith("\xef\xbb\xbf")) return new TextDecoder().decode(buffer);
  return bytes.replace(/[\u0080-\u009e\u00a0]/g, (byte) => UPPER[byte.charCodeAt(0) - 0x80] ?? "");
}
