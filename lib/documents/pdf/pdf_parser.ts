import type { WorkBudget } from "../work_budget.ts";
import type { PdfKeyword, PdfName, PdfObject, PdfString } from "./pdf_object.ts";

const MAX_DEPTH = 60;
/** An empty dictionary takes as much memory as so many numbers */
const DICT_PARTS = 4;

/** Options of the parser. */
export interface ParseOptions {
  readonly budget: Pick<WorkBudget, "step" | "keep">;
  /** True when `5 0 R` is a reference. The contents of a page have no references */
  readonly references: boolean;
  /** Decrypts the strings that are read */
  readonly decrypt?: ((bytes: string) => string) | undefined;
}

/**
 * The next object, or the keyword that takes its place.
 * A value nested too deep becomes null. A value without an end ends with the file.
 */
export function parsePdfObject(lexer: PdfLexer, options: ParseOptions, depth = 0): PdfObject | PdfKeyword {
  options.budget.step(2);
  const token = lexer.next();
  if (typeof token === "number") return options.references ? numberOrReference(lexer, token) : token;
  if (token.kind === "string") {
    return options.decrypt === undefined ? token : { kind: "string", bytes: options.decrypt(token.bytes) };
  }
  if (token.kind === "name") return token;
  switch (token.word) {
    case "null":
      return null;
    case "true":
      return true;
    case "false":
      return false;
    case "[":
      return depth < MAX_DEPTH ? parseArray(lexer, options, depth) : null;
    case "<<":
      return depth < MAX_DEPTH ? parseDict(lexer, options, depth) : null;
    default:
      return token;
  }
}

function numberOrReference(lexer: PdfLexer, number: number): PdfObject {
  if (!Number.isInteger(number) || number < 0) return number;
  const back = lexer.position;
  const generation = lexer.next();
  if (typeof generation === "number" && Number.isInteger(generation) && generation >= 0 && isWord(lexer.next(), "R")) {
    return { kind: "ref", number, generation };
  }
  lexer.position = back;
  return number;
}

function parseArray(lexer: PdfLexer, options: ParseOptions, depth: number): PdfObject {
  const items: PdfObject[] = [];
  for (;;) {
    const item = parsePdfObject(lexer, options, depth + 1);
    if (isKeyword(item)) {
      if (item.word === "]" || item.word === "" || item.word === ">>" || item.word === "endobj") return items;
      continue;
    }
    options.budget.keep(1);
    items.push(item);
  }
}

function parseDict(lexer: PdfLexer, options: ParseOptions, depth: number): PdfObject {
  options.budget.keep(DICT_PARTS);
  const entries = new Map<string, PdfObject>();
  for (;;) {
    const key = lexer.next();
    options.budget.step(2);
    if (typeof key === "number" || key.kind === "string") continue;
    if (key.kind === "keyword") {
      if (["", ">>", "endobj", "stream"].includes(key.word)) break;
      continue;
    }
    const back = lexer.position;
    const value = parsePdfObject(lexer, options, depth + 1);
    if (isKeyword(value)) {
      // The key has no value, and the keyword is what ends the dictionary
      lexer.position = back;
      continue;
    }
    options.budget.keep(1);
    entries.set(key.name, value);
  }
  return { kind: "dict", entries };
}

/** Returns true when a token or object is the given keyword. */
export function isWord(token: PdfToken | PdfObject | PdfKeyword, word: string): boolean {
  return isKeyword(token) && token.word === word;
}

/** Returns true when a token is a keyword and not an object. */
export function isKeyword(token: PdfToken | PdfObject | PdfKeyword): token is PdfKeyword {
  return typeof token === "object" && token !== null && "kind" in token && token.kind === "keyword";
}

/** A number, name, string or keyword; brackets are keywords. */
export type PdfToken = number | PdfName | PdfString | PdfKeyword;

const SPACE = 1;
const DELIMITER = 2;
const NUMERIC = 4;
const KINDS = kindsOfBytes();

function kindsOfBytes(): Uint8Array {
  const kinds = new Uint8Array(256);
  for (const code of [0, 9, 10, 12, 13, 32]) kinds[code] = SPACE;
  for (const character of "()<>[]{}/%") kinds[character.charCodeAt(0)] = DELIMITER;
  for (const character of "+-.0123456789") kinds[character.charCodeAt(0)] = NUMERIC;
  return kinds;
}

/** n, r, t, b and f */
const ESCAPES: ReadonlyMap<number, number> = new Map([[110, 10], [114, 13], [116, 9], [98, 8], [102, 12]]);
const MAX_WORD = 128;

/** White space of PDF. */
export function isSpace(code: number | undefined): boolean {
  return code !== undefined && KINDS[code] === SPACE;
}

/**
 * Reads tokens one after the other, from an offset on. It never throws: bytes that are no token of PDF become a keyword.
 * Source: ISO 32000-2, sections 7.2 and 7.3
 */
export class PdfLexer {
  readonly bytes: Uint8Array;
  /** Where the next token is looked for; may be set */
  position: number;

  constructor(bytes: Uint8Array, start = 0) {
    this.bytes = bytes;
    this.position = start;
  }

