import { asciiOf, type ByteSource, memorySource } from "./byte_source.ts";
import { openTiff, type Tiff, type TiffFields } from "./tiff_fields.ts";

const EXIF_DIRECTORY = 0x8769;
const GPS_DIRECTORY = 0x8825;
/** Longest block of EXIF data that an image reader hands on, in bytes. */
export const MAX_EXIF_BYTES = 262_144;

/** Data that a camera or program stored about a picture. */
export interface Exif {
  /** EXIF orientation, 1 to 8: the turn a viewer applies. Undefined or 1: no turn */
  readonly orientation?: number;
  readonly description?: string;
  readonly make?: string;
  readonly model?: string;
  readonly lens?: string;
  readonly software?: string;
  readonly artist?: string;
  readonly copyright?: string;
  /** As written: `2026:05:04 03:02:01`, in the camera's own time */
  readonly taken?: string;
  readonly changed?: string;
  readonly exposure_seconds?: number;
  readonly f_number?: number;
  readonly iso?: number;
  readonly focal_length_mm?: number;
  /** Degrees, north and east positive */
  readonly latitude?: number;
  readonly longitude?: number;
  readonly altitude_m?: number;
}

/** EXIF data in a part of an image; undefined when it is damaged, since the picture is readable without it. */
export async function readExif(source: ByteSource): Promise<Exif | undefined> {
  try {
    const tiff = await openTiff(await withoutMark(source));
    return await exifOf(tiff, (await tiff.directory(tiff.first)).fields);
  } catch {
    return undefined;
  }
}

/**
 * The EXIF fields that a TIFF directory and those it names hold; undefined when there are none.
 * Source: Exif 3.0, section 4.6
 */
export async function exifOf(tiff: Tiff, fields: TiffFields): Promise<Exif | undefined> {
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
