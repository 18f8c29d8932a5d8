import { asciiOf, type ByteSource, memorySource } from "./byte_source.ts";
import { type Colour, damaged, type ImageProperties, requireSize } from "./image_properties.ts";
import { type Exif, readExif } from "./read_exif.ts";

const MAX_SEGMENTS = 2048;
const START_OF_SCAN = 0xda;
const COLOURS: Readonly<Record<number, Colour>> = { 1: "gray", 3: "rgb", 4: "cmyk" };

/** Source: ITU-T T.81, annex B; JFIF 1.02; Exif 3.0, section 4.5.4 */
export async function readJpeg(source: ByteSource): Promise<ImageProperties> {
  let dpi: readonly [number, number] | undefined;
  let exif: Exif | undefined;
  let at = 2;
  for (let segments = 0; segments < MAX_SEGMENTS; segments++) {
    const head = await source.part(at, 4);
    const marker = head.getUint8(1);
    if (head.getUint8(0) !== 0xff) throw damaged("a segment does not start where the one before it ends");
    if (marker === 0xff) {
      // Any number of fill bytes may stand before a marker
      at++;
      continue;
    }
    const length = head.getUint16(2);
    if (length < 2 || marker === START_OF_SCAN) break;
    const content = { at: at + 4, length: length - 2 };
    if (isFrame(marker)) {
      const frame = await source.part(content.at, 6);
      const size = requireSize(frame.getUint16(3), frame.getUint16(1));
      return {
        format: "JPEG",
        ...size,
        bitsPerSample: frame.getUint8(0),
        colour: COLOURS[frame.getUint8(5)],
        alpha: false,
        frames: 1,
        dpi,
        exif,
      };
    }
    if (marker === 0xe0 && content.length >= 12) dpi = densityOf(await source.part(content.at, 12)) ?? dpi;
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

/** SOF0 to SOF15, without the three of that range that are something else */
function isFrame(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
}

function densityOf(view: DataView): readonly [number, number] | undefined {
  if (asciiOf(view, 0, 5) !== "JFIF\0") return undefined;
  const [unit, x, y] = [view.getUint8(7), view.getUint16(8), view.getUint16(10)];
  if (unit === 1) return [x, y];
  return unit === 2 ? [Math.round(x * 2.54), Math.round(y * 2.54)] : undefined;
}
