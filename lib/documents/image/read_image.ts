import { DocumentError } from "../document_error.ts";
import { asciiOf, type ByteSource } from "./byte_source.ts";
import type { ImageProperties } from "./image_properties.ts";
import { readBmp, readGif, readJpeg, readPng, readWebp } from "./bitmap_formats.ts";
import { readHeif } from "./read_heif.ts";
import { readIco } from "./read_ico.ts";
import { readPsd } from "./read_psd.ts";
import { readSvg } from "./read_svg.ts";
import { readTiff } from "./read_tiff.ts";

/**
 * Reads the header of an image. The first bytes decide the format, never the file's name. Pixels are not decoded.
 * @throws {DocumentError} `document_unsupported` for another format, `document_invalid` for a damaged image
 */
export async function readImage(source: ByteSource): Promise<ImageProperties> {
  try {
    const properties = await readBySignature(source) ?? await readSvg(source);
    if (properties !== undefined) return properties;
  } catch (error) {
    // A length that leads out of a part
    if (error instanceof RangeError) throw new DocumentError("document_invalid", "it is damaged or cut off");
    throw error;
  }
  throw new DocumentError(
    "document_unsupported",
    "it is none of the images that are read: PNG, JPEG, GIF, WebP, AVIF, HEIC, SVG, TIFF, BMP, ICO and PSD",
  );
}

function readBySignature(source: ByteSource): Promise<ImageProperties | undefined> {
  return source.part(0, Math.min(16, source.size)).then((head) => {
    const start = asciiOf(head, 0, head.byteLength);
    if (start.startsWith("\x89PNG\r\n\x1a\n")) return readPng(source);
    if (start.startsWith("\xff\xd8\xff")) return readJpeg(source);
    if (start.startsWith("GIF87a") || start.startsWith("GIF89a")) return readGif(source);
    if (start.startsWith("RIFF") && start.startsWith("WEBP", 8)) return readWebp(source);
    if (["II*\0", "MM\0*", "II+\0", "MM\0+"].includes(start.slice(0, 4))) return readTiff(source);
    if (start.startsWith("8BPS")) return readPsd(source);
    if (start.startsWith("\0\0\x01\0") && source.size >= 22) return readIco(source);
    if (start.startsWith("BM") && source.size >= 26) return readBmp(source);
    if (start.startsWith("ftyp", 4)) return readIsoFile(source, start.slice(8, 12));
    return undefined;
  });
}

async function readIsoFile(source: ByteSource, brand: string): Promise<ImageProperties | undefined> {
  if (["avif", "avis"].includes(brand)) return await readHeif(source, "AVIF");
  if (["heic", "heix", "hevc", "heim", "heis"].includes(brand)) return await readHeif(source, "HEIC");
  if (brand !== "mif1" && brand !== "msf1") return undefined;
  // The general brands say what they hold among the compatible ones
  const length = Math.min((await source.part(0, 4)).getUint32(0), 256, source.size);
  const brands = asciiOf(await source.part(0, length), 0, length);
  return brands.includes("avif") ? await readHeif(source, "AVIF") : await readHeif(source, "HEIC");
}
