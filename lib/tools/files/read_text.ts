import { cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { type Utf16, utf16Of, utf16ToUtf8 } from "../../base/text.ts";
import type { OpenFile } from "../../system/files/files.ts";
import { KEY_HEAD_BYTES } from "../../system/files/sensitive_files.ts";

const CHUNK_BYTES = 65_536;
const NEWLINE = 10;

/** Part of a file, in whole lines unless it was cut or starts inside a line. */
export interface FilePart {
  readonly kind: "part";
  readonly bytes: Uint8Array;
  /** Byte of the first line that the part starts at, counted from 1. Later than asked for when that was inside a character */
  readonly startByte: number;
  /** True when the limit of bytes ended the part before the last requested line */
  readonly cut: boolean;
  /** Place to go on at after a cut. undefined when the limit is smaller than a character */
  readonly next: TextPlace | undefined;
}

/** Place in a text file. Both numbers count from 1. */
export interface TextPlace {
  readonly line: number;
  /** Byte of the line. 1: the line's beginning */
  readonly byte: number;
}

/** Reason why there is no part: the file has only so many lines, or its line has only so many bytes, with its ending. */
export type NoPart =
  | { readonly kind: "no_line"; readonly lines: number }
  | { readonly kind: "no_byte"; readonly bytes: number };

/** Options of readPart. */
export interface ReadPartOptions {
  /** First line, counted from 1 */
  readonly startLine: number;
  /** First byte of that line, counted from 1 */
  readonly startByte: number;
  /** Lines to read. undefined: to the end */
  readonly lineCount: number | undefined;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
}

/**
 * Reads lines of a file up to a limit of bytes, and cuts only between UTF-8 characters. After a cut the next part begins with the line
 * that was cut, or inside it when the whole part is of one line.
 */
export async function readPart(file: OpenFile, options: ReadPartOptions): Promise<FilePart | NoPart> {
  const { startLine, lineCount, maxBytes } = options;
  const start = await findStart(file, options);
  if (start.kind !== "start") return start;
  const { offset, byte: startByte } = start;
  // The byte beyond the limit shows whether the file goes on
  const buffer = new Uint8Array(Math.min(maxBytes, Math.max(0, file.size - offset) + CHUNK_BYTES) + 1);
  const length = await file.read(buffer, offset);
  const wanted = lineCount === undefined ? length : endOfLines(buffer.subarray(0, length), lineCount);
  if (wanted <= maxBytes && (wanted < buffer.length || lineCount !== undefined)) {
    return { kind: "part", bytes: buffer.subarray(0, wanted), startByte, cut: false, next: undefined };
  }
  const bytes = buffer.subarray(0, characterEnd(buffer, Math.min(maxBytes, buffer.length - 1)));
  const newlines = countNewlines(bytes);
  const next = newlines > 0
    ? { line: startLine + newlines, byte: 1 }
    : { line: startLine, byte: startByte + bytes.length };
  return { kind: "part", bytes, startByte, cut: true, next: bytes.length === 0 ? undefined : next };
}

/** Bytes of a UTF-16 file that is read: all of its text is held in memory. */
const MAX_UTF16_BYTES = 33_554_432;

/**
 * Returns a UTF-16 file with a byte order mark as one of UTF-8, and any other file as it is.
 * @param path for the error
 * @throws {ToolError} `file_too_large`
 */
export async function asUtf8(
  file: OpenFile,
  path: string,
): Promise<{ readonly file: OpenFile; readonly encoding: "utf-8" | Utf16 }> {
  // As much as is looked at for a private key, so that the beginning is read once for both
  const head = new Uint8Array(KEY_HEAD_BYTES);
  await file.read(head, 0);
  const encoding = utf16Of(head);
  if (encoding === undefined) return { file, encoding: "utf-8" };
  if (file.size > MAX_UTF16_BYTES) {
    throw new ToolError(
      "file_too_large",
      `Cannot read "${path}": it is UTF-16 of ${file.size} bytes, and at most ${MAX_UTF16_BYTES} are read; save it as UTF-8`,
    );
  }
  const bytes = new Uint8Array(file.size);
  const text = utf16ToUtf8(bytes.subarray(0, await file.read(bytes, 0)));
  if (text === undefined) return { file, encoding: "utf-8" };
  const read = (buffer: Uint8Array, position: number) => {
    const part = text.subarray(position, position + buffer.length);
    buffer.set(part);
    return Promise.resolve(part.length);
  };
  return { file: { ...file, size: text.length, read }, encoding };
}

/** Returns the text of bytes and keeps a byte order mark. undefined for NUL or invalid UTF-8. */
export function decodeText(bytes: Uint8Array): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

type Start = { readonly kind: "start"; readonly offset: number; readonly byte: number };

async function findStart(
  file: OpenFile,
  { startLine, startByte, signal }: ReadPartOptions,
): Promise<Start | NoPart> {
  const line = await findLine(file, startLine, signal);
  if (typeof line !== "number") return line;
  if (startByte === 1) return { kind: "start", offset: line, byte: 1 };
  const bytes = await bytesOfLine(file, { offset: line, max: startByte, signal });
  if (bytes < startByte) return { kind: "no_byte", bytes };
  const offset = await characterStart(file, line + startByte - 1);
  return { kind: "start", offset, byte: offset - line + 1 };
}

/** Returns the offset at which a line begins. */
async function findLine(file: OpenFile, line: number, signal: AbortSignal): Promise<number | NoPart> {
  if (line === 1) return 0;
  const buffer = new Uint8Array(CHUNK_BYTES);
  let lines = 1;
  let endsWithNewline = true;
  for (let position = 0;;) {
    if (signal.aborted) throw cancelError(signal);
    const length = await file.read(buffer, position);
    for (let at = buffer.indexOf(NEWLINE); at !== -1 && at < length; at = buffer.indexOf(NEWLINE, at + 1)) {
      if (++lines < line) continue;
      // The line exists only when something is in it
      const next = new Uint8Array(1);
      const exists = (await file.read(next, position + at + 1)) === 1;
      return exists ? position + at + 1 : { kind: "no_line", lines: lines - 1 };
    }
    if (length > 0) endsWithNewline = buffer[length - 1] === NEWLINE;
    if (length < buffer.length) return { kind: "no_line", lines: endsWithNewline ? lines - 1 : lines };
    position += length;
  }
}

/** Returns how many bytes the line at `offset` has with its ending; `max` when it has as many or more. */
async function bytesOfLine(
  file: OpenFile,
  { offset, max, signal }: { readonly offset: number; readonly max: number; readonly signal: AbortSignal },
): Promise<number> {
  const buffer = new Uint8Array(CHUNK_BYTES);
  for (let bytes = 0; bytes < max;) {
    if (signal.aborted) throw cancelError(signal);
    const length = await file.read(buffer, offset + bytes);
    const newline = buffer.subarray(0, length).indexOf(NEWLINE);
    if (newline !== -1) return Math.min(max, bytes + newline + 1);
    bytes += length;
    if (length < buffer.length) return Math.min(max, bytes);
  }
  return max;
}

/** Returns the first position at or behind `offset` that is not inside a UTF-8 character. */
async function characterStart(file: OpenFile, offset: number): Promise<number> {
  // A character has at most three continuation bytes
  const from = Math.max(0, offset - 3);
  const around = new Uint8Array(offset - from + 3);
  const length = await file.read(around, from);
  for (let lead = offset - from - 1; lead >= 0; lead--) {
    const end = lead + bytesOfCharacter(around[lead] ?? 0);
    const character = around.subarray(lead, Math.min(end, length));
    if (end > offset - from && decodeText(character) !== undefined) return from + end;
  }
  return offset;
}

/** Returns the length of a UTF-8 character by its first byte; 1 when the byte begins none. */
function bytesOfCharacter(first: number): number {
  return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

function endOfLines(bytes: Uint8Array, count: number): number {
  let end = 0;
  for (let i = 0; i < count; i++) {
    const newline = bytes.indexOf(NEWLINE, end);
    if (newline === -1) return bytes.length;
    end = newline + 1;
  }
  return end;
}

function countNewlines(bytes: Uint8Array): number {
  let count = 0;
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) count++;
  return count;
}

/** Returns the largest position at or before `end` that splits no UTF-8 character. */
function characterEnd(bytes: Uint8Array, end: number): number {
  let start = end;
  // A character has at most three continuation bytes, 10xxxxxx
  while (start > 0 && end - start < 3 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start--;
  return ((bytes[start] ?? 0) & 0xc0) === 0x80 ? end : start;
}
