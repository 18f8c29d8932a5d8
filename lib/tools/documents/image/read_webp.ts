import { asciiOf, type ByteSource, memorySource } from "./byte_source.ts";
import { damaged, type ImageProperties, requireSize } from "./image_properties.ts";
import { type Exif, readExif } from "./read_exif.ts";

const MAX_CHUNKS = 4096;
const MAX_EXIF_BYTES = 262_144;

interface Picture {
  readonly width: number;
  readonly height: number;
  readonly alpha: boolean;
}

/** Source: RFC 9649, sections 2.7 and 3.4; RFC 6386, section 9.1 */
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
