import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import type { CharacterMap } from "./character_map.ts";
import { createDecryptor, type Decryptor } from "./decryptor.ts";
import { decodeStream } from "./decode_stream.ts";
import {
  createObjectStreams,
  type CrossReferences,
  type ObjectAt,
  readCrossReferences,
  searchObjects,
} from "./cross_references.ts";
import { isKeyword, isSpace, isWord, latin1, parsePdfObject, PdfLexer } from "./pdf_parser.ts";
import { readPredefinedMap } from "./predefined_map.ts";
import { createReader, isKind, type PdfDict, type PdfObject, type PdfReader, type PdfStream } from "./pdf_object.ts";

const MAX_REFERENCES = 20;
/** Objects that are loaded at once, each because the one before it needs it for its own length or place */
const MAX_LOADING = 100;
/** Where the header may stand at the latest */
const HEADER_BYTES = 1024;
const END_OF_STREAM = Buffer.from("endstream");

/** An open PDF file. */
export interface PdfFile {
  readonly reader: PdfReader;
  readonly catalog: PdfDict;
  readonly trailer: PdfDict;
  /** True when the cross references are damaged or cut off, so that the objects were looked for: pages may be missing */
  readonly isRepaired: boolean;
  /** All objects in the order of their numbers, without those that cannot be read. @throws {DocumentError} over a bound */
  objects(): Iterable<PdfObject>;
  /** The content of a stream. @throws {DocumentError} */
  decode(stream: PdfStream): Uint8Array;
  /** Returns a predefined CMap by its name, loaded once for the whole file; undefined when there is none of that name. */
  predefinedMap(name: string): CharacterMap | undefined;
}

/**
 * Opens a PDF file by its cross references; where those are damaged, by looking for its objects.
 * @throws {DocumentError} no PDF file, one that needs a password, or one over a bound
 * Source: ISO 32000-2, section 7.5
 */
export function openPdf(all: Uint8Array, budget: WorkBudget): PdfFile {
  if (all.length === 0) throw new DocumentError("document_invalid", "it is empty");
  const header = latin1(all.subarray(0, HEADER_BYTES)).indexOf("%PDF-");
  if (header === -1) throw new DocumentError("document_invalid", "it is no PDF file");
  // Offsets count from the header, whatever stands before it
  const bytes = all.subarray(header);
  try {
    const found = readCrossReferences(bytes, { budget, streamAt: (offset) => readAt(bytes, offset, { budget }) });
    const file = openWith(bytes, found, budget);
    if (file?.reader.dict(file.catalog, "Pages") !== undefined) return { ...file, isRepaired: false };
  } catch (error) {
    if (!(error instanceof DocumentError) || error.code !== "document_invalid") throw error;
  }
  const file = openWith(
    bytes,
    // A page may be there without the tree of pages
    searchObjects(bytes, { budget, readAt: (offset) => readAt(bytes, offset, { budget }) }),
    budget,
  );
  if (file === undefined) throw new DocumentError("document_invalid", "it is damaged or cut off: it has no catalog");
  return { ...file, isRepaired: true };
}

