import { exactLine, withoutEnd } from "../../base/text.ts";
import type { PackageFile } from "../package_folder.ts";
import { ExtensionError } from "../extension_error.ts";

/** Content of a tar. */
export interface TarContent {
  readonly files: readonly PackageFile[];
  /** Paths of folders that have entries of their own */
  readonly folders: readonly string[];
}

/** Bounds of a tar. */
export interface TarLimits {
  readonly maxBytes: number;
  readonly maxFiles: number;
  /**
   * Takes the extended headers that other programs write for long names and for times, and modes with set-user-id and the like, which do not
   * count. Default false: they are refused
   */
  readonly takesExtended?: boolean;
}

const BLOCK = 512;
/** Bytes of the `name` and of the `prefix` of a header. */
const NAME_BYTES = 100;
const PREFIX_BYTES = 155;
const SPACE = 0x20;

/** Entries that are no files, by the type of their header. Source: POSIX.1-2017 pax, "ustar Interchange Format" */
const REFUSED_TYPES: Readonly<Record<string, string>> = {
  "1": "a hard link",
  "2": "a symbolic link",
  "3": "a character device",
  "4": "a block device",
  "6": "a FIFO",
  "7": "a contiguous file",
  g: "an extended header (pax)",
  x: "an extended header (pax)",
  K: "a long link name (GNU)",
  L: "a long name (GNU)",
  S: "a sparse file",
  V: "a volume label",
  M: "a part of another archive",
  D: "a list of names (GNU)",
};

/**
 * Reads the files of a tar in memory. Takes plain files and folders of the ustar format alone; what other programs would read in another
 * way is refused: a wrong checksum, sizes beyond the end, text after a name's end, anything behind the end, and extended headers where they
 * are not taken.
 * Names are not checked here.
 * @throws {ExtensionError} `package_invalid`, `package_too_large`
 */
export function readTar(bytes: Uint8Array, { maxBytes, maxFiles, takesExtended = false }: TarLimits): TarContent {
  if (bytes.length > maxBytes) throw tooLarge(`it has ${bytes.length} bytes, and ${maxBytes} are allowed`);
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) throw wrong("it is compressed; give the tar itself");
  if (bytes.length === 0 || bytes.length % BLOCK !== 0) {
    throw wrong("it is no tar: its length is no multiple of 512 bytes");
  }
  const files: PackageFile[] = [];
  const folders: string[] = [];
  let place = 0;
  let entries = 0;
  let extended: Extended = {};
  while (place < bytes.length) {
    const block = bytes.subarray(place, place + BLOCK);
    if (isEmpty(block)) {
      checkEnd(bytes.subarray(place));
      return { files, folders };
    }
    if (++entries > (takesExtended ? 2 * maxFiles : maxFiles)) {
      throw tooLarge(`it has over ${maxFiles} files and folders`);
    }
    if (takesExtended && isExtended(block)) {
      const read = readExtended(bytes, place);
      extended = { ...extended, ...read.fields };
      place = read.next;
      continue;
    }
    const header = withExtended(readHeader(block, { isLenient: takesExtended }), extended);
    extended = {};
    const start = place + BLOCK;
    const end = start + header.size;
    const next = start + Math.ceil(header.size / BLOCK) * BLOCK;
    if (next > bytes.length) {
      throw wrong(`${shown(header.path)} is said to have ${header.size} bytes, which are not there`);
    }
    if (!isEmpty(bytes.subarray(end, next))) throw wrong(`${shown(header.path)} has bytes behind its end`);
    if (header.isFolder) folders.push(header.path.replace(/\/$/, ""));
    else files.push({ path: header.path, bytes: bytes.subarray(start, end), executable: header.executable });
    place = next;
  }
  throw wrong("it is cut off: its end is missing");
}

interface Header {
  readonly path: string;
  readonly size: number;
  readonly isFolder: boolean;
  readonly executable: boolean;
}

/** Fields of extended headers that change the entry after them. */
interface Extended {
  readonly path?: string;
  readonly size?: number;
}

/** Bytes of one extended header */
const MAX_EXTENDED = 65_536;

function isExtended(block: Uint8Array): boolean {
  return ["g", "x", "L"].includes(String.fromCharCode(block[156] ?? 0));
}

