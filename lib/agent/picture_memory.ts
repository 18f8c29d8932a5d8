import type { Picture } from "../base/records/message.ts";

/** Bytes of pictures in tool results, in memory alone: the journal and conversations hold what is said about them. */
export interface PictureMemory {
  /** Keeps the bytes of a picture. The pictures that were used longest ago make room. */
  keep(sha256: string, bytes: Uint8Array): void;
  /** Returns the newest pictures, as many as one request takes, as base64 by SHA-256. @param pictures the oldest first */
  load(pictures: readonly Picture[]): ReadonlyMap<string, string>;
}

/** Bytes that are kept of all runs together. */
const MAX_KEPT_BYTES = 33_554_432;
/** Pictures of one request: beyond 20 a vendor takes smaller ones only. */
const MAX_REQUEST_PICTURES = 20;
/** Bytes of the pictures of one request: 16 MiB as base64, half of what the strictest vendor takes. */
const MAX_REQUEST_BYTES = 12_582_912;

/** Creates a memory that holds nothing yet, for all runs of a gateway. */
export function createPictureMemory(): PictureMemory {
  /** The picture that was used longest ago first */
  const kept = new Map<string, Uint8Array>();
  let total = 0;
  const use = (sha256: string, bytes: Uint8Array) => {
    kept.delete(sha256);
    kept.set(sha256, bytes);
  };
  return {
    keep(sha256, bytes) {
      if (!kept.has(sha256)) total += bytes.length;
      use(sha256, bytes);
      for (const [oldest, { length }] of kept) {
        if (total <= MAX_KEPT_BYTES) break;
        kept.delete(oldest);
        total -= length;
      }
    },
    load(pictures) {
      const loaded = new Map<string, string>();
      let left = MAX_REQUEST_BYTES;
      for (const { sha256 } of pictures.toReversed()) {
        const bytes = kept.get(sha256);
        if (bytes === undefined || loaded.has(sha256)) continue;
        left -= bytes.length;
        if (left < 0 || loaded.size >= MAX_REQUEST_PICTURES) break;
        use(sha256, bytes);
        loaded.set(sha256, Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("base64"));
      }
      return loaded;
    },
  };
}
