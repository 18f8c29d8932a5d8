import { createHash } from "node:crypto";

/** Part of a manifest of a test, which is written over the sample. */
export interface SampleManifest {
  readonly [field: string]: unknown;
}

/** Small WASM module that every runtime takes: a function `execute` that returns 0. */
export const SAMPLE_MODULE: Uint8Array = Uint8Array.of(
  ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
  ...[1, 5, 1, 0x60, 0, 1, 0x7f],
  ...[3, 2, 1, 0],
  ...[7, 11, 1, 7, ...Buffer.from("execute"), 0, 0],
  ...[10, 6, 1, 4, 0, 0x41, 0, 0x0b],
);

/** Returns the SHA-256 of bytes, hexadecimal. */
export const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** Returns the manifest of a WASM plugin "words" with one tool, with some fields exchanged. */
export function sampleManifest(fields: SampleManifest = {}): SampleManifest {
  return {
    id: "words",
    version: "1.0.0",
    description: "Counts words",
    kind: "wasm",
    tools: [sampleTool("count_words")],
    wasm: { file: "words.wasm", sha256: sha256(SAMPLE_MODULE) },
    ...fields,
  };
}

/** Returns a tool of a manifest that takes one text. */
export function sampleTool(name: string) {
  const properties = { text: { type: "string", description: "Text to count" } };
  const schema = { type: "object", properties, required: ["text"], additionalProperties: false };
  return { name, description: "Counts the words of a text", input_schema: schema };
}

/** Entry of a tar that a test writes by hand: every field of its header may lie. */
export interface TarEntry {
  readonly name?: string | Uint8Array;
  readonly bytes?: Uint8Array;
  readonly type?: string;
  readonly mode?: string;
  /** Text of the size field. Default: the true size in octal digits */
  readonly size?: string;
  readonly link?: string;
  readonly prefix?: string;
  readonly magic?: string;
  readonly checksum?: string;
  /** Bytes behind the end of the content, within its last block. Default: zeros */
  readonly padding?: number;
}

const BLOCK = 512;

/** Writes a tar from entries, with two empty blocks at its end. */
export function tarOf(entries: readonly TarEntry[], end: Uint8Array = new Uint8Array(2 * BLOCK)): Uint8Array {
  return Buffer.concat([...entries.flatMap(entryOf), end]);
}

/** Writes the tar of a plugin: the manifest and an empty module, unless `files` says otherwise. */
export function samplePackage(
  fields: SampleManifest = {},
  files: readonly TarEntry[] = [{ name: "words.wasm", bytes: SAMPLE_MODULE }],
): Uint8Array {
  return tarOf([{ name: "plugin.json", bytes: Buffer.from(JSON.stringify(sampleManifest(fields))) }, ...files]);
}

function entryOf(entry: TarEntry): readonly Uint8Array[] {
  const bytes = entry.bytes ?? new Uint8Array();
  const header = Buffer.alloc(BLOCK);
  const name = entry.name ?? "file";
  if (typeof name === "string") header.write(name, 0, 100);
  else header.set(name, 0);
  header.write(entry.mode ?? "0000644\0", 100);
  header.write("0000000\x000000000\0", 108);
  header.write(entry.size ?? `${bytes.length.toString(8).padStart(11, "0")}\0`, 124);
  header.write("00000000000\0", 136);
  header.write(entry.type ?? "0", 156);
  header.write(entry.link ?? "", 157, 100);
  header.write(entry.magic ?? "ustar\x0000", 257);
  header.write(entry.prefix ?? "", 345, 155);
  header.write("        ", 148);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(entry.checksum ?? `${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const rest = (BLOCK - (bytes.length % BLOCK)) % BLOCK;
  return [header, bytes, new Uint8Array(rest).fill(entry.padding ?? 0)];
}
