import { Buffer } from "node:buffer";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { createYielder } from "../../base/tick.ts";
import type { Files, FileScope, WalkedFile } from "../../system/files/files.ts";
import { compileLinePattern } from "./line_pattern.ts";
import { matching, SEARCH_LIMITS, type SearchLimits, searchPattern } from "./search_pattern.ts";
import { searchBytes } from "./search_bytes.ts";

/** What is searched for, and where. Plain data. */
export interface FileSearch {
  /** RE2 syntax */
  readonly pattern: string;
  readonly caseInsensitive: boolean;
  /** File or folder, relative to the root */
  readonly path: string;
  readonly glob: string | undefined;
  /** Matches to find at most */
  readonly limit: number;
}

/** What was found. Plain data. */
export interface FilesSearched {
  /** One more than the limit where there are more */
  readonly matches: readonly FileMatch[];
  /** Text files that were looked into */
  readonly files: number;
  /** Of them, longer than what is looked at */
  readonly cutFiles: number;
  /** The limit at which the search ended before its end */
  readonly ended: "entries" | "bytes" | undefined;
}

export interface FileMatch {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

const BINARY_PROBE_BYTES = 8192;
const LARGE_BYTES = 262_144;
/** Files read at once, where reading a file does not block */
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
  /** Asked often; throws to end the search */
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
  // One match more than wanted shows that there are more
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

/** Gives the same memory again and again, more of it when more is needed. */
type ReusedBuffer = (bytes: number) => Buffer;

function createBuffer(): ReusedBuffer {
  let buffer = Buffer.alloc(0);
  return (bytes) => {
    if (buffer.length < bytes) buffer = Buffer.allocUnsafeSlow(Math.max(bytes, 65_536));
    return buffer.subarray(0, bytes);
  };
}

interface ReadOptions {
  /** One for each file */
  readonly buffers: readonly ReusedBuffer[];
  readonly maxBytes: number;
}

/** The texts of a few files at once. Settles only when every file is closed. */
async function readTexts(files: readonly WalkedFile[], { buffers, maxBytes }: ReadOptions): Promise<FileText[]> {
  const settled = await Promise.allSettled(
    files.map((file, index) => readText(file, { bufferOf: buffers[index] ?? createBuffer(), maxBytes })),
  );
  return settled.flatMap((result) => {
    if (result.status === "rejected") throw result.reason;
    return result.value ?? [];
  });
}

/** A file's text, undefined when it is binary or cannot be opened. */
async function readText(
  file: WalkedFile,
  { bufferOf, maxBytes }: { readonly bufferOf: ReusedBuffer; readonly maxBytes: number },
): Promise<FileText | undefined> {
  let open;
  try {
    open = await file.open();
  } catch (error) {
    // One file that went away or may not be read does not end the search
    if (error instanceof ToolError) return undefined;
    throw error;
  }
  try {
    const buffer = bufferOf(Math.min(open.size, maxBytes));
    // Of a large file only the beginning is read before it is known to be text
    const first = await open.read(buffer.subarray(0, LARGE_BYTES), 0);
    if (buffer.subarray(0, Math.min(first, BINARY_PROBE_BYTES)).includes(0)) return undefined;
    const rest = first === LARGE_BYTES ? await open.read(buffer.subarray(first), first) : 0;
    return { path: file.path, bytes: buffer.subarray(0, first + rest), cut: open.size > maxBytes };
  } catch (error) {
    // A private key is left out as a sensitive name is
    if (error instanceof ToolError && error.code === "path_sensitive") return undefined;
    throw error;
  } finally {
    await open.close();
  }
}
