import type { Picture } from "../base/records/message.ts";

/** Bytes that are kept of all runs together. */
const MAX_KEPT_BYTES = 33_554_432;
/** Pictures of one request: beyond 20 a vendor takes smaller ones only. */
const MAX_REQUEST_PICTURES = 20;
/** Bytes of the pictures of one request: 16 MiB as base64, half of what the strictest vendor takes. */
const MAX_REQUEST_BYTES = 12_582_912;

/** Bytes of pictures in tool results, of all runs of a gateway, in memory alone: the journal and conversations hold what is said about them. */
export class PictureMemory {
  /** The picture that was used longest ago first */
  readonly #kept = new Map<string, Uint8Array>();
  #total = 0;

  /** Keeps the bytes of a picture. The pictures that were used longest ago make room. */
  keep(sha256: string, bytes: Uint8Array): void {
    if (!this.#kept.has(sha256)) this.#total += bytes.length;
    this.#use(sha256, bytes);
    for (const [oldest, { length }] of this.#kept) {
      if (this.#total <= MAX_KEPT_BYTES) break;
      this.#kept.delete(oldest);
      this.#total -= length;
    }
  }

  /** Returns the newest pictures, as many as one request takes, as base64 by SHA-256. @param pictures the oldest first */
  load(pictures: readonly Picture[]): ReadonlyMap<string, string> {
    const loaded = new Map<string, string>();
    let left = MAX_REQUEST_BYTES;
    for (const { sha256 } of pictures.toReversed()) {
      const bytes = this.#kept.get(sha256);
      if (bytes === undefined || loaded.has(sha256)) continue;
      left -= bytes.length;
      if (left < 0 || loaded.size >= MAX_REQUEST_PICTURES) break;
      this.#use(sha256, bytes);
      loaded.set(sha256, Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("base64"));
    }
    return loaded;
  }

  #use(sha256: string, bytes: Uint8Array): void {
    this.#kept.delete(sha256);
    this.#kept.set(sha256, bytes);
  }
}
