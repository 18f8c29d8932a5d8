import type { ByteSource } from "./byte_source.ts";
import { type Colour, damaged, type ImageProperties, requireSize } from "./image_properties.ts";
import { exifOf } from "./read_exif.ts";
import { openTiff, type TiffFields } from "./tiff_fields.ts";

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
