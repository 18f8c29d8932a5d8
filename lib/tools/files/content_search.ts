import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { limitField } from "./glob_search.ts";
import type { FileMatch, FilesSearched } from "./search_files.ts";
import { runSearch } from "./search_job.ts";
import { pathLine, SEARCH_LIMITS, searchPattern } from "./search_pattern.ts";

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1000;

/** `content_search`: finds lines that match a regular expression, such as `path:line: text` (docs/design/tools.md "Files"). */
export const contentSearch = defineTool({
  name: "content_search",
  description:
    "Searches text files for lines that match a regular expression. Respects .gitignore. Returns `path:line: text`",
  access: "read",
  enabled: "always",
  alwaysOffered: true,
  needs: ["files", "workers"],
  input: v.strictObject({
    pattern: v.pipe(
      v.string(),
      v.minLength(1),
      v.maxLength(1000),
      v.description("RE2 syntax, matched against each line"),
    ),
    path: v.optional(
      v.pipe(v.string(), v.minLength(1), v.description("File or folder. Default: the allowed root")),
    ),
    glob: v.optional(
      v.pipe(
        v.string(),
        v.maxLength(1000),
        v.description("Only these files, such as *.ts or src/**"),
      ),
    ),
    case_insensitive: v.optional(
      v.pipe(v.boolean(), v.description("Default false")),
    ),
    limit: limitField("matches", { max: MAX_LIMIT, fallback: DEFAULT_LIMIT }),
  }),
  textField: "pattern",
  // Small models fill in each field, this one with nothing
  check: ({ glob = "" }) => void (glob === "" || searchPattern(glob, { anywhere: true })),
  effects: ({ path = "." }) => ({ root: "read_file", paths: [path] }),
  async run(
    { pattern, path = ".", glob = "", case_insensitive: caseInsensitive = false, limit = DEFAULT_LIMIT },
    context,
  ) {
    const result = await runSearch<FilesSearched>(
      { kind: "lines", pattern, caseInsensitive, path, glob: glob === "" ? undefined : glob, limit },
      context,
    );
    const { matches, files: searched } = result;
    const found = matches.slice(0, limit);
    const notices = noticesOf(result, limit);
    const lines = found.map(matchLine);
    const crossing = /\n|(?<!\\)(?:\\\\){0,50}\\n/.test(pattern)
      ? ". A pattern meets one line at a time: search for a part without its line break"
      : "";
    const none = `No line matches in ${searched} files${crossing}`;
    const shortened = found.some(({ startByte }) => startByte !== undefined);
    return {
      output: [
        ...(lines.length === 0 ? [none] : lines),
        ...(shortened ? [SHORTENED] : []),
        ...(result.isComposed ? [COMPOSED] : []),
        ...notices,
      ].join("\n"),
      isError: false,
      data: { matches: found.map(matchData), files: searched, truncated: notices.length > 0 },
      reads: [...new Set(found.map(({ path }) => path))],
    };
  },
});

const SHORTENED =
  '[Long lines are shortened around their match: read_file with the "start_line" and "start_byte" goes on at the match]';

const COMPOSED = "[No line has the code points of the pattern: these have the same text in others]";

function matchLine({ path, line, text, startByte }: FileMatch): string {
  return `${pathLine(path)}:${line}: ${text}${startByte === undefined ? "" : ` [start_byte ${startByte}]`}`;
}

function matchData({ path, line, text, startByte }: FileMatch) {
  return { path, line, text, ...(startByte === undefined ? {} : { start_byte: startByte }) };
}

/** Returns a line for each bound that the search met. */
function noticesOf(
  { matches, cutFiles, cutLines, cutAt, maxLine, ended }: FilesSearched,
  limit: number,
): readonly string[] {
  const notices: string[] = [];
  if (ended !== undefined) {
    const [most, way] =
      { entries: [SEARCH_LIMITS.entries, "path"], bytes: [SEARCH_LIMITS.totalBytes, "path or glob"] }[ended];
    notices.push(`[Not all was searched: there are more than ${most} ${ended}, give a ${way}]`);
  }
  if (cutFiles > 0) {
    notices.push(`[Of ${cutFiles} files only the first ${SEARCH_LIMITS.fileBytes} bytes were searched]`);
  }
  if (cutLines > 0) {
    const places = cutAt.map(({ path, line }) => `${pathLine(path)}:${line}`).join(", ");
    const more = cutLines > cutAt.length ? " and others" : "";
    notices.push(
      `[Of ${cutLines} long lines only the first ${maxLine} characters were searched, a shorter pattern searches more: ${places}${more}]`,
    );
  }
  if (matches.length > limit) {
    notices.push(`[The first ${limit} matches: narrow the pattern, path or glob, or raise limit]`);
  }
  return notices;
}
