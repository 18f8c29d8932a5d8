import { asciiOf, type ByteSource, memorySource } from "./byte_source.ts";
import { type Colour, damaged, type Exif, type ImageProperties, requireSize } from "./image_properties.ts";
import { MAX_EXIF_BYTES, readExif } from "./read_tiff.ts";

const MAX_CHUNKS = 4096;
/** Bytes that each frame of an animated PNG takes at least, so that a count beyond them is none */
const FRAME_BYTES = 38;
const INCHES_PER_METRE = 39.3701;
const PNG_COLOURS: Readonly<Record<number, readonly [Colour, alpha: boolean]>> = {
  0: ["gray", false],
  2: ["rgb", false],
  3: ["palette", false],
  4: ["gray", true],
  6: ["rgb", true],
};

/** Reads the header of a PNG. Source: PNG third edition, sections 5 and 11 */
export async function readPng(source: ByteSource): Promise<ImageProperties> {
  const header = await source.part(8, 25);
  if (header.getUint32(0) !== 13 || asciiOf(header, 4, 4) !== "IHDR") {
    throw damaged("its first chunk is not the header");
  }
  const size = requireSize(header.getUint32(8), header.getUint32(12));
  const [colour, opaqueAlpha] = PNG_COLOURS[header.getUint8(17)] ?? [];
  if (colour === undefined) throw damaged("its colour type is unknown");
  let alpha = opaqueAlpha;
  let frames: number | undefined = 1;
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
    if (name === "acTL" && length === 8) {
      const count = (await source.part(content, 4)).getUint32(0);
      frames = count > 0 && count * FRAME_BYTES <= source.size ? count : undefined;
    }
    if (name === "pHYs" && length === 9) dpi = pngDensity(await source.part(content, 9));
    if (name === "eXIf" && length <= MAX_EXIF_BYTES) {
      exif = await readExif(memorySource(await source.part(content, length)));
    }
    at = content + length + 4;
  }
  return { format: "PNG", ...size, bitsPerSample: header.getUint8(16), colour, alpha, frames, dpi, exif };
}

function pngDensity(view: DataView): readonly [number, number] | undefined {
  const perInch = (perMetre: number) => Math.round(perMetre / INCHES_PER_METRE);
  return view.getUint8(8) === 1 ? [perInch(view.getUint32(0)), perInch(view.getUint32(4))] : undefined;
}

/** Most sub-blocks of a GIF that are passed over, each of at most 255 bytes */
const MAX_BLOCKS = 200_000;
const EXTENSION = 0x21;
const IMAGE = 0x2c;
const GRAPHIC_CONTROL = 0xf9;

/** Reads the header of a GIF and counts its frames. Source: GIF89a specification, sections 18 to 26 */
export async function readGif(source: ByteSource): Promise<ImageProperties> {
  const screen = await source.part(6, 7);
  const size = requireSize(screen.getUint16(0, true), screen.getUint16(2, true));
  const flags = screen.getUint8(4);
  let at = 13 + tableBytes(flags);
  let frames = 0;
  let alpha = false;
  let blocks = 0;
  const skipBlocks = async () => {
    while (at < source.size && ++blocks < MAX_BLOCKS) {
      const length = (await source.part(at, 1)).getUint8(0);
      at += 1 + length;
      if (length === 0) return;
    }
  };
  while (at < source.size && ++blocks < MAX_BLOCKS) {
    const kind = (await source.part(at, 1)).getUint8(0);
    if (kind === EXTENSION && at + 4 <= source.size) {
      const head = await source.part(at, 4);
      if (head.getUint8(1) === GRAPHIC_CONTROL && (head.getUint8(3) & 1) === 1) alpha = true;
      at += 2;
      await skipBlocks();
    } else if (kind === IMAGE && at + 11 <= source.size) {
      frames++;
      at += 11 + tableBytes((await source.part(at, 10)).getUint8(9));
      await skipBlocks();
    } else break;
  }
  if (frames === 0) throw damaged("it has no picture");
  const bitsPerSample = (flags & 7) + 1;
  // In a file too long to be looked through their number is not known
  return {
    format: "GIF",
    ...size,
    bitsPerSample,
    colour: "palette",
    alpha,
    frames: blocks < MAX_BLOCKS ? frames : undefined,
  };
}

