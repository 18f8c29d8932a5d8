import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import { decodeStream } from "./decode_stream.ts";
import type { CrossReferences, ObjectAt, Place } from "./open_pdf.ts";
import { parsePdfObject } from "./parse_pdf_object.ts";
import { createLexer, latin1 } from "./pdf_lexer.ts";
import { createReader, isKind, type PdfDict, type PdfObject } from "./pdf_object.ts";

/** Characters of an object in which its type is looked for */
const HEAD = 400;
/** Objects in one stream of objects */
const MAX_PACKED = 200_000;

export interface SearchOptions {
  readonly budget: WorkBudget;
  readAt(offset: number): ObjectAt | undefined;
}

/** The objects of a file without usable cross references, found by their own words; the last of a number counts. */
export function searchObjects(bytes: Uint8Array, { budget, readAt }: SearchOptions): CrossReferences {
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
    const trailer = parsePdfObject(createLexer(bytes, match.index + 7), { budget, references: true });
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
    const lexer = createLexer(decodeStream(found.object, reader, budget));
    for (let index = 0; index < count; index++) {
      const number = lexer.next();
      if (typeof number !== "number" || typeof lexer.next() !== "number") return;
      budget.keep(1);
      if (!places.has(number)) places.set(number, { kind: "packed", stream: found.number, index });
    }
  } catch (error) {
    if (!(error instanceof DocumentError) || error.code === "document_too_large") throw error;
  }
}

function dictOf(key: string, value: PdfObject): PdfDict {
  return { kind: "dict", entries: new Map([[key, value]]) };
}