/** @returns undefined when the references do not lead to a catalog */
function openWith(
  bytes: Uint8Array,
  { places, trailer }: CrossReferences,
  budget: WorkBudget,
): Omit<PdfFile, "isRepaired"> | undefined {
  const loaded = new Map<number, PdfObject>();
  const loading = new Set<number>();
  let decryptor: Decryptor | undefined;
  const resolve = (object: PdfObject | undefined): PdfObject => {
    let found = object ?? null;
    for (let i = 0; isKind(found, "ref"); i++) {
      if (i >= MAX_REFERENCES) return null;
      found = load(found.number);
    }
    return found;
  };
  const reader = createReader(resolve);
  const packed = createObjectStreams({
    budget,
    decode: (stream) => decodeStream(stream, reader, budget),
    load: (number) => load(number),
    reader,
  });
  const load = (number: number): PdfObject => {
    const known = loaded.get(number);
    if (known !== undefined) return known;
    const place = places.get(number);
    // An object whose length, or whose stream, is itself
    if (place === undefined || loading.has(number) || loading.size >= MAX_LOADING) return null;
    loading.add(number);
    try {
      const object = place.kind === "packed"
        ? packed.read(place.stream, { index: place.index, number })
        : readAt(bytes, place.offset, { budget, resolve, decryptor, number })?.object ?? null;
      loaded.set(number, object);
      return object;
    } finally {
      loading.delete(number);
    }
  };
  const encryption = reader.dict(trailer, "Encrypt");
  if (encryption !== undefined) {
    const [id] = reader.array(trailer, "ID");
    const first = resolve(id);
    decryptor = createDecryptor(encryption, { reader, id: isKind(first, "string") ? first.bytes : "" });
    loaded.clear();
  }
  const catalog = reader.dict(trailer, "Root");
  if (catalog === undefined) return undefined;
  const maps = new Map<string, CharacterMap | undefined>();
  return {
    reader,
    catalog,
    trailer,
    *objects() {
      for (const number of [...places.keys()].sort((a, b) => a - b)) {
        budget.step(20);
        try {
          yield load(number);
        } catch (error) {
          if (!(error instanceof DocumentError) || error.code !== "document_invalid") throw error;
        }
      }
    },
    decode: (stream) => decodeStream(stream, reader, budget),
    predefinedMap(name) {
      if (!maps.has(name)) maps.set(name, readPredefinedMap(name, budget));
      return maps.get(name);
    },
  };
}

interface ReadOptions {
  readonly budget: WorkBudget;
  readonly resolve?: (object: PdfObject | undefined) => PdfObject;
  readonly decryptor?: Decryptor | undefined;
  /** The object that should stand there */
  readonly number?: number;
}

/** `5 0 obj ... endobj` at an offset; undefined for anything else. */
function readAt(bytes: Uint8Array, offset: number, options: ReadOptions): ObjectAt | undefined {
  const { budget, resolve = (object) => object ?? null, decryptor } = options;
  const lexer = new PdfLexer(bytes, offset);
  const number = lexer.next();
  const generation = lexer.next();
  if (typeof number !== "number" || typeof generation !== "number" || !isWord(lexer.next(), "obj")) return undefined;
  if (options.number !== undefined && options.number !== number) return undefined;
  const id = { number, generation };
  const object = parsePdfObject(lexer, {
    budget,
    references: true,
    decrypt: decryptor === undefined ? undefined : (text) => decryptor.string(text, id),
  });
  if (isKeyword(object)) return { number, object: null };
  if (!isKind(object, "dict")) return { number, object };
  if (!isWord(lexer.next(), "stream")) return { number, object };
  let start = lexer.position;
  if (bytes[start] === 13) start++;
  if (bytes[start] === 10) start++;
  const length = resolve(object.entries.get("Length"));
  const raw = bytes.subarray(start, endOfStream(bytes, { start, length, budget }));
  const type = object.entries.get("Type");
  const plain = decryptor === undefined || (isKind(type, "name") && type.name === "XRef");
  return {
    number,
    object: { kind: "stream", dict: object, raw: plain ? () => raw : () => decryptor.stream(raw, id) },
  };
}

/** A length that does not lead to the end mark is not believed. */
function endOfStream(
  bytes: Uint8Array,
  { start, length, budget }: { readonly start: number; readonly length: PdfObject; readonly budget: WorkBudget },
): number {
  if (typeof length === "number" && length >= 0 && start + length <= bytes.length) {
    let at = start + length;
    while (isSpace(bytes[at])) at++;
    if (END_OF_STREAM.every((code, i) => bytes[at + i] === code)) return start + length;
  }
  budget.step(4096);
  const found = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).indexOf(END_OF_STREAM, start);
  return found === -1 ? bytes.length : found;
}
