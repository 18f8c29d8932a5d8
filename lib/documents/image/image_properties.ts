import { DocumentError } from "../document_error.ts";

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
  /** Pictures in the file: frames of an animation, pages of a TIFF, pictures of an icon */
  readonly frames?: number | undefined;
  /** Pixels of each picture of an icon, in the order of the file */
  readonly sizes?: readonly (readonly [width: number, height: number])[] | undefined;
  /** Pixels per inch */
  readonly dpi?: readonly [x: number, y: number] | undefined;
  readonly exif?: Exif | undefined;
}

/** Data that a camera or program stored about a picture. */
export interface Exif {
  /** EXIF orientation, 1 to 8: the turn a viewer applies. Undefined or 1: no turn */
  readonly orientation?: number;
  readonly description?: string;
  readonly make?: string;
  readonly model?: string;
  readonly lens?: string;
  readonly software?: string;
  readonly artist?: string;
  readonly copyright?: string;
  /** As written: `2026:05:04 03:02:01`, in the camera's own time */
  readonly taken?: string;
  readonly changed?: string;
  readonly exposure_seconds?: number;
  readonly f_number?: number;
  readonly iso?: number;
  readonly focal_length_mm?: number;
  /** Degrees, north and east positive */
  readonly latitude?: number;
  readonly longitude?: number;
  readonly altitude_m?: number;
}

/** Image formats whose headers are read. */
export type ImageFormat = "PNG" | "JPEG" | "GIF" | "WebP" | "AVIF" | "HEIC" | "SVG" | "TIFF" | "BMP" | "ICO" | "PSD";
/** Colour model of the stored pixels. */
export type Colour = "gray" | "rgb" | "palette" | "cmyk" | "lab" | "black and white";

/** Returns the error for an image whose structure is wrong. @param what after `it is damaged: ` */
export function damaged(what: string): DocumentError {
  return new DocumentError("document_invalid", `it is damaged: ${what}`);
}

/** Returns a size in pixels. @throws {DocumentError} `document_invalid` unless each side is a whole number above 0 */
export function requireSize(width: number, height: number): { readonly width: number; readonly height: number } {
  if (![width, height].every((side) => Number.isSafeInteger(side) && side > 0)) {
    throw damaged(`its size is ${width} x ${height} pixels`);
  }
  return { width, height };
}
