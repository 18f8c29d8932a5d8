import { Buffer } from "node:buffer";

/** Where a search looks, as one word of the index. */
export interface TextScope {
  readonly word: string;
  /** Whether the word says all of the prefix; otherwise keys have to be compared beside it */
  readonly whole: boolean;
}

/** The scopes a record is in, as words: its collection, and the part of its key up to the first slash. */
export function scopeWordsOf(collection: string, key: string): readonly string[] {
  const end = key.indexOf("/") + 1;
  return end === 0 ? [collectionWord(collection)] : [collectionWord(collection), prefixWord(collection, key, end)];
}

/** The narrowest scope that holds every key with this prefix. */
export function scopeOf(collection: string, prefix: string): TextScope {
  const end = prefix.indexOf("/") + 1;
  return end === 0
    ? { word: collectionWord(collection), whole: prefix === "" }
    : { word: prefixWord(collection, prefix, end), whole: end === prefix.length };
}

function collectionWord(collection: string): string {
  return `c${hex(collection)}`;
}

/** No hexadecimal digit is a "z", so no two pairs are one word. */
function prefixWord(collection: string, key: string, end: number): string {
  return `${collectionWord(collection)}z${hex(key.slice(0, end))}`;
}

function hex(text: string): string {
  return Buffer.from(text).toString("hex");
}
