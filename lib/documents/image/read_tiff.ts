import { asciiOf, type ByteSource, memorySource } from "./byte_source.ts";
import { type Colour, damaged, type Exif, type ImageProperties, requireSize } from "./image_properties.ts";

/** Longest block of EXIF data that an image reader hands on, in bytes. */
export const MAX_EXIF_BYTES = 262_144;

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

/** Reads the header of a TIFF or BigTIFF file: its first page, the number of pages and its EXIF fields. Source: TIFF 6.0, part 1 */
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
  if (!Number.isInteger(bitsPerSample) || bitsPerSample < 1) throw damaged(`its samples have ${bitsPerSample} bits`);
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

/**
 * Reads the EXIF data in a part of an image, which has the form of a TIFF file.
 * @returns undefined when the data is damaged, since the picture is readable without it
 */
export async function readExif(source: ByteSource): Promise<Exif | undefined> {
  try {
    const tiff = await openTiff(await withoutMark(source));
    return await exifOf(tiff, (await tiff.directory(tiff.first)).fields);
  } catch {
    return undefined;
  }
}

function densityOf(fields: TiffFields): readonly [number, number] | undefined {
  const [x] = fields.numbers(X_RESOLUTION);
  const [y] = fields.numbers(Y_RESOLUTION);
  const [unit = 2] = fields.numbers(RESOLUTION_UNIT);
  if (x === undefined || y === undefined || unit === 1) return undefined;
  const perUnit = unit === 3 ? 2.54 : 1;
  const perInch = [Math.round(x * perUnit), Math.round(y * perUnit)] as const;
  return perInch.every((dots) => between(dots, 1, 1e6) !== undefined) ? perInch : undefined;
}

const EXIF_DIRECTORY = 0x8769;
const GPS_DIRECTORY = 0x8825;

/**
 * Returns the EXIF fields that a TIFF directory and those it names hold; undefined when there are none.
 * Source: Exif 3.0, section 4.6
 */
async function exifOf(tiff: Tiff, fields: TiffFields): Promise<Exif | undefined> {
  const at = async (tag: number): Promise<TiffFields | undefined> => {
    const [offset] = fields.numbers(tag);
    if (offset === undefined) return undefined;
    return (await tiff.directory(offset).catch(() => undefined))?.fields;
  };
  const camera = await at(EXIF_DIRECTORY);
  const place = await at(GPS_DIRECTORY);
  const all = {
    orientation: between(fields.numbers(0x112)[0], 1, 8),
    description: fields.text(0x10e),
    make: fields.text(0x10f),
    model: fields.text(0x110),
    lens: camera?.text(0xa434),
    software: fields.text(0x131),
    artist: fields.text(0x13b),
    copyright: fields.text(0x8298),
    taken: camera?.text(0x9003),
    changed: fields.text(0x132),
    exposure_seconds: between(camera?.numbers(0x829a)[0], 0, 1e6),
    f_number: between(camera?.numbers(0x829d)[0], 0, 1000),
    iso: between(camera?.numbers(0x8827)[0], 1, 1e7),
    focal_length_mm: between(camera?.numbers(0x920a)[0], 0, 1e5),
    latitude: between(degrees(place, { reference: 1, value: 2, negative: "S" }), -90, 90),
    longitude: between(degrees(place, { reference: 3, value: 4, negative: "W" }), -180, 180),
    altitude_m: altitude(place),
  };
  const known = Object.entries(all).filter(([, value]) => value !== undefined);
  // The names and types are those above
  return known.length === 0 ? undefined : Object.fromEntries(known) as Exif;
}

function between(value: number | undefined, min: number, max: number): number | undefined {
  return value !== undefined && value >= min && value <= max ? value : undefined;
}

interface Tags {
  readonly reference: number;
  readonly value: number;
  readonly negative: string;
}

function degrees(fields: TiffFields | undefined, tags: Tags): number | undefined {
  const [whole, minutes = 0, seconds = 0] = fields?.numbers(tags.value) ?? [];
  if (whole === undefined) return undefined;
  const value = Math.round((whole + minutes / 60 + seconds / 3600) * 1e6) / 1e6;
  return fields?.text(tags.reference) === tags.negative ? -value : value;
}

function altitude(fields: TiffFields | undefined): number | undefined {
  const metres = between(fields?.numbers(6)[0], 0, 1e6);
  return metres === undefined || fields?.numbers(5)[0] !== 1 ? metres : -metres;
}

/** Some programs put the mark of JPEG before it everywhere. */
async function withoutMark(source: ByteSource): Promise<ByteSource> {
  const mark = await source.part(0, Math.min(6, source.size));
  if (mark.byteLength < 6 || asciiOf(mark, 0, 6) !== "Exif\0\0") return source;
  return memorySource(await source.part(6, source.size - 6));
}

const MAX_FIELDS = 1000;
const MAX_NUMBERS = 16;
const MAX_TEXT_BYTES = 1000;
const ASCII = 2;
/**
 * Number of bytes of one value, by the number of its type: BYTE, ASCII, SHORT, LONG, RATIONAL, then the signed ones, FLOAT and
 * DOUBLE, IFD, and LONG8, SLONG8 and IFD8 of BigTIFF
 */
const TYPE_BYTES: readonly number[] = [0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8];

