/** Whether a text has more bytes of UTF-8 than `maxBytes`. */
export function isLonger(text: string, maxBytes: number): boolean {
  // A UTF-16 unit is one to three bytes, so most texts need no count
  return text.length > maxBytes || (text.length * 3 > maxBytes && Buffer.byteLength(text) > maxBytes);
}
