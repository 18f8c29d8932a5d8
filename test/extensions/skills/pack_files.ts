import { crc32, deflateRawSync, gzipSync } from "node:zlib";

/** File of an archive that a test makes. `mode` has the type of a Unix file too. */
export interface PackedFile {
  readonly name: string;
  readonly text: string;
  readonly mode?: number;
  /** Size that the archive says, in place of the real one */
  readonly says?: number;
}

/** Writes a zip whose files are deflated. */
export function zipOf(files: readonly PackedFile[]): Uint8Array {
  const parts: Uint8Array[] = [];
  const directory: Uint8Array[] = [];
  let offset = 0;
  for (const { name, text, mode = 0o100644, says } of files) {
    const content = Buffer.from(text);
    const packed = deflateRawSync(content);
    const head = Buffer.alloc(30);
    head.writeUInt32LE(0x04034b50, 0);
    head.writeUInt16LE(Buffer.byteLength(name), 26);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(0x031e, 4);
    entry.writeUInt16LE(8, 10);
    entry.writeUInt32LE(crc32(content), 16);
    entry.writeUInt32LE(packed.length, 20);
    entry.writeUInt32LE(says ?? content.length, 24);
    entry.writeUInt16LE(Buffer.byteLength(name), 28);
    entry.writeUInt32LE((mode << 16) >>> 0, 38);
    entry.writeUInt32LE(offset, 42);
    parts.push(head, Buffer.from(name), packed);
    directory.push(entry, Buffer.from(name));
    offset += head.length + Buffer.byteLength(name) + packed.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(files.length, 8);
  end.writeUInt16LE(files.length, 10);
  end.writeUInt32LE(size, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...parts, ...directory, end]);
}

/** Entry of a tar that a test makes, by the letter of its type. */
export interface TarEntry {
  readonly name: string;
  readonly text?: string;
  readonly type?: string;
  readonly target?: string;
}

/** Writes a tar as other programs do, also what Postern's own writer refuses. */
export function foreignTar(entries: readonly TarEntry[]): Uint8Array {
  const blocks = entries.flatMap(({ name, text = "", type = "0", target = "" }) => {
    const content = Buffer.from(text);
    const head = Buffer.alloc(512);
    head.write(name, 0, 100);
    head.write("0002755\0", 100);
    head.write("0000000\0", 108);
    head.write("0000000\0", 116);
    head.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
    head.write("00000000000\0", 136);
    head.write("        ", 148);
    head.write(type, 156);
    head.write(target, 157, 100);
    head.write("ustar\x0000", 257);
    const sum = head.reduce((total, byte) => total + byte, 0);
    head.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
    return [head, content, Buffer.alloc((512 - content.length % 512) % 512)];
  });
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

/** Returns a record of an extended header of pax. */
export function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (`${length}${rest}`.length !== length) length = `${length}${rest}`.length;
  return `${length}${rest}`;
}

export const gzipped = (bytes: Uint8Array): Uint8Array => gzipSync(bytes);
