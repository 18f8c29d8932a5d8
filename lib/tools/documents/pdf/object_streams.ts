import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import { isKeyword, parsePdfObject } from "./parse_pdf_object.ts";
import { createLexer } from "./pdf_lexer.ts";
import { isKind, type PdfObject, type PdfReader, type PdfStream } from "./pdf_object.ts";

const MAX_OBJECTS = 200_000;

/** Objects that stand in compressed streams. Source: ISO 32000-2, section 7.5.7 */
export interface ObjectStreams {
  /** The object of that number; null when the stream does not hold it */
  read(stream: number, object: { readonly index: number; readonly number: number }): PdfObject;
}

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

export function createObjectStreams({ budget, reader, decode, load }: ObjectStreamsOptions): ObjectStreams {
  const opened = new Map<number, Opened | undefined>();
  const open = (number: number): Opened | undefined => {
    const stream = load(number);
    if (!isKind(stream, "stream")) return undefined;
    const count = Math.min(reader.number(stream.dict, "N") ?? 0, MAX_OBJECTS);
    const first = reader.number(stream.dict, "First") ?? 0;
    const bytes = decode(stream);
    const lexer = createLexer(bytes);
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
      const object = parsePdfObject(createLexer(stream.bytes, start), { budget, references: true });
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
