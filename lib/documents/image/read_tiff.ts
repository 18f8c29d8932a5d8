import { asciiOf, type ByteSource } from "./byte_source.ts";
import { type Colour, damaged, type ImageProperties, requireSize } from "./image_properties.ts";
import { exifOf } from "./read_exif.ts";

const MAX_PAGES = 1000;
const WIDTH = 0x100;
const HEIGHT = 0x101;
const BITS = 0x102;
const PHOTOMETRIC = 0x106;
const X_RESOLUTION = 0x11a;
const Y_RESOLUTION = 0x11b;
const RESOLUTION_UNIT = 0x128;
const EXTRA_SAMPLES = 0x152;
const COLOURS: Readonly<Record<number, Colour>> = {
  0: "gray",
  1: "gray",
  2: "rgb",
  3: "palette",
  5: "cmyk",
  6: "rgb",
  8: "lab",
};

/** Source: TIFF 6.0, part 1 */
export async function readTiff(source: ByteSource): Promise<ImageProperties> {
  const tiff = await openTiff(source);
  const first = await tiff.directory(tiff.first);
  let frames = 1;
  for (let next = first.next; next !== 0 && frames < MAX_PAGES; frames++) {
    const page = await tiff.nextOf(next).catch(() => undefined);
    if (page === undefined) break;
    next = page;
  }
  const { fields } = first;
  const [width] = fields.numbers(WIDTH);
  const [height] = fields.numbers(HEIGHT);
  if (width === undefined || height === undefined) throw damaged("its first page has no size");
  const [bitsPerSample = 1] = fields.numbers(BITS);
  const colour = COLOURS[fields.numbers(PHOTOMETRIC)[0] ?? -1];
  return {
    format: "TIFF",
    ...requireSize(width, height),
    bitsPerSample,
    colour: bitsPerSample === 1 && colour === "gray" ? "black and white" : colour,
    alpha: fields.numbers(EXTRA_SAMPLES).some((kind) => kind === 1 || kind === 2),
    frames,
    dpi: densityOf(fields),
    exif: await exifOf(tiff, fields),
  };
}

function densityOf(fields: TiffFields): readonly [number, number] | undefined {
  const [x] = fields.numbers(X_RESOLUTION);
  const [y] = fields.numbers(Y_RESOLUTION);
  const [unit = 2] = fields.numbers(RESOLUTION_UNIT);
  if (x === undefined || y === undefined || unit === 1) return undefined;
  const perUnit = unit === 3 ? 2.54 : 1;
  return [Math.round(x * perUnit), Math.round(y * perUnit)];
}

const MAX_FIELDS = 1000;
const MAX_NUMBERS = 16;
const MAX_TEXT_BYTES = 1000;
const ASCII = 2;
/** Bytes of one value, by its type's number: BYTE, ASCII, SHORT, LONG, RATIONAL, then the signed ones, FLOAT and DOUBLE */
const TYPE_BYTES = [0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8] as const;

/** The directories of a TIFF file, as EXIF uses them too. */
export interface Tiff {
  /** Where the first directory stands */
  readonly first: number;
  /** Reads a directory. @throws {DocumentError} `document_invalid` */
  directory(offset: number): Promise<{ readonly fields: TiffFields; readonly next: number }>;
  /** Where the directory after the one at `offset` stands; 0 when it is the last */
  nextOf(offset: number): Promise<number>;
}

/** Values by tag. */
export interface TiffFields {
  /** The first few of a tag's numbers; rationals as fractions; empty when there is no such tag */
  numbers(tag: number): readonly number[];
  /** A tag's text, without control characters; undefined when there is none */
  text(tag: number): string | undefined;
}

type Value = readonly number[] | string;

/** @throws {DocumentError} `document_invalid` when the header is none */
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
