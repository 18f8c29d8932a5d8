import type { ByteSource } from "./byte_source.ts";
import { damaged, type ImageProperties, requireSize } from "./image_properties.ts";

/** Of at most 255 bytes each */
const MAX_BLOCKS = 200_000;
const EXTENSION = 0x21;
const IMAGE = 0x2c;
const GRAPHIC_CONTROL = 0xf9;

/** Source: GIF89a specification, sections 18 to 26 */
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
