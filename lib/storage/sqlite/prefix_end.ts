/** Every text is below a blob, so this is the end of a range that has none. */
export const NO_END = new Uint8Array([255]);

/** The first text, by bytes of UTF-8, after all that begin with `prefix`. */
export function prefixEnd(prefix: string): string | Uint8Array {
  const points = [...prefix].map((character) => character.codePointAt(0) ?? 0);
  while (points.length > 0) {
    const last = points.pop() ?? 0;
    if (last === 0x10ffff) continue;
    // Surrogates are not characters of their own
    points.push(last === 0xd7ff ? 0xe000 : last + 1);
    return String.fromCodePoint(...points);
  }
  return NO_END;
}
