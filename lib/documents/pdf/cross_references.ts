import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import { decodeStream } from "./decode_stream.ts";
import { isKeyword, isWord, latin1, parsePdfObject, PdfLexer } from "./pdf_parser.ts";
import { createReader, isKind, type PdfDict, type PdfObject, type PdfReader, type PdfStream } from "./pdf_object.ts";

const MAX_SECTIONS = 1000;
/** Where the end mark stands at the earliest, counted from the end */
const TAIL_BYTES = 2048;

/** Where an object stands: in the file, or in a stream of objects. */
export type Place =
  | { readonly kind: "offset"; readonly offset: number }
  | { readonly kind: "packed"; readonly stream: number; readonly index: number };

/** Where the objects of a file stand, and what its trailer says. */
export interface CrossReferences {
  readonly places: Map<number, Place>;
  readonly trailer: PdfDict;
}

/** The object that stands at an offset of the file, with its own number. */
export interface ObjectAt {
  readonly number: number;
  readonly object: PdfObject;
}

/**
 * The cross references of a file, newest first: tables, streams and both together.
 * @throws {DocumentError} `document_invalid` when they cannot be followed
 * Source: ISO 32000-2, sections 7.5.4 to 7.5.8
 */
export function readCrossReferences(bytes: Uint8Array, options: {
  readonly budget: WorkBudget;
  /** Reads the object at an offset */
  streamAt(offset: number): ObjectAt | undefined;
}): CrossReferences {
  const { budget } = options;
  // The values of a trailer are direct, or looked up later
  const reader = createReader((object) => object ?? null);
  const places = new Map<number, Place>();
  const waiting: number[] = [startOf(bytes)];
  const visited = new Set<number>();
  let trailer: PdfDict | undefined;
  for (let at = waiting.shift(); at !== undefined; at = waiting.shift()) {
    if (visited.has(at)) continue;
    visited.add(at);
    if (visited.size > MAX_SECTIONS) throw damaged();
    const lexer = new PdfLexer(bytes, at);
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
  const start = mark === -1 ? undefined : new PdfLexer(bytes, from + mark + 9).next();
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
      budget.step(8);
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
      budget.step();
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

const MAX_OBJECTS = 200_000;

/** Objects that stand in compressed streams. Source: ISO 32000-2, section 7.5.7 */
export interface ObjectStreams {
  /** The object of that number; null when the stream does not hold it */
  read(stream: number, object: { readonly index: number; readonly number: number }): PdfObject;
}

/** Options of reading object streams. */
export interface ObjectStreamsOptions {
  readonly budget: WorkBudget;
  readonly reader: PdfReader;
  decode(stream: PdfStream): Uint8Array;
  load(number: number): PdfObject;
}

interface Opened {
  readonly bytes: Uint8Array;
  /** Where the objects start, by number */
  readonly starts: ReadonlyMap<number, number>;
}

/** Creates the reader of objects that are packed into streams. */
export function createObjectStreams({ budget, reader, decode, load }: ObjectStreamsOptions): ObjectStreams {
  const opened = new Map<number, Opened | undefined>();
  const open = (number: number): Opened | undefined => {
    const stream = load(number);
    if (!isKind(stream, "stream")) return undefined;
    const count = Math.min(reader.number(stream.dict, "N") ?? 0, MAX_OBJECTS);
    const first = reader.number(stream.dict, "First") ?? 0;
    const bytes = decode(stream);
    const lexer = new PdfLexer(bytes);
    const starts = new Map<number, number>();
    for (let i = 0; i < count; i++) {
      const [object, offset] = [lexer.next(), lexer.next()];
      if (typeof object !== "number" || typeof offset !== "number") break;
      budget.keep(1);
      starts.set(object, first + offset);
    }
    return { bytes, starts };
  };
  return {
    read(number, { number: wanted }) {
      if (!opened.has(number)) {
        opened.set(number, undefined);
        opened.set(number, openOrNothing(() => open(number)));
      }
      const stream = opened.get(number);
      const start = stream?.starts.get(wanted);
      if (stream === undefined || start === undefined) return null;
      const object = parsePdfObject(new PdfLexer(stream.bytes, start), { budget, references: true });
      return isKeyword(object) ? null : object;
    },
  };
}

/** A damaged stream of objects leaves those of the others readable. */
function openOrNothing(open: () => Opened | undefined): Opened | undefined {
  try {
    return open();
  } catch (error) {
    if (error instanceof DocumentError && error.code === "document_invalid") return undefined;
    throw error;
  }
}

/** Characters of an object in which its type is looked for */
const HEAD = 400;
/** Objects in one stream of objects */
const MAX_PACKED = 200_000;

/** The objects of a file without usable cross references, found by their own words; the last of a number counts. */
export function searchObjects(
  bytes: Uint8Array,
  { budget, readAt }: { readonly budget: WorkBudget; readAt(offset: number): ObjectAt | undefined },
): CrossReferences {
  const text = latin1(bytes);
  const places = new Map<number, Place>();
  const trailers: PdfDict[] = [];
  const streams: number[] = [];
  const pages: PdfObject[] = [];
  let catalog: PdfObject | undefined;
  for (const match of text.matchAll(/\b(\d{1,9})\s{1,9}(\d{1,5})\s{1,9}obj\b/g)) {
    budget.step(8);
    budget.keep(1);
    const number = Number(match[1]);
    places.set(number, { kind: "offset", offset: match.index });
    const head = text.slice(match.index, match.index + HEAD);
    if (/\/Type\s{0,9}\/Catalog\b/.test(head)) catalog = { kind: "ref", number, generation: Number(match[2]) };
    if (/\/Type\s{0,9}\/Page\b/.test(head)) pages.push({ kind: "ref", number, generation: Number(match[2]) });
    if (head.includes("/ObjStm")) streams.push(match.index);
    if (!/\/Type\s{0,9}\/XRef\b/.test(head)) continue;
    const object = readAt(match.index)?.object ?? null;
    if (isKind(object, "stream")) trailers.push(object.dict);
  }
  for (const match of text.matchAll(/\btrailer\s{0,99}<</g)) {
    budget.step(8);
    const trailer = parsePdfObject(new PdfLexer(bytes, match.index + 7), { budget, references: true });
    if (isKind(trailer, "dict")) trailers.push(trailer);
  }
  for (const offset of streams) addPacked(readAt(offset), { places, budget });
  const trailer = trailers.reverse().find(({ entries }) => entries.has("Root"));
  const entries = new Map<string, PdfObject>(trailer?.entries);
  // A file that was cut off has lost its catalog, but not the pages before the cut
  if (!entries.has("Root")) entries.set("Root", catalog ?? dictOf("Pages", dictOf("Kids", pages)));
  return { places, trailer: { kind: "dict", entries } };
}

/** The numbers of the objects in a stream stand at its beginning. */
function addPacked(
  found: ObjectAt | undefined,
  { places, budget }: { readonly places: Map<number, Place>; readonly budget: WorkBudget },
): void {
  if (found === undefined || !isKind(found.object, "stream")) return;
  const reader = createReader((object) => object ?? null);
  const count = Math.min(reader.number(found.object.dict, "N") ?? 0, MAX_PACKED);
  try {
    const lexer = new PdfLexer(decodeStream(found.object, reader, budget));
    for (let index = 0; index < count; index++) {
      const number = lexer.next();
      if (typeof number !== "number" || typeof lexer.next() !== "number") return;
      budget.keep(1);
      if (!places.has(number)) places.set(number, { kind: "packed", stream: found.number, index });
    }
  } catch (error) {
    if (!(error instanceof DocumentError) || !["document_invalid", "document_unsupported"].includes(error.code)) {
      throw error;
    }
  }
}

function dictOf(key: string, value: PdfObject): PdfDict {
  return { kind: "dict", entries: new Map([[key, value]]) };
}
