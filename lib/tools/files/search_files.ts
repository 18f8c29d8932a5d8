import { Buffer } from "node:buffer";
import { ToolError } from "../../base/errors.ts";
import { isAscii, utf16Of, utf16ToUtf8 } from "../../base/text.ts";
import { Yielder } from "../../base/tick.ts";
import type { Files, WalkedFile } from "../../system/files/files.ts";
import { compileComposedPattern, compileLinePattern, type LinePattern } from "./line_pattern.ts";
import type { FileSearch, SearchContext } from "./search_job.ts";
import { matching, SEARCH_LIMITS, type SearchLimits, searchPattern } from "./search_pattern.ts";
import { type FoundLine, searchBytes } from "./search_bytes.ts";

/** Result of a search. Plain data. */
export interface FilesSearched {
  /** Matches in the order of the files; one more than the limit when there are more */
  readonly matches: readonly FileMatch[];
  /** Number of text files that were searched */
  readonly files: number;
  /** Number of searched files that are longer than the part that is searched */
  readonly cutFiles: number;
  /** Number of lines that are longer than the part that is searched */
  readonly cutLines: number;
  /** The first of these lines */
  readonly cutAt: readonly LineOfFile[];
  /** UTF-16 units of a line that are searched */
  readonly maxLine: number;
  /** The limit at which the search ended before its end */
  readonly ended: "entries" | "bytes" | undefined;
  /** True when the lines have the text of the pattern in other code points alone */
  readonly isComposed?: boolean;
}

/** Line of a file. The number counts from 1. */
export interface LineOfFile {
  readonly path: string;
  readonly line: number;
}

/** Line that matches, in a file. */
export interface FileMatch extends FoundLine, LineOfFile {}

const BINARY_PROBE_BYTES = 8192;
const LARGE_BYTES = 262_144;
/** Files that are read at once, when reading does not block */
const READ_AHEAD = 8;
const MAX_CUT_AT = 5;

/** Options of a search for lines. */
export interface FileSearchOptions extends SearchContext {
  /** Default: SEARCH_LIMITS */
  readonly limits?: SearchLimits;
}

/**
 * Searches the text files below a path, in the order of their names; ends at the first limit it meets, without reading on. Where no line
 * has the letters of the pattern, lines with the same text in other code points (NFC) are looked for.
 * @throws {ToolError} as `Files.walk`, and for a bad pattern or glob
 * @throws {CancelError} when the signal aborts
 */
export async function searchFiles(
  files: Files,
  search: FileSearch,
  options: FileSearchOptions,
): Promise<FilesSearched> {
  const exact = await searchOnce(files, search, { ...options, pattern: compileLinePattern(search.pattern, search) });
  if (exact.matches.length > 0 || isAscii(search.pattern)) return exact;
  const pattern = compileComposedPattern(search.pattern, search);
  const composed = await searchOnce(files, search, { ...options, pattern });
  return composed.matches.length > 0 ? { ...composed, isComposed: true } : exact;
}

async function searchOnce(
  files: Files,
  search: FileSearch,
  options: FileSearchOptions & { readonly pattern: LinePattern },
): Promise<FilesSearched> {
  const { scope, signal, check, pattern, limits = SEARCH_LIMITS } = options;
  const found = new FoundMatches(search, { check, limits, pattern });
  const matchesGlob = search.glob === undefined ? undefined : searchPattern(search.glob, { anywhere: true });
  const yielder = new Yielder(options);
  const walk = files.walk(search.path, scope, { respectGitignore: true, maxEntries: limits.entries, signal });
  try {
    do {
      const step = await walk.next();
      check();
      if (step.done) return found.result({ truncated: step.value.truncated });
      await found.searchFolder(
        matchesGlob === undefined ? step.value : await matching(step.value, matchesGlob, yielder),
      );
    } while (!found.isOver);
    return found.result({ truncated: false });
  } finally {
    await walk.return({ truncated: true });
  }
}

/** The matches of one search so far, and what was read for them. */
class FoundMatches {
  readonly #pattern: LinePattern;
  readonly #limit: number;
  readonly #limits: SearchLimits;
  readonly #check: () => void;
  readonly #buffers = Array.from({ length: READ_AHEAD }, createBuffer);
  readonly #matches: FileMatch[] = [];
  #bytes = 0;
  #files = 0;
  #cutFiles = 0;
  #cutLines = 0;
  readonly #cutAt: LineOfFile[] = [];

  constructor(
    search: FileSearch,
    { check, limits, pattern }: {
      readonly check: () => void;
      readonly limits: SearchLimits;
      readonly pattern: LinePattern;
    },
  ) {
    this.#pattern = pattern;
    this.#limit = search.limit;
    this.#limits = limits;
    this.#check = check;
  }

