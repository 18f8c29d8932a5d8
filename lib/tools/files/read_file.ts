import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { decodeText, readPart } from "./read_text.ts";
import { readScope } from "./file_scope.ts";

const line = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(1_000_000_000));

/** `read_file`: returns the text of a file unchanged, without a header or line numbers (docs/design/tools.md "Files"). */
export const readFile = defineTool({
  name: "read_file",
  description:
    "Reads a text file of the workspace and returns its text unchanged. Large files are cut with a notice that says how to go on",
  access: "read",
  enabled: "always",
  needs: ["files"],
  input: v.strictObject({
    path: v.pipe(v.string(), v.minLength(1), v.description("Path of the file, relative to the allowed root")),
    start_line: v.optional(v.pipe(line, v.description("First line to return, counted from 1. Default 1"))),
    line_count: v.optional(v.pipe(line, v.description("How many lines to return. Default: to the end of the file"))),
  }),
  textField: "path",
  effects: ({ path }) => ({ root: "read_file", paths: [path] }),
  async run({ path, start_line: startLine = 1, line_count: lineCount }, context) {
    const { max_read_bytes: maxBytes, allow_binary: allowBinary } = context.config.security.read_file;
    const file = await context.services.files.open(path, readScope(context));
    try {
      const part = await readPart(file, { startLine, lineCount, maxBytes, signal: context.signal });
      if ("lines" in part) {
        throw new ToolError(
          "line_out_of_range",
          `Cannot read "${path}" from line ${startLine}: it has ${part.lines} lines`,
        );
      }
      const text = decodeText(part.bytes);
      if (text === undefined && !allowBinary) {
        throw new ToolError(
          "binary_file",
          `Cannot read "${path}": it is not UTF-8 text; [security.read_file] allow_binary = true returns such files as base64`,
        );
      }
      const next = text === undefined ? undefined : part.nextLine;
      const data = {
        path,
        size: file.size,
        encoding: text === undefined ? "base64" : "utf-8",
        truncated: part.cut,
        ...(next === undefined ? {} : { next_line: next }),
      };
      const body = text ?? Buffer.from(part.bytes).toString("base64");
      if (!part.cut) return { output: body, isError: false, data };
      const onward = next === undefined
        ? "a larger [security.read_file] max_read_bytes shows more"
        : `go on with "start_line": ${next}, where it was cut`;
      return {
        output: `${body}\n[Cut after ${part.bytes.length} of ${file.size} bytes: ${onward}]`,
        isError: false,
        data,
      };
    } finally {
      await file.close();
    }
  },
});