/** The directories of a TIFF file. EXIF uses the same form. */
interface Tiff {
  /** Offset of the first directory. */
  readonly first: number;
  /** Reads a directory. @throws {DocumentError} `document_invalid` */
  directory(offset: number): Promise<{ readonly fields: TiffFields; readonly next: number }>;
  /** Returns the offset of the directory after the one at `offset`; 0 after the last. */
  nextOf(offset: number): Promise<number>;
}

/** Values by tag. */
interface TiffFields {
  /** Returns the first numbers of a tag, rationals as fractions. Empty when there is no such tag. */
  numbers(tag: number): readonly number[];
  /** Returns the text of a tag without control characters; undefined when there is none. */
  text(tag: number): string | undefined;
}

type Value = readonly number[] | string;

/** Numbers of bytes in the two forms of TIFF. */
interface Form {
  readonly little: boolean;
  /** Bytes of an offset and of a field's value */
  readonly offset: 4 | 8;
  /** Bytes of the number of a directory's fields */
  readonly count: 2 | 8;
  readonly entry: 12 | 20;
}

/**
 * Opens the directories of a TIFF or BigTIFF file.
 * @throws {DocumentError} `document_invalid` when the header is none
 * Source: TIFF 6.0, section 2; "The BigTIFF File Format" of the LibTIFF documentation
 */
async function openTiff(source: ByteSource): Promise<Tiff> {
  const header = await source.part(0, 8);
  const form = formOf(header);
  const reader = new DirectoryReader(source, form);
  const first = form.offset === 4
    ? header.getUint32(4, form.little)
    : readOffset(await source.part(8, 8), { at: 0, form });
  return {
    first,
    directory: (offset) => reader.directory(offset),
    nextOf: (offset) => reader.nextOf(offset),
  };
}

function formOf(header: DataView): Form {
  const order = asciiOf(header, 0, 2);
  const little = order === "II";
  const version = little || order === "MM" ? header.getUint16(2, little) : 0;
  if (version === 42) return { little, offset: 4, count: 2, entry: 12 };
  if (version === 43 && header.getUint16(4, little) === 8) return { little, offset: 8, count: 8, entry: 20 };
  throw damaged("it has no TIFF header");
}

class DirectoryReader {
  readonly #source: ByteSource;
  readonly #form: Form;

  constructor(source: ByteSource, form: Form) {
    this.#source = source;
    this.#form = form;
  }

  async directory(offset: number): Promise<{ readonly fields: TiffFields; readonly next: number }> {
    const { little, entry: each } = this.#form;
    const count = await this.#countAt(offset);
    if (count > MAX_FIELDS) throw damaged(`a directory of it has ${count} fields`);
    // A copy, since reading the values moves the window
    const part = await this.#source.part(offset + this.#form.count, count * each);
    const entries = new DataView(part.buffer.slice(part.byteOffset, part.byteOffset + count * each));
    const values = new Map<number, Value>();
    for (let i = 0; i < count; i++) {
      const entry = new DataView(entries.buffer, i * each, each);
      const value = await this.#valueOf(entry);
      if (value !== undefined) values.set(entry.getUint16(0, little), value);
    }
    return { fields: toFields(values), next: await this.nextOf(offset) };
  }

  async nextOf(offset: number): Promise<number> {
    const { offset: bytes, count, entry } = this.#form;
    const at = offset + count + (await this.#countAt(offset)) * entry;
    return at + bytes > this.#source.size
      ? 0
      : readOffset(await this.#source.part(at, bytes), { at: 0, form: this.#form });
  }

  async #countAt(offset: number): Promise<number> {
    const view = await this.#source.part(offset, this.#form.count);
    return this.#form.count === 2
      ? view.getUint16(0, this.#form.little)
      : readOffset(view, { at: 0, form: this.#form });
  }

  async #valueOf(entry: DataView): Promise<Value | undefined> {
    const { little, offset: bytes } = this.#form;
    const type = entry.getUint16(2, little);
    const count = readOffset(entry, { at: 4, form: this.#form });
    const each = TYPE_BYTES[type] ?? 0;
    if (each === 0) return undefined;
    const wanted = Math.min(count, type === ASCII ? MAX_TEXT_BYTES : MAX_NUMBERS);
    const inside = each * count <= bytes;
    const view = inside
      ? new DataView(entry.buffer, entry.byteOffset + 4 + bytes, each * count)
      : await this.#source.part(readOffset(entry, { at: 4 + bytes, form: this.#form }), each * wanted)
        .catch(() => undefined);
    if (view === undefined) return undefined;
    if (type === ASCII) return toText(view);
    return Array.from({ length: wanted }, (_, i) => toNumber(view, { at: i * each, type, little }));
  }
}

/** An offset or a count. What no double holds exactly leads out of every file. */
function readOffset(view: DataView, { at, form }: { readonly at: number; readonly form: Form }): number {
  return form.offset === 4 ? view.getUint32(at, form.little) : Number(view.getBigUint64(at, form.little));
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
  // The text is shown to the model inside a line, so control characters and line ends become spaces
  // deno-lint-ignore no-control-regex
  return text.split("\0", 1).join("").replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ").trim();
}

function toNumber(
  view: DataView,
  { at, type, little }: { readonly at: number; readonly type: number; readonly little: boolean },
): number {
  switch (type) {
    case 3:
      return view.getUint16(at, little);
    case 4:
    case 13:
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
    case 16:
    case 18:
      return Number(view.getBigUint64(at, little));
    case 17:
      return Number(view.getBigInt64(at, little));
    default:
      return view.getUint8(at);
  }
}
