import { asciiOf, type ByteSource } from "./byte_source.ts";
import { damaged, type ImageProperties } from "./image_properties.ts";

const ENTRY_BYTES = 16;
const MAX_PICTURES = 1024;
/** The byte of a side has no room for it */
const LARGEST_SIDE = 256;

interface Picture {
  readonly width: number;
  readonly height: number;
  readonly bitsPerPixel: number;
}

/**
 * Reads the directory of an icon. Its size is that of the largest picture, and `sizes` has those of all.
 * Source: Microsoft, "Icons" (ICONDIR, ICONDIRENTRY); since Windows Vista a picture may be a PNG
 */
export async function readIco(source: ByteSource): Promise<ImageProperties> {
  const count = (await source.part(4, 2)).getUint16(0, true);
  if (count === 0 || count > MAX_PICTURES) throw damaged(`its directory has ${count} pictures`);
  const pictures: Picture[] = [];
  for (let i = 0; i < count; i++) pictures.push(await readPicture(source, 6 + i * ENTRY_BYTES));
  const largest = pictures.reduce((best, picture) => isLarger(picture, best) ? picture : best);
  const palette = largest.bitsPerPixel > 0 && largest.bitsPerPixel <= 8;
  return {
    format: "ICO",
    width: largest.width,
    height: largest.height,
    bitsPerSample: palette ? largest.bitsPerPixel : 8,
    colour: palette ? "palette" : "rgb",
    // Each picture has a mask, or pixels that say how much of the background shows
    alpha: true,
    frames: count,
    sizes: pictures.map(({ width, height }) => [width, height] as const),
  };
}

async function readPicture(source: ByteSource, at: number): Promise<Picture> {
  const entry = await source.part(at, ENTRY_BYTES);
  const bitsPerPixel = entry.getUint16(6, true);
  const [width, height] = [entry.getUint8(0) || LARGEST_SIDE, entry.getUint8(1) || LARGEST_SIDE];
  const offset = entry.getUint32(12, true);
  const head = await source.part(offset, 24);
  // A PNG says its size itself, since it may be larger than an entry can say
  if (!asciiOf(head, 0, 8).startsWith("\x89PNG\r\n\x1a\n") || asciiOf(head, 12, 4) !== "IHDR") {
    return { width, height, bitsPerPixel };
  }
  const [ownWidth, ownHeight] = [head.getUint32(16), head.getUint32(20)];
  return ownWidth > 0 && ownHeight > 0
    ? { width: ownWidth, height: ownHeight, bitsPerPixel }
    : { width, height, bitsPerPixel };
}

/** Returns true when a picture has more pixels, or the same number and more colours. */
function isLarger(one: Picture, other: Picture): boolean {
  return (one.width * one.height - other.width * other.height || one.bitsPerPixel - other.bitsPerPixel) > 0;
}
