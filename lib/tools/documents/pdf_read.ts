import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { DOCUMENT_TIMEOUT_MS, readDocument } from "./read_document.ts";

const page = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(1_000_000));

/** `pdf_read`: reads the text of the pages of a PDF document (docs/design/tools.md "Files"). */
export const pdfRead = defineTool({
  name: "pdf_read",
  description:
    "Reads the text of a PDF document, each page after a line `[Page 3 of 12]`. A long text is cut between pages, with a notice how to go on",
  access: "read",
  verbatim: true,
  enabled: "always",
  needs: ["files", "workers"],
  timeoutMs: () => DOCUMENT_TIMEOUT_MS,
  input: v.strictObject({
    path: v.pipe(v.string(), v.minLength(1), v.description("Relative to the allowed root")),
    page_start: v.optional(v.pipe(page, v.description("First page, from 1"))),
    page_end: v.optional(v.pipe(page, v.description("Last page. Default: the last one"))),
  }),
  textField: "path",
  check({ page_start: start = 1, page_end: end }) {
    if (end === undefined || end >= start) return;
    throw new ToolError("invalid_input", `Cannot read pages ${start} to ${end}: "page_end" is before "page_start"`);
  },
  effects: ({ path }) => ({ root: "read_file", paths: [path] }),
  async run({ path, page_start: start = 1, page_end: end }, context) {
    const { content, size } = await readDocument(path, { kind: "pdf", pages: { start, end } }, context);
    const { text, title, author, pages, lastPage, nextPage, stoppedBy, truncated, unknownCharacters, isRepaired } =
      content;
    const notices = [
      ...(isRepaired ? ["[The file is damaged or cut off: pages or parts of them may be missing]"] : []),
      ...(truncated ? [`[Page ${lastPage} is longer, and was cut]`] : []),
      ...(unknownCharacters > 0
        ? [`[${unknownCharacters} characters are missing: their fonts do not say what they mean]`]
        : []),
      ...(nextPage === undefined
        ? []
        : stoppedBy === undefined
        ? [`[Cut after page ${lastPage} of ${pages}: go on with "page_start": ${nextPage}]`]
        : [`[Page ${nextPage} of ${pages} was not read: ${stoppedBy}; try "page_start": ${nextPage}]`]),
    ];
    return {
      output: [text, ...notices].join("\n\n"),
      isError: false,
      data: {
        path,
        size,
        title: title ?? null,
        author: author ?? null,
        pages,
        page_start: start,
        page_end: lastPage,
        next_page: nextPage ?? null,
        truncated: truncated || nextPage !== undefined,
      },
    };
  },
});