  next(): PdfToken {
    this.#skipSpace();
    const code = this.bytes[this.position];
    if (code === undefined) return keyword("");
    switch (code) {
      case 0x2f:
        return this.#readName();
      case 0x28:
        return this.#readString();
      case 0x3c:
        if (this.bytes[this.position + 1] !== 0x3c) return this.#readHexString();
        this.position += 2;
        return keyword("<<");
      case 0x3e:
        this.position += this.bytes[this.position + 1] === 0x3e ? 2 : 1;
        return keyword(">>");
      case 0x5b:
      case 0x5d:
      case 0x7b:
      case 0x7d:
      case 0x29:
        this.position++;
        return keyword(String.fromCharCode(code));
      default:
        return KINDS[code] === NUMERIC ? this.#readNumber() : this.#readWord();
    }
  }

  #skipSpace(): void {
    for (; this.position < this.bytes.length; this.position++) {
      const code = this.bytes[this.position] ?? 0;
      if (KINDS[code] === SPACE) continue;
      // A comment goes to the end of its line
      if (code !== 0x25) return;
      while (
        this.position < this.bytes.length && this.bytes[this.position] !== 10 && this.bytes[this.position] !== 13
      ) {
        this.position++;
      }
    }
  }

  /** Reals as `-.5` and `4.`; broken writers double the sign or the point. */
  #readNumber(): number | PdfKeyword {
    const from = this.position;
    let value = 0;
    let scale = 0;
    let negative = false;
    let digits = 0;
    for (; this.#kindAt(this.position) === NUMERIC && this.position < this.bytes.length; this.position++) {
      const code = this.bytes[this.position] ?? 0;
      if (code === 0x2d) {
        if (digits === 0) negative = true;
      } else if (code === 0x2e) scale = scale === 0 ? 1 : scale;
      else if (code !== 0x2b && digits < 30) {
        digits++;
        value = value * 10 + code - 48;
        if (scale > 0) scale *= 10;
      }
    }
    if (digits === 0 && scale === 0) return this.#wordFrom(from);
    const number = scale > 1 ? value / scale : value;
    return negative ? -number : number;
  }

  #readWord(): PdfKeyword {
    const from = this.position;
    this.position++;
    this.#skipWord();
    return this.#wordFrom(from);
  }

  #wordFrom(from: number): PdfKeyword {
    return keyword(latin1(this.bytes.subarray(from, Math.min(this.position, from + MAX_WORD))));
  }

  #readName(): PdfName {
    const from = ++this.position;
    this.#skipWord();
    const name = latin1(this.bytes.subarray(from, Math.min(this.position, from + MAX_WORD)));
    if (!name.includes("#")) return { kind: "name", name };
    const decoded = name.replace(/#([0-9a-f]{2})/gi, (_whole, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
    return { kind: "name", name: decoded };
  }

  #readString(): PdfString {
    const from = ++this.position;
    let escaped = false;
    for (let depth = 1; this.position < this.bytes.length; this.position++) {
      const code = this.bytes[this.position];
      if (code === 0x28) depth++;
      else if (code === 0x29 && --depth === 0) break;
      else if (code === 0x5c) {
        escaped = true;
        this.position++;
      }
    }
    const content = this.bytes.subarray(from, Math.min(this.position, this.bytes.length));
    this.position++;
    return { kind: "string", bytes: latin1(escaped ? withoutEscapes(content) : content) };
  }

  #readHexString(): PdfString {
    const end = this.bytes.indexOf(0x3e, this.position);
    const text = latin1(this.bytes.subarray(this.position + 1, end === -1 ? this.bytes.length : end)).replace(
      /[^0-9a-fA-F]/g,
      "",
    );
    this.position = end === -1 ? this.bytes.length : end + 1;
    return { kind: "string", bytes: Buffer.from(text.length % 2 === 0 ? text : `${text}0`, "hex").toString("latin1") };
  }

  #skipWord(): void {
    while (this.position < this.bytes.length && (this.#kindAt(this.position) & (SPACE | DELIMITER)) === 0) {
      this.position++;
    }
  }

  #kindAt(at: number): number {
    return KINDS[this.bytes[at] ?? 0] ?? 0;
  }
}

/** Undoes the escapes of a string. */
function withoutEscapes(content: Uint8Array): Uint8Array {
  const plain = new Uint8Array(content.length);
  let length = 0;
  for (let at = 0; at < content.length; at++) {
    const code = content[at] ?? 0;
    if (code !== 0x5c) {
      plain[length++] = code;
      continue;
    }
    const escape = content[++at] ?? 10;
    if (isOctalDigit(escape)) {
      let value = 0;
      const end = Math.min(at + 3, content.length);
      for (; at < end && isOctalDigit(content[at]); at++) value = value * 8 + (content[at] ?? 48) - 48;
      at--;
      plain[length++] = value & 255;
    } else if (escape === 13 || escape === 10) {
      // The line goes on
      if (escape === 13 && content[at + 1] === 10) at++;
    } else plain[length++] = ESCAPES.get(escape) ?? escape;
  }
  return plain.subarray(0, length);
}

function isOctalDigit(code: number | undefined): boolean {
  return code !== undefined && code >= 48 && code <= 55;
}

/** Bytes as text of one character each. */
export function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

function keyword(word: string): PdfKeyword {
  return { kind: "keyword", word };
}
