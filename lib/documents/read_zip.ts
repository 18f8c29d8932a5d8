import { crc32, inflateRawSync } from "node:zlib";
import { DocumentError } from "./document_error.ts";
import type { WorkBudget } from "./work_budget.ts";

const END_SIGNATURE = 0x06054b50;
const ENTRY_SIGNATURE = 0x02014b50;
const LOCAL_SIGNATURE = 0x04034b50;
const END_BYTES = 22;
const MAX_COMMENT_BYTES = 65_535;
const MAX_ENTRIES = 10_000;
const STORED = 0;
const DEFLATED = 8;

/** Part of a ZIP archive, as its directory names it. */
export interface ZipPart {
  readonly name: string;
  readonly bytes: number;
  /** True for a symbolic link of a Unix system */
  readonly isLink: boolean;
  /** True for a file of a Unix system that may be started as a program */
  readonly isExecutable: boolean;
}

/** The parts of a ZIP archive, by name. Nothing is taken out before it is asked for. */
export interface Zip {
  /** All parts, in the order of the directory. A name may stand there twice */
  readonly parts: readonly ZipPart[];
  has(name: string): boolean;
  /**
   * The bytes of a part, undefined when there is none of that name.
   * @throws {DocumentError} damaged, encrypted, or larger than `maxBytes`: found before more than that is taken out
   */
  read(name: string, maxBytes: number): Uint8Array | undefined;
}

interface Entry extends ZipPart {
  readonly method: number;
  readonly encrypted: boolean;
  readonly crc: number;
  readonly packedBytes: number;
  /** Offset of the entry's local header, in bytes */
  readonly offset: number;
}

/**
 * Opens a ZIP archive by its directory, as Word does; what a local header says beside it is not believed.
 * @throws {DocumentError} `document_invalid` when it is none
 * Source: PKWARE APPNOTE 6.3.10, sections 4.3 and 4.4
 */
export function readZip(bytes: Uint8Array, budget: WorkBudget): Zip {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const parts = readDirectory(view, bytes);
  const entries = new Map(parts.map((entry) => [entry.name.toLowerCase(), entry]));
  return {
    parts,
    has: (name) => entries.has(name.toLowerCase()),
    read(name, maxBytes) {
      const entry = entries.get(name.toLowerCase());
      if (entry === undefined) return undefined;
      const limit = Math.min(maxBytes, budget.inflatable);
      if (entry.bytes > limit) throw tooLarge(name, limit);
      if (entry.encrypted) throw new DocumentError("document_encrypted", "it is protected by a password");
      const packed = packedBytes(view, bytes, entry, name);
      budget.inflated(entry.bytes);
      const content = takeOut(packed, entry, name);
      if (crc32(content) !== entry.crc) throw invalid(`the checksum of its part "${name}" is wrong`);
      return content;
    },
  };
}

function readDirectory(view: DataView, bytes: Uint8Array): readonly Entry[] {
  const end = findEnd(view);
  const count = view.getUint16(end + 10, true);
  let at = view.getUint32(end + 16, true);
  if (count > MAX_ENTRIES || at === 0xffffffff) throw invalid("its archive has too many parts");
  const entries: Entry[] = [];
  for (let i = 0; i < count; i++) {
    if (at + 46 > view.byteLength || view.getUint32(at, true) !== ENTRY_SIGNATURE) {
      throw invalid("the directory of its archive is damaged");
    }
    const nameBytes = view.getUint16(at + 28, true);
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + nameBytes));
    const mode = view.getUint16(at + 40, true);
    entries.push({
      name,
      isLink: (mode & 0o170000) === 0o120000,
      isExecutable: (mode & 0o111) !== 0,
      encrypted: (view.getUint16(at + 8, true) & 1) !== 0,
      method: view.getUint16(at + 10, true),
      crc: view.getUint32(at + 16, true),
      packedBytes: view.getUint32(at + 20, true),
      bytes: view.getUint32(at + 24, true),
      offset: view.getUint32(at + 42, true),
    });
    at += 46 + nameBytes + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
  }
  return entries;
}

/** The directory's end is the last record, before a comment of any content. */
function findEnd(view: DataView): number {
  const first = Math.max(0, view.byteLength - END_BYTES - MAX_COMMENT_BYTES);
  for (let at = view.byteLength - END_BYTES; at >= first; at--) {
    if (view.getUint32(at, true) === END_SIGNATURE) return at;
  }
  throw invalid("it is no ZIP archive, or its end is missing");
}

function packedBytes(view: DataView, bytes: Uint8Array, entry: Entry, name: string): Uint8Array {
  const { offset, packedBytes: length } = entry;
  if (offset + 30 > view.byteLength || view.getUint32(offset, true) !== LOCAL_SIGNATURE) {
    throw invalid(`its part "${name}" is missing`);
  }
  const start = offset + 30 + view.getUint16(offset + 26, true) + view.getUint16(offset + 28, true);
  if (start + length > bytes.length) throw invalid(`its part "${name}" is cut off`);
  return bytes.subarray(start, start + length);
}

function takeOut(packed: Uint8Array, { method, bytes }: Entry, name: string): Uint8Array {
  if (method === STORED) {
    if (packed.length !== bytes) throw invalid(`its part "${name}" has not the size its archive says`);
    return packed;
  }
  if (method !== DEFLATED) {
    throw new DocumentError("document_unsupported", `its part "${name}" is compressed by method ${method}`);
  }
  let content: Uint8Array;
  try {
    // A part that holds more than its archive says ends here, before the rest is taken out
    content = inflateRawSync(packed, { maxOutputLength: Math.max(1, bytes) });
  } catch {
    throw invalid(`its part "${name}" is damaged, or larger than its archive says`);
  }
  if (content.length !== bytes) throw invalid(`its part "${name}" has not the size its archive says`);
  return content;
}

function tooLarge(name: string, limit: number): DocumentError {
  return new DocumentError("document_too_large", `its part "${name}" is larger than the ${limit} bytes that are read`);
}

function invalid(message: string): DocumentError {
  return new DocumentError("document_invalid", message);
}