/** Bytes of the colour table that these flags announce. */
function tableBytes(flags: number): number {
  return (flags & 0x80) === 0 ? 0 : 3 * 2 ** ((flags & 7) + 1);
}

interface Picture {
  readonly width: number;
  readonly height: number;
  readonly alpha: boolean;
}

/** Reads the header of a WebP and counts its frames. Source: RFC 9649, sections 2.7 and 3.4; RFC 6386, section 9.1 */
export async function readWebp(source: ByteSource): Promise<ImageProperties> {
  let canvas: Picture | undefined;
  let frames = 0;
  let exif: Exif | undefined;
  let at = 12;
  for (let chunks = 0; chunks < MAX_CHUNKS && at + 8 <= source.size; chunks++) {
    const chunk = await source.part(at, 8);
    const name = asciiOf(chunk, 0, 4);
    const length = chunk.getUint32(4, true);
    const content = at + 8;
    if (content + length > source.size) break;
    if (name === "VP8X" && length >= 10) canvas = extended(await source.part(content, 10));
    if (name === "VP8 " && length >= 10) canvas ??= lossy(await source.part(content, 10));
    if (name === "VP8L" && length >= 5) canvas ??= lossless(await source.part(content, 5));
    if (name === "VP8 " || name === "VP8L" || name === "ANMF") frames++;
    if (name === "EXIF" && length <= MAX_EXIF_BYTES) {
      exif = await readExif(memorySource(await source.part(content, length)));
    }
    at = content + length + (length & 1);
  }
  if (canvas === undefined) throw damaged("it has no picture");
  return {
    format: "WebP",
    ...requireSize(canvas.width, canvas.height),
    bitsPerSample: 8,
    colour: "rgb",
    alpha: canvas.alpha,
    frames: Math.max(frames, 1),
    exif,
  };
}

function extended(view: DataView): Picture {
  const size = (at: number) => view.getUint16(at, true) + view.getUint8(at + 2) * 65_536 + 1;
  return { width: size(4), height: size(7), alpha: (view.getUint8(0) & 0x10) !== 0 };
}

function lossy(view: DataView): Picture {
  if (view.getUint8(3) !== 0x9d || view.getUint8(4) !== 0x01 || view.getUint8(5) !== 0x2a) {
    throw damaged("its picture has no header");
  }
  return { width: view.getUint16(6, true) & 0x3fff, height: view.getUint16(8, true) & 0x3fff, alpha: false };
}

function lossless(view: DataView): Picture {
  if (view.getUint8(0) !== 0x2f) throw damaged("its picture has no header");
  const bits = view.getUint32(1, true);
  return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1, alpha: (bits & 0x10000000) !== 0 };
}

const CORE_HEADER_BYTES = 12;

/** Reads the header of a BMP. Source: Microsoft, "Bitmap Header Types" */
export async function readBmp(source: ByteSource): Promise<ImageProperties> {
  const headerBytes = (await source.part(14, 4)).getUint32(0, true);
  if (headerBytes === CORE_HEADER_BYTES) {
    const header = await source.part(18, 8);
    const bits = header.getUint16(6, true);
    return {
      format: "BMP",
      ...requireSize(header.getUint16(0, true), header.getUint16(2, true)),
      ...depth(bits),
      frames: 1,
    };
  }
  if (headerBytes < 40 || headerBytes > 1000) throw damaged(`its header has ${headerBytes} bytes`);
  const header = await source.part(18, 36);
  // A negative height means that the first row is the top one
  const size = requireSize(header.getInt32(0, true), Math.abs(header.getInt32(4, true)));
  const perInch = (at: number) => Math.round(header.getInt32(at, true) / INCHES_PER_METRE);
  const dpi = perInch(20) > 0 && perInch(24) > 0 ? [perInch(20), perInch(24)] as const : undefined;
  return { format: "BMP", ...size, ...depth(header.getUint16(10, true)), frames: 1, dpi };
}