  /** True when a limit is met. */
  get isOver(): boolean {
    return this.#isFull() || this.#bytes > this.#limits.totalBytes;
  }

  /** Searches files, some of them read at the same time, until a limit is met. */
  async searchFolder(files: readonly WalkedFile[]): Promise<void> {
    const read = { buffers: this.#buffers, maxBytes: this.#limits.fileBytes };
    for (let i = 0; i < files.length && !this.isOver; i += READ_AHEAD) {
      this.#check();
      for (const text of await readTexts(files.slice(i, i + READ_AHEAD), read)) this.#search(text);
    }
  }

  result({ truncated }: { readonly truncated: boolean }): FilesSearched {
    const ended = this.#bytes > this.#limits.totalBytes ? "bytes" : truncated ? "entries" : undefined;
    return {
      matches: this.#matches,
      files: this.#files,
      cutFiles: this.#cutFiles,
      cutLines: this.#cutLines,
      cutAt: this.#cutAt,
      maxLine: this.#pattern.maxLine,
      ended,
    };
  }

  #search(text: FileText): void {
    if (this.#isFull()) return;
    this.#files++;
    this.#bytes += text.bytes.length;
    if (text.cut) this.#cutFiles++;
    const limit = this.#limit + 1 - this.#matches.length;
    const { lines, cutLines } = searchBytes(text.bytes, { pattern: this.#pattern, limit, check: this.#check });
    for (const line of lines) this.#matches.push({ path: text.path, ...line });
    this.#cutLines += cutLines.length;
    for (const line of cutLines.slice(0, MAX_CUT_AT - this.#cutAt.length)) this.#cutAt.push({ path: text.path, line });
  }

  /** A match beyond the limit shows that there are more */
  #isFull(): boolean {
    return this.#matches.length > this.#limit;
  }
}

interface FileText {
  readonly path: string;
  readonly bytes: Buffer;
  /** The file is longer than what was read */
  readonly cut: boolean;
}

/** Returns a buffer of at least so many bytes: the same memory each time, made again only when it is too small. */
type ReusedBuffer = (bytes: number) => Buffer;

function createBuffer(): ReusedBuffer {
  let buffer = Buffer.alloc(0);
  return (bytes) => {
    if (buffer.length < bytes) buffer = Buffer.allocUnsafeSlow(Math.max(bytes, 65_536));
    return buffer.subarray(0, bytes);
  };
}

interface ReadOptions {
  /** A buffer for each file */
  readonly buffers: readonly ReusedBuffer[];
  readonly maxBytes: number;
}

/** Reads the texts of a few files at once. Settles only when every file is closed. */
async function readTexts(files: readonly WalkedFile[], { buffers, maxBytes }: ReadOptions): Promise<FileText[]> {
  const settled = await Promise.allSettled(
    files.map((file, index) => readText(file, { bufferOf: buffers[index] ?? createBuffer(), maxBytes })),
  );
  return settled.flatMap((result) => {
    if (result.status === "rejected") throw result.reason;
    return result.value ?? [];
  });
}

/** Reads a file's text. undefined when the file is binary or cannot be opened. */
async function readText(
  file: WalkedFile,
  { bufferOf, maxBytes }: { readonly bufferOf: ReusedBuffer; readonly maxBytes: number },
): Promise<FileText | undefined> {
  let open;
  try {
    open = await file.open();
  } catch (error) {
    // A file that is gone or may not be read does not end the search
    if (error instanceof ToolError) return undefined;
    throw error;
  }
  try {
    const buffer = bufferOf(Math.min(open.size, maxBytes));
    // Only the beginning of a large file is read before it is known to be text
    const first = await open.read(buffer.subarray(0, LARGE_BYTES), 0);
    const isUtf16 = utf16Of(buffer.subarray(0, first)) !== undefined;
    if (!isUtf16 && buffer.subarray(0, Math.min(first, BINARY_PROBE_BYTES)).includes(0)) return undefined;
    const rest = first === LARGE_BYTES ? await open.read(buffer.subarray(first), first) : 0;
    const cut = open.size > maxBytes;
    const read = buffer.subarray(0, first + rest);
    if (!isUtf16) return { path: file.path, bytes: read, cut };
    const text = utf16ToUtf8(read) ?? (cut ? utf16ToUtf8(read.subarray(0, -2)) : undefined);
    return text && { path: file.path, bytes: Buffer.from(text.buffer, text.byteOffset, text.byteLength), cut };
  } catch (error) {
    // A file with a private key is left out, like a file with a sensitive name
    if (error instanceof ToolError && error.code === "path_sensitive") return undefined;
    throw error;
  } finally {
    await open.close();
  }
}
