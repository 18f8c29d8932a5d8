import * as v from "valibot";
import { type ContextWith, defineTool } from "../runtime/define_tool.ts";
import { readScope } from "./file_scope.ts";
import { type FilesFound, findFiles } from "./find_files.ts";
import { type NameSearch, runSearch } from "./search_job.ts";
import { pathLine, SEARCH_LIMITS, searchPattern } from "./search_pattern.ts";

/** Files and folders that are walked before a thread is started */
const FEW_ENTRIES = 500;
const DEFAULT_LIMIT = 200;
const MAX_LIMIT = 2000;

/** `glob_search`: finds files by glob and returns their paths, sorted (docs/design/tools.md "Files"). */
export const globSearch = defineTool({
  name: "glob_search",
  description: "Finds files by glob, as src/**/*.{js,ts}. Respects .gitignore, follows no links. Returns sorted paths",
  access: "read",
  enabled: "always",
  alwaysOffered: true,
  needs: ["files", "workers"],
  input: v.strictObject({
    pattern: v.pipe(
      v.string(),
      v.minLength(1),
      v.maxLength(1000),
      v.description("Relative to path: * and ? within a name, ** for any folders, [a-z], {a,b}"),
    ),
    path: v.optional(v.pipe(v.string(), v.minLength(1), v.description("Folder. Default: the allowed root"))),
    limit: limitField("paths", { max: MAX_LIMIT, fallback: DEFAULT_LIMIT }),
  }),
  textField: "pattern",
  check: ({ pattern }) => void searchPattern(pattern, { anywhere: false }),
  effects: ({ path = "." }) => ({ root: "read_file", paths: [path] }),
  async run({ pattern, path = ".", limit = DEFAULT_LIMIT }, context) {
    const { paths, count, truncated } = await find({ kind: "names", glob: pattern, path, limit }, context);
    const notices = [
      ...(count > limit ? [`[The first ${limit} of ${count} files: narrow the pattern or raise limit]`] : []),
      ...(truncated
        ? [`[Not all was searched: there are more than ${SEARCH_LIMITS.entries} entries, give a path]`]
        : []),
    ];
    const none = pattern.includes("/")
      ? "No file matches"
      : `No file matches; **/${pattern} also searches the folders below`;
    const lines = paths.length === 0 ? [none, ...notices] : [...paths.map(pathLine), ...notices];
    const data = { paths, truncated: notices.length > 0 };
    return { output: lines.join("\n"), isError: false, data, reads: [], lists: paths };
  },
});

/** Finds files in this thread while there are few: to start another one takes longer than to walk them. */
async function find(search: NameSearch, context: ContextWith<"files" | "workers">): Promise<FilesFound> {
  const { clock, signal } = context;
  const found = await findFiles(context.services.files, search, {
    scope: readScope(context),
    clock,
    signal,
    check: () => {},
    maxEntries: FEW_ENTRIES,
  });
  return found.truncated ? await runSearch<FilesFound>(search, context) : found;
}

/** Makes the field `limit` of a search. @param unit the things that are counted, such as "matches" */
export function limitField(unit: string, { max, fallback }: { readonly max: number; readonly fallback: number }) {
  return v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1),
      v.maxValue(max),
      v.description(`Most ${unit}. Default ${fallback}`),
    ),
  );
}
