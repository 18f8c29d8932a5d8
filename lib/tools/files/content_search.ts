import * as v from "valibot";
import { cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { createSlices, type Slices } from "../../base/slices.ts";
import type { WalkedFile } from "../../system/files/files.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { limitField } from "./limit_field.ts";
import { compileLinePattern, type LinePattern } from "./line_pattern.ts";
import { readScope } from "./read_scope.ts";
import { matching, pathLine, searchPattern } from "./search_pattern.ts";

const MAX_ENTRIES = 100_000;
const MAX_FILE_BYTES = 4_194_304;
const MAX_TOTAL_BYTES = 268_435_456;
/** UTF-16 units of a line that are looked at */
const MAX_LINE = 10_000;
const MAX_SHOWN_LINE = 300;
const BINARY_PROBE_BYTES = 8192;
/** Files read at once */
const READ_AHEAD = 8;
const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1000;

interface Match {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

/** `content_search`: lines that match a regular expression, as `path:line: text` (DESIGN.md section 8, "Files"). */
export const contentSearch = defineTool({
  name: "content_search",
  description:
    "Searches the contents of text files for a regular expression (RE2 syntax). Respects .gitignore. One `path:line: text` a match",
  access: "read",
  enabled: "always",
  needs: ["files"],
  input: v.strictObject({
    pattern: v.pipe(
      v.string(),
      v.minLength(1),
      v.maxLength(1000),
      v.description("Regular expression in RE2 syntax, matched against each line"),
    ),
    path: v.optional(
      v.pipe(v.string(), v.minLength(1), v.description("File or folder to search. Default: the allowed root")),
    ),
    glob: v.optional(
      v.pipe(
        v.string(),
        v.minLength(1),
        v.maxLength(1000),
        v.description("Only files that match this glob, as *.ts or src/**"),
      ),
    ),
    case_insensitive: v.optional(v.pipe(v.boolean(), v.description("Whether case does not matter. Default false"))),
    limit: limitField("matches", { max: MAX_LIMIT, fallback: DEFAULT_LIMIT }),
  }),
  textField: "pattern",
  effects: ({ path = "." }) => ({ root: "read_file", paths: [path] }),
  async run({ pattern, path = ".", glob, case_insensitive: caseInsensitive = false, limit = DEFAULT_LIMIT }, context) {
    const linePattern = compileLinePattern(pattern, { caseInsensitive });
    const matchesGlob = glob === undefined ? undefined : searchPattern(glob, { anywhere: true });
    const slices = createSlices(context);
    const matches: Match[] = [];
    let bytes = 0;
    let searched = 0;
    let cutFiles = 0;
    const notices: string[] = [];
    const walk = context.services.files.walk(path, readScope(context), {
      respectGitignore: true,
      maxEntries: MAX_ENTRIES,
      signal: context.signal,
    });
    try {
      let step = await walk.next();
      for (; !step.done && matches.length <= limit && bytes <= MAX_TOTAL_BYTES; step = await walk.next()) {
        const files = matchesGlob === undefined ? step.value : await matching(step.value, matchesGlob, slices);
        for (let i = 0; i < files.length && matches.length <= limit && bytes <= MAX_TOTAL_BYTES; i += READ_AHEAD) {
          for (const text of await readTexts(files.slice(i, i + READ_AHEAD), context.signal)) {
            searched++;
            bytes += text.bytes;
            if (text.cut) cutFiles++;
            // One match more than wanted shows that there are more
            await searchLines(text, { linePattern, matches, limit: limit + 1, slices });
          }
        }
      }
      if (step.done && step.value.truncated) {
        notices.push(`[Not all was searched: there are more than ${MAX_ENTRIES} entries, give a path]`);
      }
    } finally {
      await walk.return({ truncated: true });
    }
    if (bytes > MAX_TOTAL_BYTES) {
      notices.push(`[Not all was searched: there are more than ${MAX_TOTAL_BYTES} bytes, give a path or glob]`);
    }
    if (cutFiles > 0) notices.push(`[Of ${cutFiles} files only the first ${MAX_FILE_BYTES} bytes were searched]`);
    const found = matches.slice(0, limit);
    if (matches.length > limit) {
      notices.push(`[The first ${limit} matches: narrow the pattern, path or glob, or raise limit]`);
    }
    const lines = found.map((match) => `${pathLine(match.path)}:${match.line}: ${match.text}`);
    const none = `No line matches in ${searched} files`;
    return {
      output: [...(lines.length === 0 ? [none] : lines), ...notices].join("\n"),
      isError: false,
      data: { matches: found, files: searched, truncated: notices.length > 0 },
    };
  },
});

interface FileText {
  readonly path: string;
  readonly text: string;
  readonly bytes: number;
  /** It is longer than what was read */
  readonly cut: boolean;
}

/** The texts of a few files at once: most of the time is waiting for the disk. Settles only when every file is closed. */
async function readTexts(files: readonly WalkedFile[], signal: AbortSignal): Promise<FileText[]> {
  const settled = await Promise.allSettled(files.map((file) => readText(file, signal)));
  return settled.flatMap((result) => {
    if (result.status === "rejected") throw result.reason;
    return result.value ?? [];
  });
}

/** A file's text, undefined when it is binary or cannot be opened. Bytes that are no UTF-8 become U+FFFD. */
async function readText(file: WalkedFile, signal: AbortSignal): Promise<FileText | undefined> {
  if (signal.aborted) throw cancelError(signal);
  let open;
  try {
    open = await file.open();
  } catch (error) {
    // One file that went away or may not be read does not end the search
    if (error instanceof ToolError) return undefined;
    throw error;
  }
  try {
    const buffer = new Uint8Array(Math.min(open.size, MAX_FILE_BYTES));
    const probe = await open.read(buffer.subarray(0, BINARY_PROBE_BYTES), 0);
    if (buffer.subarray(0, probe).includes(0)) return undefined;
    const rest = probe === BINARY_PROBE_BYTES ? await open.read(buffer.subarray(probe), probe) : 0;
    const bytes = buffer.subarray(0, probe + rest);
    const text = new TextDecoder().decode(bytes);
    return { path: file.path, text, bytes: bytes.length, cut: open.size > MAX_FILE_BYTES };
  } finally {
    await open.close();
  }
}

interface SearchLines {
  readonly linePattern: LinePattern;
  readonly matches: Match[];
  readonly limit: number;
  readonly slices: Slices;
}

async function searchLines(
  { path, text }: FileText,
  { linePattern, matches, limit, slices }: SearchLines,
): Promise<void> {
  let line = 1;
  for (let start = 0; start < text.length && matches.length < limit; line++) {
    const newline = text.indexOf("\n", start);
    const end = newline === -1 ? text.length : newline;
    const shownEnd = text[end - 1] === "\r" && end > start ? end - 1 : end;
    const searched = text.slice(start, Math.min(shownEnd, start + MAX_LINE));
    if (linePattern.test(searched)) matches.push({ path, line, text: excerpt(searched, linePattern) });
    start = end + 1;
    if (slices.isOver()) await slices.next();
  }
}

/** The line, or the part of a long one around its match. */
function excerpt(line: string, linePattern: LinePattern): string {
  if (line.length <= MAX_SHOWN_LINE) return line;
  const start = Math.max(0, linePattern.indexIn(line) - MAX_SHOWN_LINE / 3);
  const part = line.slice(start, start + MAX_SHOWN_LINE).toWellFormed();
  return `${start > 0 ? "..." : ""}${part}${start + MAX_SHOWN_LINE < line.length ? "..." : ""}`;
}
