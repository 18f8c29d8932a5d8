import { cancelError } from "../../base/cancel.ts";
import { DocumentError } from "../document_error.ts";

/** Bytes read at once, since the parts looked at often stand close together */
const WINDOW_BYTES = 16_384;
/** The longest part that is looked at */
const MAX_PART_BYTES = 1_048_576;
const MAX_READS = 8192;

/** An open file that can be read from any position. */
export interface ReadableFile {
  /** Bytes of the whole file */
  readonly size: number;
  /** Reads into the whole of `buffer` from `position`. @returns bytes read, 0 at the end */
  read(buffer: Uint8Array, position: number): Promise<number>;
}

/** Parts of an image file or of bytes in memory, each checked against the size. */
export interface ByteSource {
  /** Bytes of the whole file */
  readonly size: number;
  /** A part of the file. @throws {DocumentError} `document_invalid` when it goes past the end, `document_too_large` */
  part(position: number, length: number): Promise<DataView>;
}

/** Parts of an open file; the number of reads is bounded, so that no file makes many. */
export function fileSource(file: ReadableFile, { signal }: { readonly signal: AbortSignal }): ByteSource {
  let window = new Uint8Array(0);
  let start = 0;
  let reads = 0;
  return {
    size: file.size,
    async part(position, length) {
      requireInside(position, length, file.size);
      if (position < start || position + length > start + window.length) {
        if (signal.aborted) throw cancelError(signal);
        if (++reads > MAX_READS) {
          throw new DocumentError(
            "document_too_large",
            `its structure has more than the ${MAX_READS} parts that are read`,
          );
        }
        const buffer = new Uint8Array(Math.min(Math.max(length, WINDOW_BYTES), file.size - position));
        const read = await file.read(buffer, position);
        window = buffer.subarray(0, read);
        start = position;
        // The file became shorter meanwhile
        requireInside(0, length, read);
      }
      return new DataView(window.buffer, window.byteOffset + position - start, length);
    },
  };
}

/** Parts of bytes that are in memory. */
export function memorySource(bytes: DataView): ByteSource {
  return {
    size: bytes.byteLength,
    part(position, length) {
      requireInside(position, length, bytes.byteLength);
      return Promise.resolve(new DataView(bytes.buffer, bytes.byteOffset + position, length));
    },
  };
}

/** Reads text of Latin letters, as names of parts are written. */
export function asciiOf(view: DataView, position: number, length: number): string {
  return String.fromCharCode(...new Uint8Array(view.buffer, view.byteOffset + position, length));
}

function requireInside(position: number, length: number, size: number): void {
  if (length > MAX_PART_BYTES) throw new DocumentError("document_invalid", "it is damaged: a part of it is too long");
  if (position < 0 || position + length > size) throw new DocumentError("document_invalid", "it is damaged or cut off");
}
