import { Buffer } from "node:buffer";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { createYielder } from "../../base/tick.ts";
import type { Files, FileScope, WalkedFile } from "../../system/files/files.ts";
import { compileLinePattern } from "./line_pattern.ts";
import { matching, SEARCH_LIMITS, type SearchLimits, searchPattern } from "./search_pattern.ts";
import { searchBytes } from "./search_bytes.ts";

/** Pattern and place of a search. Plain data. */
export interface FileSearch {
  /** Regular expression in RE2 syntax */
  readonly pattern: string;
  readonly caseInsensitive: boolean;
  /** File or folder, relative to the root */
  readonly path: string;
  readonly glob: string | undefined;
  /** Matches to find at most */
  readonly limit: number;
}

/** Result of a search. Plain data. */
export interface FilesSearched {
  /** Matches in the order of the files; one more than the limit when there are more */
  readonly matches: readonly FileMatch[];
  /** Number of text files that were searched */
  readonly files: number;
  /** Number of searched files that are longer than the part that is searched */
  readonly cutFiles: number;
  /** The limit at which the search ended before its end */
  readonly ended: "entries" | "bytes" | undefined;
}

/** Line that matches, in a file. */
export interface FileMatch {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

const BINARY_PROBE_BYTES = 8192;
const LARGE_BYTES = 262_144;
/** Files that are read at once, when reading does not block */
const READ_AHEAD = 8;

/**
 * Searches the text files below a path, in the order of their names; ends at the first limit it meets, without reading on.
 * @throws {ToolError} as `Files.walk`, and for a bad pattern or glob
 * @throws {CancelError} when the signal aborts
 */
export async function searchFiles(files: Files, search: FileSearch, options: {
  readonly scope: FileScope;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Called often; throws to end the search */
  readonly check: () => void;
  /** Default: SEARCH_LIMITS */
  readonly limits?: SearchLimits;
}): Promise<FilesSearched> {
  const { scope, signal, check, limits = SEARCH_LIMITS } = options;
  const pattern = compileLinePattern(search.pattern, search);
  const matchesGlob = search.glob === undefined ? undefined : searchPattern(search.glob, { anywhere: true });
  const yielder = createYielder(options);
  const read = { buffers: Array.from({ length: READ_AHEAD }, createBuffer), maxBytes: limits.fileBytes };
  const matches: FileMatch[] = [];
  let bytes = 0;
  let searched = 0;
  let cutFiles = 0;
  // A match beyond the limit shows that there are more
  const isFull = () => matches.length > search.limit;
  const isOver = () => isFull() || bytes > limits.totalBytes;

  const look = (text: FileText) => {
    searched++;
    bytes += text.bytes.length;
    if (text.cut) cutFiles++;
    const found = searchBytes(text.bytes, { pattern, limit: search.limit + 1 - matches.length, check });
    for (const line of found) matches.push({ path: text.path, ...line });
  };

  const walk = files.walk(search.path, scope, { respectGitignore: true, maxEntries: limits.entries, signal });
  try {
    let truncated = false;
    do {
      const step = await walk.next();
      if (step.done) {
        truncated = step.value.truncated;
        break;
      }
      const folder = matchesGlob === undefined ? step.value : await matching(step.value, matchesGlob, yielder);
      for (let i = 0; i < folder.length && !isOver(); i += READ_AHEAD) {
        check();
        for (const text of await readTexts(folder.slice(i, i + READ_AHEAD), read)) if (!isFull()) look(text);
      }
    } while (!isOver());
    const ended = bytes > limits.totalBytes ? "bytes" : truncated ? "entries" : undefined;
    return { matches, files: searched, cutFiles, ended };
  } finally {
    await walk.return({ truncated: true });
  }
}

interface FileText {
  readonly path: string;
  readonly bytes: Buffer;
  /** The file is longer than what was read */
  readonly cut: boolean;
}

/** Returns a buffer of at least so many bytes: the same memory each time, made anew only when it is too small. */
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
    if (buffer.subarray(0, Math.min(first, BINARY_PROBE_BYTES)).includes(0)) return undefined;
    const rest = first === LARGE_BYTES ? await open.read(buffer.subarray(first), first) : 0;
    return { path: file.path, bytes: buffer.subarray(0, first + rest), cut: open.size > maxBytes };
  } catch (error) {
    // A file with a private key is left out, like a file with a sensitive name
    if (error instanceof ToolError && error.code === "path_sensitive") return undefined;
    throw error;
  } finally {
    await open.close();
  }
}
