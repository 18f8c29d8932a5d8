import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import { decodeStream } from "./decode_stream.ts";
import type { CrossReferences, ObjectAt, Place } from "./open_pdf.ts";
import { isWord, parsePdfObject } from "./parse_pdf_object.ts";
import { createLexer, latin1, type PdfLexer } from "./pdf_lexer.ts";
import { createReader, isKind, type PdfDict, type PdfObject, type PdfReader, type PdfStream } from "./pdf_object.ts";

const MAX_SECTIONS = 1000;
/** Where the end mark stands at the earliest, counted from the end */
const TAIL_BYTES = 2048;

export interface CrossReferenceOptions {
  readonly budget: WorkBudget;
  /** Reads the object at an offset */
  streamAt(offset: number): ObjectAt | undefined;
}

/**
 * The cross references of a file, newest first: tables, streams and both together.
 * @throws {DocumentError} `document_invalid` when they cannot be followed
 * Source: ISO 32000-2, sections 7.5.4 to 7.5.8
 */
export function readCrossReferences(bytes: Uint8Array, options: CrossReferenceOptions): CrossReferences {
  const { budget } = options;
  // What stands in a trailer is direct, or is looked up later
  const reader = createReader((object) => object ?? null);
  const places = new Map<number, Place>();
  const waiting: number[] = [startOf(bytes)];
  const visited = new Set<number>();
  let trailer: PdfDict | undefined;
  for (let at = waiting.shift(); at !== undefined; at = waiting.shift()) {
    if (visited.has(at)) continue;
    visited.add(at);
    if (visited.size > MAX_SECTIONS) throw damaged();
    const lexer = createLexer(bytes, at);
    const section = isWord(lexer.next(), "xref")
      ? readTable(lexer, { places, budget })
      : readStream(options.streamAt(at)?.object ?? null, { places, reader, budget });
    trailer ??= section;
    for (const key of ["XRefStm", "Prev"]) {
      const next = reader.number(section, key);
      if (next !== undefined) waiting.push(next);
    }
  }
  if (trailer === undefined) throw damaged();
  return { places, trailer };
}

function startOf(bytes: Uint8Array): number {
  const from = Math.max(0, bytes.length - TAIL_BYTES);
  const mark = latin1(bytes.subarray(from)).lastIndexOf("startxref");
  const start = mark === -1 ? undefined : createLexer(bytes, from + mark + 9).next();
  if (typeof start !== "number") throw damaged();
  return start;
}

function readTable(
  lexer: PdfLexer,
  { places, budget }: { readonly places: Map<number, Place>; readonly budget: WorkBudget },
): PdfDict {
  for (;;) {
    const first = lexer.next();
    if (isWord(first, "trailer")) break;
    const count = lexer.next();
    if (typeof first !== "number" || typeof count !== "number") throw damaged();
    for (let i = 0; i < count; i++) {
      const offset = lexer.next();
      lexer.next();
      const kind = lexer.next();
      if (typeof offset !== "number") throw damaged();
      if (isWord(kind, "n") && offset > 0) add(places, first + i, { place: { kind: "offset", offset }, budget });
      else if (!isWord(kind, "f") && !isWord(kind, "n")) throw damaged();
    }
  }
  const trailer = parsePdfObject(lexer, { budget, references: true });
  if (!isKind(trailer, "dict")) throw damaged();
  return trailer;
}

interface StreamOptions {
  readonly places: Map<number, Place>;
  readonly reader: PdfReader;
  readonly budget: WorkBudget;
}

function readStream(object: PdfObject, { places, reader, budget }: StreamOptions): PdfDict {
  if (!isKind(object, "stream") || reader.name(object.dict, "Type") !== "XRef") throw damaged();
  const stream: PdfStream = object;
  const widths = reader.array(stream.dict, "W").map((width) => (typeof width === "number" ? width : 0));
  const [kindBytes = 0, secondBytes = 0, thirdBytes = 0] = widths;
  const entryBytes = kindBytes + secondBytes + thirdBytes;
  if (widths.some((width) => !Number.isInteger(width) || width < 0 || width > 8) || entryBytes < 1) throw damaged();
  const index = reader.array(stream.dict, "Index");
  const ranges = index.length > 0 ? index : [0, reader.number(stream.dict, "Size") ?? 0];
  const bytes = decodeStream(stream, reader, budget);
  let at = 0;
  const field = (width: number, missing: number) => {
    if (width === 0) return missing;
    let value = 0;
    for (let i = 0; i < width; i++) value = value * 256 + (bytes[at++] ?? 0);
    return value;
  };
  for (let range = 0; range + 1 < ranges.length; range += 2) {
    const [first, count] = [ranges[range], ranges[range + 1]];
    if (typeof first !== "number" || typeof count !== "number") throw damaged();
    for (let i = 0; i < count && at + entryBytes <= bytes.length; i++) {
      const kind = field(kindBytes, 1);
      const second = field(secondBytes, 0);
      const third = field(thirdBytes, 0);
      if (kind === 1) add(places, first + i, { place: { kind: "offset", offset: second }, budget });
      if (kind === 2) add(places, first + i, { place: { kind: "packed", stream: second, index: third }, budget });
    }
  }
  return stream.dict;
}

/** The newest section comes first, so what is known stays. */
function add(
  places: Map<number, Place>,
  number: number,
  { place, budget }: { readonly place: Place; readonly budget: WorkBudget },
): void {
  budget.step();
  if (places.has(number)) return;
  budget.keep(1);
  places.set(number, place);
}

function damaged(): DocumentError {
  return new DocumentError("document_invalid", "it is damaged: its cross references cannot be followed");
}
