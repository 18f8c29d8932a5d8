import type { ByteSource } from "./byte_source.ts";
import { damaged, type ImageProperties, requireSize } from "./image_properties.ts";

const CORE_HEADER_BYTES = 12;
const INCHES_PER_METRE = 39.3701;

/** Source: Microsoft, "Bitmap Header Types" */
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
