import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { DOCUMENT_TIMEOUT_MS, readDocument } from "./read_document.ts";

/** `docx_read`: reads the text of a Word document as Markdown (docs/design/tools.md "Files"). */
export const docxRead = defineTool({
  name: "docx_read",
  description: "Reads a Word document (.docx) as Markdown: headings, lists, tables, links, footnotes and comments",
  access: "read",
  verbatim: true,
  enabled: "always",
  needs: ["files", "workers"],
  timeoutMs: () => DOCUMENT_TIMEOUT_MS,
  input: v.strictObject({
    path: v.pipe(v.string(), v.minLength(1), v.description("Relative to the allowed root")),
  }),
  textField: "path",
  effects: ({ path }) => ({ root: "read_file", paths: [path] }),
  async run({ path }, context) {
    const { content, size } = await readDocument(path, { kind: "docx" }, context);
    const { text, title, author, paragraphs, tables, notes, hiddenText, truncated } = content;
    const notices = [
      ...(text === "" ? ["[The document has no text]"] : []),
      ...(hiddenText ? ["[Text that the document hides was left out]"] : []),
      ...(truncated ? [`[Cut after ${Buffer.byteLength(text)} bytes: the document is longer]`] : []),
    ];
    return {
      output: [...(text === "" ? [] : [text]), ...notices].join("\n\n"),
      isError: false,
      data: { path, size, title: title ?? null, author: author ?? null, paragraphs, tables, notes, truncated },
    };
  },
});