/** Reads an extended header of pax, or a long name of GNU. Source: POSIX.1-2017 pax, "pax Extended Header" */
function readExtended(bytes: Uint8Array, place: number): { readonly fields: Extended; readonly next: number } {
  const block = bytes.subarray(place, place + BLOCK);
  if (octal(block, 148, 8, "checksum") !== checksum(block)) throw wrong("a header has a wrong checksum");
  const size = octal(block, 124, 12, "size");
  const start = place + BLOCK;
  const next = start + Math.ceil(size / BLOCK) * BLOCK;
  if (size > MAX_EXTENDED) throw tooLarge(`an extended header has over ${MAX_EXTENDED} bytes`);
  if (next > bytes.length) throw wrong("it is cut off: an extended header is not whole");
  const content = bytes.subarray(start, start + size);
  const type = String.fromCharCode(block[156] ?? 0);
  if (type === "L") return { fields: { path: withoutEnd(utf8(content), "\0") }, next };
  const fields = paxFields(content);
  if (type === "x") return { fields, next };
  if (fields.path !== undefined || fields.size !== undefined) throw wrong("a header for all files names one of them");
  return { fields: {}, next };
}

function paxFields(content: Uint8Array): Extended {
  let fields: Extended = {};
  for (let at = 0; at < content.length;) {
    const blank = content.indexOf(SPACE, at);
    const length = Number(utf8(content.subarray(at, blank < 0 ? at : blank)));
    const record = utf8(content.subarray(at, at + length));
    const [, key, value] = /^\d{1,6} ([^=]{1,256})=([^]*)\n$/.exec(record) ?? [];
    if (key === undefined || value === undefined || at + length > content.length) {
      throw wrong("an extended header cannot be read");
    }
    if (key.startsWith("GNU.sparse")) throw wrong("it has a sparse file");
    if (key === "path") fields = { ...fields, path: value };
    if (key === "size") fields = { ...fields, size: Number(value) };
    at += length;
  }
  return fields;
}

function withExtended(header: Header, { path, size }: Extended): Header {
  if (size !== undefined && size !== header.size) throw wrong(`${shown(header.path)} has two sizes`);
  return path === undefined ? header : { ...header, path };
}

function utf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw wrong("a name is no UTF-8");
  }
}

function readHeader(block: Uint8Array, { isLenient }: { readonly isLenient: boolean }): Header {
  if (textOf(block, 257, 5) !== "ustar") throw wrong("it is no tar of the ustar format");
  const sum = octal(block, 148, 8, "checksum");
  if (sum !== checksum(block)) throw wrong("a header has a wrong checksum");
  const prefix = block[262] === 0 ? text(block, 345, PREFIX_BYTES) : gnuPrefix(block);
  const name = text(block, 0, NAME_BYTES);
  const path = prefix === "" ? name : `${prefix}/${name}`;
  const type = String.fromCharCode(block[156] ?? 0);
  const isFolder = type === "5";
  if (type !== "0" && type !== "\0" && !isFolder) {
    throw wrong(
      `${shown(path)} is ${REFUSED_TYPES[type] ?? "of an unknown type"}; make the package with postern plugin package`,
    );
  }
  const size = octal(block, 124, 12, "size");
  const mode = octal(block, 100, 8, "mode");
  if (!isFolder && path.endsWith("/")) throw wrong(`${shown(path)} is a file with the name of a folder`);
  if (isFolder && size !== 0) throw wrong(`${shown(path)} is a folder with a size`);
  if (text(block, 157, NAME_BYTES) !== "") throw wrong(`${shown(path)} has the target of a link`);
  if ((mode & 0o7000) !== 0 && !isLenient) {
    throw wrong(`${shown(path)} has a mode with set-user-id, set-group-id or sticky`);
  }
  return { path, size, isFolder, executable: (mode & 0o111) !== 0 };
}

/** The GNU format keeps other fields where ustar has a prefix: a name that needs them is refused by its type. */
function gnuPrefix(block: Uint8Array): string {
  if (textOf(block, 262, 3) !== "  \0") throw wrong("it is no tar of the ustar format");
  return "";
}

/** Reads a text up to its NUL. What follows the NUL must be empty: one program would read it, another not. */
function text(block: Uint8Array, start: number, length: number): string {
  const field = block.subarray(start, start + length);
  const end = field.indexOf(0);
  if (end !== -1 && !isEmpty(field.subarray(end))) throw wrong("a header has text behind the end of a name");
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
      end === -1 ? field : field.subarray(0, end),
    );
  } catch {
    throw wrong("a name is no UTF-8");
  }
}

/** Reads a number in octal digits. The binary form of big numbers is refused. */
function octal(block: Uint8Array, start: number, length: number, what: string): number {
  const digits = withoutEnd(textOf(block, start, length), "\0 ").trimStart();
  if (!/^[0-7]{1,12}$/.test(digits)) throw wrong(`a header has a ${what} that is no number`);
  return Number.parseInt(digits, 8);
}

