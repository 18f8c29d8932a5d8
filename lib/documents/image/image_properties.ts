import { DocumentError } from "../document_error.ts";
import type { Exif } from "./read_exif.ts";

/** The properties that the header of an image gives. */
export interface ImageProperties {
  readonly format: ImageFormat;
  /** Pixels as stored; undefined for an SVG without a size */
  readonly width: number | undefined;
  readonly height: number | undefined;
  readonly bitsPerSample?: number | undefined;
  readonly colour?: Colour | undefined;
  /** True when the format stores transparency for this image */
  readonly alpha?: boolean | undefined;
  /** Pictures in the file: frames of an animation, pages of a TIFF */
  readonly frames?: number | undefined;
  /** Pixels per inch */
  readonly dpi?: readonly [x: number, y: number] | undefined;
  readonly exif?: Exif | undefined;
}

/** Image formats whose headers are read. */
export type ImageFormat = "PNG" | "JPEG" | "GIF" | "WebP" | "AVIF" | "HEIC" | "SVG" | "TIFF" | "BMP";
/** Colour model of the stored pixels. */
export type Colour = "gray" | "rgb" | "palette" | "cmyk" | "lab" | "black and white";

/** The error for an image whose structure is wrong. @param what after `it is damaged: ` */
export function damaged(what: string): DocumentError {
  return new DocumentError("document_invalid", `it is damaged: ${what}`);
}

/** A size in pixels. @throws {DocumentError} for none */
export function requireSize(width: number, height: number): { readonly width: number; readonly height: number } {
  if (width < 1 || height < 1) throw damaged(`its size is ${width} x ${height} pixels`);
  return { width, height };
}
