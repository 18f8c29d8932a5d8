import { hash } from "node:crypto";
import type { Picture } from "../../base/records/message.ts";
import type { KnownSecrets } from "../../base/redact.ts";
import { DocumentError } from "../../documents/document_error.ts";
import { memorySource } from "../../documents/image/byte_source.ts";
import type { ImageProperties } from "../../documents/image/image_properties.ts";
import { readImage } from "../../documents/image/read_image.ts";
import { MAX_PICTURE_BYTES, type ToolPicture } from "./tool_content.ts";

/** A picture that passed the checks, with its bytes. */
export interface CheckedPicture {
  readonly picture: Picture;
  readonly bytes: Uint8Array;
}

/** Pictures of one result. */
const MAX_PICTURES = 4;
/** Bytes of all pictures of one result. */
const MAX_RESULT_BYTES = 8_388_608;
/** Pixels of a side, the least of what the vendors take. */
const MAX_SIDE = 8000;

/** Media types by the format that the bytes show. */
const MEDIA_TYPES: Readonly<Partial<Record<ImageProperties["format"], Picture["media_type"]>>> = {
  PNG: "image/png",
  JPEG: "image/jpeg",
  WebP: "image/webp",
  GIF: "image/gif",
};

/**
 * Checks the pictures of a result: format by the bytes, number, bytes and pixels. Pixels are not decoded. A picture that holds a known
 * secret in plain bytes is left out, since a picture cannot be masked.
 * @returns the pictures that passed, and a line for each that did not
 */
export async function checkPictures(
  given: readonly ToolPicture[],
  known: KnownSecrets,
): Promise<{ readonly pictures: readonly CheckedPicture[]; readonly notes: readonly string[] }> {
  const pictures: CheckedPicture[] = [];
  const notes: string[] = [];
  let total = 0;
  for (const [index, picture] of given.entries()) {
    const checked = pictures.length >= MAX_PICTURES
      ? `a result has at most ${MAX_PICTURES} pictures`
      : total + picture.bytes.length > MAX_RESULT_BYTES
      ? `the pictures of a result have at most ${MAX_RESULT_BYTES} bytes`
      : await checkPicture(picture, known);
    if (typeof checked === "string") {
      if (notes.length < MAX_PICTURES) notes.push(`[Picture ${index + 1} of ${given.length} was left out: ${checked}]`);
      continue;
    }
    total += picture.bytes.length;
    pictures.push(checked);
  }
  return { pictures, notes };
}

/** Checks one picture. @returns the picture, or why it is left out */
export async function checkPicture(
  { bytes, savedAs }: ToolPicture,
  known: KnownSecrets,
): Promise<CheckedPicture | string> {
  const { length } = bytes;
  if (length > MAX_PICTURE_BYTES) return `it has ${length} bytes, and models are shown at most ${MAX_PICTURE_BYTES}`;
  const image = await headerOf(bytes);
  const mediaType = image && MEDIA_TYPES[image.format];
  if (image === undefined || mediaType === undefined) return "it is no whole PNG, JPEG, WebP or GIF";
  const { width = 0, height = 0 } = image;
  if (width > MAX_SIDE || height > MAX_SIDE) {
    return `it has ${width} x ${height} pixels, and models are shown at most ${MAX_SIDE} on a side`;
  }
  const masked = known.part.redact(bytes, { from: 0, to: length });
  if (Buffer.compare(masked, bytes) !== 0) return "it holds a secret that no model may see";
  const picture: Picture = {
    sha256: hash("sha256", bytes),
    media_type: mediaType,
    bytes: length,
    width,
    height,
    ...savedAs === undefined ? {} : { saved_as: known.redact(savedAs) },
  };
  return { picture, bytes };
}

async function headerOf(bytes: Uint8Array): Promise<ImageProperties | undefined> {
  try {
    return await readImage(memorySource(new DataView(bytes.buffer, bytes.byteOffset, bytes.length)));
  } catch (error) {
    if (error instanceof DocumentError) return undefined;
    throw error;
  }
}
