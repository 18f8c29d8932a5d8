/** Encoding that a byte order mark names, where it is not UTF-8. */
export type Utf16 = "utf-16le" | "utf-16be";

/** Returns the encoding that the first two bytes of a text name as UTF-16. undefined: they are no such mark */
export function utf16Of(bytes: Uint8Array): Utf16 | undefined {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  return bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : undefined;
}

/** Returns the text of UTF-16 with its mark as UTF-8. undefined for what is no such text: another encoding, NUL, half a character. */
export function utf16ToUtf8(bytes: Uint8Array): Uint8Array | undefined {
  const encoding = utf16Of(bytes);
  if (encoding === undefined) return undefined;
  try {
    const text = new TextDecoder(encoding, { fatal: true, ignoreBOM: true }).decode(bytes);
    return text.includes("\0") ? undefined : new TextEncoder().encode(text);
  } catch {
    return undefined;
  }
}