function depth(bitsPerPixel: number): Pick<ImageProperties, "bitsPerSample" | "colour" | "alpha"> {
  if (bitsPerPixel <= 8) return { bitsPerSample: bitsPerPixel, colour: "palette", alpha: false };
  return { bitsPerSample: bitsPerPixel === 16 ? 5 : 8, colour: "rgb", alpha: bitsPerPixel === 32 };
}

const MAX_SEGMENTS = 2048;
/** Bytes between two segments that are passed over */
const MAX_BETWEEN_BYTES = 1_048_576;
const BETWEEN_BYTES = 256;
const START_OF_SCAN = 0xda;
const JPEG_COLOURS: Readonly<Record<number, Colour>> = { 1: "gray", 3: "rgb", 4: "cmyk" };

/** Reads the header of a JPEG. Source: ITU-T T.81, annex B; JFIF 1.02; Exif 3.0, section 4.5.4 */
export async function readJpeg(source: ByteSource): Promise<ImageProperties> {
  let dpi: readonly [number, number] | undefined;
  let exif: Exif | undefined;
  let at = 2;
  for (let segments = 0; segments < MAX_SEGMENTS; segments++) {
    at = await nextMarker(source, at);
    const marker = (await source.part(at, 2)).getUint8(1);
    if (standsAlone(marker)) {
      at += 2;
      continue;
    }
    const length = (await source.part(at, 4)).getUint16(2);
    if (length < 2 || marker === START_OF_SCAN) break;
    const content = { at: at + 4, length: length - 2 };
    if (isFrame(marker)) {
      const frame = await source.part(content.at, 6);
      const size = requireSize(frame.getUint16(3), frame.getUint16(1));
      return {
        format: "JPEG",
        ...size,
        bitsPerSample: frame.getUint8(0),
        colour: JPEG_COLOURS[frame.getUint8(5)],
        alpha: false,
        frames: 1,
        dpi,
        exif,
      };
    }
    if (marker === 0xe0 && content.length >= 12) dpi = jpegDensity(await source.part(content.at, 12)) ?? dpi;
    if (marker === 0xe1 && content.length > 6) {
      const segment = await source.part(content.at, content.length);
      if (asciiOf(segment, 0, 6) === "Exif\0\0") {
        exif ??= await readExif(memorySource(new DataView(segment.buffer, segment.byteOffset + 6, content.length - 6)));
      }
    }
    at += 2 + length;
  }
  throw damaged("it has no frame header");
}

/**
 * Returns where the next marker starts. Other bytes before it are passed over: fill bytes, which T.81 allows, and what a program left
 * between two segments, which every reader tolerates.
 */
async function nextMarker(source: ByteSource, from: number): Promise<number> {
  let last = 0;
  for (let at = from; at < source.size && at - from < MAX_BETWEEN_BYTES; at += BETWEEN_BYTES) {
    const part = await source.part(at, Math.min(BETWEEN_BYTES, source.size - at));
    for (let i = 0; i < part.byteLength; i++) {
      const code = part.getUint8(i);
      // After 0xff, a zero is a byte of the picture and another 0xff fills
      if (last === 0xff && code !== 0xff && code !== 0) return at + i - 1;
      last = code;
    }
  }
  throw damaged("no segment follows where one ends");
}

/** TEM, RST0 to RST7, SOI and EOI have no length */
function standsAlone(marker: number): boolean {
  return marker === 0x01 || (marker >= 0xd0 && marker <= 0xd9);
}

/** SOF0 to SOF15, without the three of that range that are something else */
function isFrame(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
}

function jpegDensity(view: DataView): readonly [number, number] | undefined {
  if (asciiOf(view, 0, 5) !== "JFIF\0") return undefined;
  const [unit, x, y] = [view.getUint8(7), view.getUint16(8), view.getUint16(10)];
  if (unit === 1) return [x, y];
  return unit === 2 ? [Math.round(x * 2.54), Math.round(y * 2.54)] : undefined;
}