function textOf(block: Uint8Array, start: number, length: number): string {
  return String.fromCharCode(...block.subarray(start, start + length));
}

/** Adds up the bytes of a header, the field of the checksum as spaces. */
function checksum(block: Uint8Array): number {
  let sum = 0;
  for (let index = 0; index < BLOCK; index++) sum += index >= 148 && index < 156 ? SPACE : block[index] ?? 0;
  return sum;
}

function isEmpty(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0);
}

function checkEnd(rest: Uint8Array): void {
  if (rest.length < 2 * BLOCK) throw wrong("it is cut off: its end is missing");
  if (!isEmpty(rest)) throw wrong("it has something behind its end");
}

/**
 * Writes a tar. The same files always give the same bytes: no times, no owners, sorted by path.
 * @param options.writesExtended writes an extended header (pax) for a path that ustar has no place for. Default false: it is refused
 * @throws {ExtensionError} `package_invalid` for a path that the format has no place for
 */
export function writeTar(
  files: readonly PackageFile[],
  { writesExtended = false }: { readonly writesExtended?: boolean } = {},
): Uint8Array {
  const sorted = [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
  const entries: readonly Entry[] = writesExtended ? sorted.flatMap(withLongPath) : sorted;
  const length = entries.reduce((sum, { bytes }) => sum + BLOCK + Math.ceil(bytes.length / BLOCK) * BLOCK, 2 * BLOCK);
  const tar = new Uint8Array(length);
  let place = 0;
  for (const entry of entries) {
    writeHeader(tar.subarray(place, place + BLOCK), entry);
    tar.set(entry.bytes, place + BLOCK);
    place += BLOCK + Math.ceil(entry.bytes.length / BLOCK) * BLOCK;
  }
  return tar;
}

/** Entry that is written: a file, or an extended header. */
interface Entry extends PackageFile {
  /** Type in the header. Default: a file */
  readonly type?: "0" | "x";
}

/** Puts an extended header before a file whose path is too long. Source: POSIX.1-2017 pax, "pax Extended Header" */
function withLongPath(file: PackageFile, index: number): readonly Entry[] {
  if (splitPath(file.path) !== undefined) return [file];
  const rest = ` path=${file.path}\n`;
  const size = new TextEncoder().encode(rest).length;
  // The length counts its own digits
  const digits = String(size + String(size).length).length;
  const bytes = new TextEncoder().encode(`${size + digits}${rest}`);
  return [{ path: `path-${index}`, bytes, executable: false, type: "x" }, { ...file, path: `file-${index}` }];
}

function writeHeader(block: Uint8Array, { path, bytes, executable, type = "0" }: Entry): void {
  const encoder = new TextEncoder();
  const put = (start: number, value: string) => block.set(encoder.encode(value), start);
  const parts = splitPath(path);
  if (parts === undefined) throw wrong(`${shown(path)} is a path too long for a tar`);
  put(0, parts.name);
  put(100, executable ? "0000755\0" : "0000644\0");
  put(108, "0000000\0");
  put(116, "0000000\0");
  put(124, `${bytes.length.toString(8).padStart(11, "0")}\0`);
  put(136, "00000000000\0");
  put(156, type);
  put(257, "ustar\x0000");
  put(345, parts.prefix);
  put(148, `${checksum(block).toString(8).padStart(6, "0")}\0 `);
}

/** Returns the two fields of a path. Undefined for one that is too long for them. */
function splitPath(path: string): { readonly prefix: string; readonly name: string } | undefined {
  const size = (part: string) => new TextEncoder().encode(part).length;
  if (size(path) <= NAME_BYTES) return { prefix: "", name: path };
  for (let at = path.indexOf("/"); at !== -1; at = path.indexOf("/", at + 1)) {
    const [prefix, name] = [path.slice(0, at), path.slice(at + 1)];
    if (size(name) <= NAME_BYTES && size(prefix) <= PREFIX_BYTES) return { prefix, name };
  }
  return undefined;
}

/** Returns a name from a package as a person can read it, in quotes. */
function shown(path: string): string {
  return exactLine(JSON.stringify(path.slice(0, 200)));
}

function wrong(reason: string): ExtensionError {
  return new ExtensionError("package_invalid", `Cannot use the package: ${reason}`);
}

function tooLarge(reason: string): ExtensionError {
  return new ExtensionError("package_too_large", `Cannot use the package: ${reason}`);
}
