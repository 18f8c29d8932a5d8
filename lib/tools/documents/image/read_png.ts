import { asciiOf, type ByteSource, memorySource } from "./byte_source.ts";
import { type Colour, damaged, type ImageProperties, requireSize } from "./image_properties.ts";
import { type Exif, readExif } from "./read_exif.ts";

const MAX_CHUNKS = 4096;
const MAX_EXIF_BYTES = 262_144;
const INCHES_PER_METRE = 39.3701;
const COLOURS: Readonly<Record<number, readonly [Colour, alpha: boolean]>> = {
  0: ["gray", false],
  2: ["rgb", false],
  3: ["palette", false],
  4: ["gray", true],
  6: ["rgb", true],
};

/** Source: PNG third edition, sections 5 and 11 */
export async function readPng(source: ByteSource): Promise<ImageProperties> {
  const header = await source.part(8, 25);
  if (header.getUint32(0) !== 13 || asciiOf(header, 4, 4) !== "IHDR") {
    throw damaged("its first chunk is not the header");
  }
  const size = requireSize(header.getUint32(8), header.getUint32(12));
  const [colour, opaqueAlpha] = COLOURS[header.getUint8(17)] ?? [];
  if (colour === undefined) throw damaged("its colour type is unknown");
  let alpha = opaqueAlpha;
  let frames = 1;
  let dpi: readonly [number, number] | undefined;
  let exif: Exif | undefined;
  let at = 33;
  for (let chunks = 0; chunks < MAX_CHUNKS && at + 12 <= source.size; chunks++) {
    const chunk = await source.part(at, 8);
    const length = chunk.getUint32(0);
    const name = asciiOf(chunk, 4, 4);
    const content = at + 8;
    if (name === "IEND" || content + length > source.size) break;
    if (name === "tRNS") alpha = true;
    if (name === "acTL" && length === 8) frames = (await source.part(content, 4)).getUint32(0);
    if (name === "pHYs" && length === 9) dpi = densityOf(await source.part(content, 9));
    if (name === "eXIf" && length <= MAX_EXIF_BYTES) {
      exif = await readExif(memorySource(await source.part(content, length)));
    }
    at = content + length + 4;
  }
  return { format: "PNG", ...size, bitsPerSample: header.getUint8(16), colour, alpha, frames, dpi, exif };
}

function densityOf(view: DataView): readonly [number, number] | undefined {
  const perInch = (perMetre: number) => Math.round(perMetre / INCHES_PER_METRE);
  return view.getUint8(8) === 1 ? [perInch(view.getUint32(0)), perInch(view.getUint32(4))] : undefined;
}
