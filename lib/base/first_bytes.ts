/** `text` up to `maxBytes` of UTF-8, never through a character. */
export function firstBytes(text: string, maxBytes: number): string {
  // No text of this many units can be too long
  if (text.length * 3 <= maxBytes) return text;
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(maxBytes));
  return read === text.length ? text : text.slice(0, read);
}
