import { firstBytes } from "../base/text.ts";

/** Text of a document as it grows, up to a bound. */
export interface TextOutput {
  /** @returns false when it did not fit whole: then nothing more is taken */
  add(text: string): boolean;
  /** Returns true when the text would fit whole */
  fits(text: string): boolean;
  /** The bound was reached */
  readonly full: boolean;
  text(): string;
}

/** Most bytes (UTF-8) of text that a reader returns. Leaves room for notices below the bound on a tool's result. */
export const MAX_TEXT_BYTES = 250_000;

/** @param maxBytes of UTF-8; what goes over it is cut between characters */
export function createTextOutput(maxBytes: number = MAX_TEXT_BYTES): TextOutput {
  const parts: string[] = [];
  let room = maxBytes;
  let full = false;
  return {
    add(text) {
      if (full) return false;
      const bytes = Buffer.byteLength(text);
      full = bytes > room;
      parts.push(full ? firstBytes(text, room) : text);
      room -= bytes;
      return !full;
    },
    fits: (text) => !full && Buffer.byteLength(text) <= room,
    get full() {
      return full;
    },
    text: () => parts.join(""),
  };
}
