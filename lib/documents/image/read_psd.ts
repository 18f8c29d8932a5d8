import type { ByteSource } from "./byte_source.ts";
import { type Colour, damaged, type ImageProperties, requireSize } from "./image_properties.ts";

/** Colour mode by its number, with the number of its colour channels; a channel more is transparency */
const MODES: Readonly<Record<number, readonly [Colour, channels: number]>> = {
  0: ["black and white", 1],
  1: ["gray", 1],
  2: ["palette", 1],
  3: ["rgb", 3],
  4: ["cmyk", 4],
  8: ["gray", 1],
  9: ["lab", 3],
};

/** Reads the header of a Photoshop document, also of a large one (PSB). Source: Adobe Photoshop File Formats, "File Header Section" */
export async function readPsd(source: ByteSource): Promise<ImageProperties> {
  const header = await source.part(0, 26);
  const version = header.getUint16(4);
  if (version !== 1 && version !== 2) throw damaged(`its version is ${version}`);
  const channels = header.getUint16(12);
  const [colour, colourChannels = channels] = MODES[header.getUint16(24)] ?? [];
  return {
    format: "PSD",
    ...requireSize(header.getUint32(18), header.getUint32(14)),
    bitsPerSample: header.getUint16(22),
    colour,
    alpha: channels > colourChannels,
    frames: 1,
  };
}
