import { asciiOf, type ByteSource } from "./byte_source.ts";
import { damaged } from "./image_properties.ts";

const MAX_FIELDS = 1000;
const MAX_NUMBERS = 16;
const MAX_TEXT_BYTES = 1000;
const ASCII = 2;
/** Number of bytes of one value, by the number of its type: BYTE, ASCII, SHORT, LONG, RATIONAL, then the signed ones, FLOAT and DOUBLE */
const TYPE_BYTES = [0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8] as const;

/** The directories of a TIFF file. EXIF uses the same form. */
export interface Tiff {
  /** Offset of the first directory. */
  readonly first: number;
  /** Reads a directory. @throws {DocumentError} `document_invalid` */
  directory(offset: number): Promise<{ readonly fields: TiffFields; readonly next: number }>;
  /** Returns the offset of the directory after the one at `offset`; 0 after the last. */
  nextOf(offset: number): Promise<number>;
}

/** Values by tag. */
export interface TiffFields {
  /** Returns the first numbers of a tag, rationals as fractions. Empty when there is no such tag. */
  numbers(tag: number): readonly number[];
  /** Returns the text of a tag without control characters; undefined when there is none. */
  text(tag: number): string | undefined;
}

type Value = readonly number[] | string;

/** Opens the directories of a TIFF file. @throws {DocumentError} `document_invalid` when the header is none */
export async function openTiff(source: ByteSource): Promise<Tiff> {
  const header = await source.part(0, 8);
  const order = asciiOf(header, 0, 2);
  const little = order === "II";
  if ((!little && order !== "MM") || header.getUint16(2, little) !== 42) throw damaged("it has no TIFF header");

  const readValue = async (entry: DataView): Promise<Value | undefined> => {
    const type = entry.getUint16(2, little);
    const count = entry.getUint32(4, little);
    const each = TYPE_BYTES[type] ?? 0;
    if (each === 0) return undefined;
    const wanted = Math.min(count, type === ASCII ? MAX_TEXT_BYTES : MAX_NUMBERS);
    const inside = each * count <= 4;
    const at = entry.getUint32(8, little);
    const view = inside
      ? new DataView(entry.buffer, entry.byteOffset + 8, each * count)
      : await source.part(at, each * wanted).catch(() => undefined);
    if (view === undefined) return undefined;
    if (type === ASCII) return toText(view);
    return Array.from({ length: wanted }, (_, i) => toNumber(view, { at: i * each, type, little }));
  };

  const directory = async (offset: number) => {
    const count = (await source.part(offset, 2)).getUint16(0, little);
    if (count > MAX_FIELDS) throw damaged(`a directory of it has ${count} fields`);
    // A copy, since reading the values moves the window
    const part = await source.part(offset + 2, count * 12);
    const entries = new DataView(part.buffer.slice(part.byteOffset, part.byteOffset + count * 12));
    const values = new Map<number, Value>();
    for (let i = 0; i < count; i++) {
      const entry = new DataView(entries.buffer, i * 12, 12);
      const value = await readValue(entry);
      if (value !== undefined) values.set(entry.getUint16(0, little), value);
    }
    return { fields: toFields(values), next: await nextOf(offset) };
  };
  const nextOf = async (offset: number) => {
    const count = (await source.part(offset, 2)).getUint16(0, little);
    const at = offset + 2 + count * 12;
    return at + 4 > source.size ? 0 : (await source.part(at, 4)).getUint32(0, little);
  };
  return { first: header.getUint32(4, little), directory, nextOf };
}

function toFields(values: ReadonlyMap<number, Value>): TiffFields {
  return {
    numbers(tag) {
      const value = values.get(tag);
      return value === undefined || typeof value === "string" ? [] : value;
    },
    text(tag) {
      const value = values.get(tag);
      return typeof value === "string" && value !== "" ? value : undefined;
    },
  };
}

function toText(view: DataView): string {
  const text = new TextDecoder().decode(new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
  // It is shown to the model, so it must not make lines of its own
  // deno-lint-ignore no-control-regex
  return text.split("\0", 1).join("").replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ").trim();
}

interface NumberPlace {
  readonly at: number;
  readonly type: number;
  readonly little: boolean;
}

function toNumber(view: DataView, { at, type, little }: NumberPlace): number {
  switch (type) {
    case 3:
      return view.getUint16(at, little);
    case 4:
      return view.getUint32(at, little);
    case 5:
      return view.getUint32(at, little) / view.getUint32(at + 4, little);
    case 6:
      return view.getInt8(at);
    case 8:
      return view.getInt16(at, little);
    case 9:
      return view.getInt32(at, little);
    case 10:
      return view.getInt32(at, little) / view.getInt32(at + 4, little);
    case 11:
      return view.getFloat32(at, little);
    case 12:
      return view.getFloat64(at, little);
    default:
      return view.getUint8(at);
  }
}
