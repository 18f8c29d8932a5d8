const WIDTH = 16;

/** Lines of 16 bytes: the address, the bytes in hexadecimal, and as ASCII with `.` for what is not printable. */
export function hexDump(bytes: Uint8Array, start: bigint): string {
  const last = start + BigInt(bytes.length);
  const digits = Math.max(8, last.toString(16).length);
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += WIDTH) {
    const line = bytes.subarray(at, at + WIDTH);
    const hex = [...line].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = [...line].map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${(start + BigInt(at)).toString(16).padStart(digits, "0")}  ${hex.padEnd(WIDTH * 3 - 1)}  |${text}|`);
  }
  return lines.join("\n");
}
