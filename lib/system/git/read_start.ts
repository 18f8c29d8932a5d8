import { open } from "node:fs/promises";

/** The start of a small regular file as text. */
export async function readStart(path: string, maxBytes: number): Promise<string> {
  const file = await open(path, "r");
  try {
    const { bytesRead, buffer } = await file.read(new Uint8Array(maxBytes), 0, maxBytes, 0);
    return new TextDecoder().decode(buffer.subarray(0, bytesRead));
  } finally {
    await file.close();
  }
}
