/** Beginnings of pictures and PDF, as characters of Latin-1. */
const BEGINNINGS: readonly (readonly [form: RegExp, type: string])[] = [
  [/^\x89PNG\r\n/, "image/png"],
  [/^\xff\xd8\xff/, "image/jpeg"],
  [/^GIF8/, "image/gif"],
  [/^RIFF.{4}WEBP/s, "image/webp"],
  [/^%PDF-/, "application/pdf"],
];

/** Media types that `mediaTypeOf` knows. */
export const KNOWN_TYPES: readonly string[] = BEGINNINGS.map(([, type]) => type);

/** Returns the media type by the first bytes, of which 16 are enough; undefined for any other than pictures and PDF. */
export function mediaTypeOf(start: Buffer): string | undefined {
  const text = start.subarray(0, 16).toString("latin1");
  return BEGINNINGS.find(([form]) => form.test(text))?.[1];
}
