import { cancelError } from "../../base/cancel.ts";
import type { OpenFile } from "../../system/files/files.ts";

const CHUNK_BYTES = 65_536;
const NEWLINE = 10;

/** Part of a file, in whole lines unless it was cut. */
export interface FilePart {
  readonly bytes: Uint8Array;
  /** Set when the limit of bytes ended the part before the last requested line */
  readonly cut: boolean;
  /** Line to go on with after a cut: the line that was cut. undefined when that is the part's first line */
  readonly nextLine: number | undefined;
}

/** Options of readPart. */
export interface ReadPartOptions {
  /** First line, counted from 1 */
  readonly startLine: number;
  /** Lines to read. undefined: to the end */
  readonly lineCount: number | undefined;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
}

/**
 * Reads lines of a file up to a limit of bytes, and cuts only between UTF-8 characters.
 * @returns the part, or the file's number of lines when `startLine` is behind its end
 */
export async function readPart(
  file: OpenFile,
  options: ReadPartOptions,
): Promise<FilePart | { readonly lines: number }> {
  const { startLine, lineCount, maxBytes, signal } = options;
  const start = await findLine(file, startLine, signal);
  if ("lines" in start) return start;
  // The byte beyond the limit shows whether the file goes on
  const buffer = new Uint8Array(Math.min(maxBytes, Math.max(0, file.size - start.offset) + CHUNK_BYTES) + 1);
  const length = await file.read(buffer, start.offset);
  const wanted = lineCount === undefined ? length : endOfLines(buffer.subarray(0, length), lineCount);
  if (wanted <= maxBytes && (wanted < buffer.length || lineCount !== undefined)) {
    return { bytes: buffer.subarray(0, wanted), cut: false, nextLine: undefined };
  }
  const bytes = buffer.subarray(0, characterEnd(buffer, Math.min(maxBytes, buffer.length - 1)));
  const newlines = countNewlines(bytes);
  return { bytes, cut: true, nextLine: newlines === 0 ? undefined : startLine + newlines };
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

async function findLine(
  file: OpenFile,
  line: number,
  signal: AbortSignal,
): Promise<{ readonly offset: number } | { readonly lines: number }> {
  if (line === 1) return { offset: 0 };
  const buffer = new Uint8Array(CHUNK_BYTES);
  let lines = 1;
  let endsWithNewline = true;
  for (let position = 0;;) {
    if (signal.aborted) throw cancelError(signal);
    const length = await file.read(buffer, position);
    for (let at = buffer.indexOf(NEWLINE); at !== -1 && at < length; at = buffer.indexOf(NEWLINE, at + 1)) {
      if (++lines < line) continue;
      // The line exists only when something stands in it
      const next = new Uint8Array(1);
      return (await file.read(next, position + at + 1)) === 1 ? { offset: position + at + 1 } : { lines: lines - 1 };
    }
    if (length > 0) endsWithNewline = buffer[length - 1] === NEWLINE;
    if (length < buffer.length) return { lines: endsWithNewline ? lines - 1 : lines };
    position += length;
  }
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
