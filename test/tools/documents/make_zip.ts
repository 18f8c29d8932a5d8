import { crc32, deflateRawSync } from "node:zlib";

/** A part, and what its headers say; default: the truth. */
export interface ZipPart {
  readonly name: string;
  readonly content: string | Uint8Array;
  /** 0 stored, 8 deflated. Default 8 */
  readonly method?: number;
  readonly claimedBytes?: number;
  readonly crc?: number;
  readonly flags?: number;
}

/** A ZIP archive, as bytes. */
export function makeZip(parts: readonly ZipPart[]): Uint8Array<ArrayBuffer> {
  const local: Uint8Array[] = [];
  const directory: Uint8Array[] = [];
  let offset = 0;
  for (const { name, content, method = 8, claimedBytes, crc, flags = 0 } of parts) {
    const bytes = Buffer.from(content);
    const packed = method === 8 ? deflateRawSync(bytes) : bytes;
    const nameBytes = Buffer.from(name);
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(20, 0);
    fields.writeUInt16LE(flags, 2);
    fields.writeUInt16LE(method, 4);
    fields.writeUInt32LE(crc ?? crc32(bytes), 10);
    fields.writeUInt32LE(packed.length, 14);
    fields.writeUInt32LE(claimedBytes ?? bytes.length, 18);
    fields.writeUInt16LE(nameBytes.length, 22);
    const header = Buffer.concat([Buffer.from("PK\x03\x04"), fields, nameBytes, packed]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\0"), fields, tail, nameBytes]));
    local.push(header);
    offset += header.length;
  }
  const entries = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(parts.length, 4);
  end.writeUInt16LE(parts.length, 6);
  end.writeUInt32LE(entries.length, 8);
  end.writeUInt32LE(offset, 12);
  return new Uint8Array(Buffer.concat([...local, entries, Buffer.from("PK\x05\x06"), end]));
}
