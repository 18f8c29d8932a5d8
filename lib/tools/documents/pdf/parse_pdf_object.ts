import type { WorkBudget } from "../work_budget.ts";
import type { PdfLexer, PdfToken } from "./pdf_lexer.ts";
import type { PdfKeyword, PdfObject } from "./pdf_object.ts";

const MAX_DEPTH = 60;
/** An empty dictionary takes as much memory as so many numbers */
const DICT_PARTS = 4;

export interface ParseOptions {
  readonly budget: Pick<WorkBudget, "step" | "keep">;
  /** Whether `5 0 R` is a reference; in the contents of a page there are none */
  readonly references: boolean;
  /** What strings are decrypted by */
  readonly decrypt?: ((bytes: string) => string) | undefined;
}

/**
 * The next object, or the keyword that stands in its place.
 * What is nested too deep is null, and what does not end, ends with the file.
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

/** Whether a token or object is the keyword. */
export function isWord(token: PdfToken | PdfObject | PdfKeyword, word: string): boolean {
  return isKeyword(token) && token.word === word;
}

/** Whether it is a keyword and no object. */
export function isKeyword(token: PdfToken | PdfObject | PdfKeyword): token is PdfKeyword {
  return typeof token === "object" && token !== null && "kind" in token && token.kind === "keyword";
}
