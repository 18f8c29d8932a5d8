import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { asUtf8, decodeText, type FilePart, type NoPart, readPart, type TextPlace } from "./read_text.ts";
import { readScope } from "./file_scope.ts";

const line = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(1_000_000_000));
const byte = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(Number.MAX_SAFE_INTEGER));

/** `read_file`: returns the text of a file unchanged, without a header or line numbers (docs/design/tools.md "Files"). */
export const readFile = defineTool({
  name: "read_file",
  description: "Returns the text of a file unchanged. A long text is cut, with a notice how to go on",
  access: "read",
  verbatim: true,
  enabled: "always",
  alwaysOffered: true,
  needs: ["files"],
  input: v.strictObject({
    path: v.pipe(v.string(), v.minLength(1), v.description("Relative to the allowed root")),
    start_line: v.optional(v.pipe(line, v.description("First line, from 1"))),
    start_byte: v.optional(
      v.pipe(
        byte,
        v.description("First byte of start_line, from 1: goes on inside a long line"),
      ),
    ),
    line_count: v.optional(v.pipe(line, v.description("Lines to return. Default: all"))),
  }),
  textField: "path",
  effects: ({ path }) => ({ root: "read_file", paths: [path] }),
  async run({ path, start_line: startLine = 1, start_byte: startByte = 1, line_count: lineCount }, context) {
    const { max_read_bytes: maxBytes, allow_binary: allowBinary } = context.config.security.read_file;
    const opened = await context.services.files.open(path, readScope(context));
    try {
      const { file, encoding } = await asUtf8(opened, path);
      const part = await readPart(file, { startLine, startByte, lineCount, maxBytes, signal: context.signal });
      if (part.kind !== "part") throw outOfRange(part, { path, startLine, startByte });
      const text = decodeText(part.bytes);
      if (text === undefined && !allowBinary) {
        throw new ToolError(
          "binary_file",
          `Cannot read "${path}": it is no text in UTF-8, or in UTF-16 with a byte order mark; [security.read_file] allow_binary = true returns such files as base64`,
        );
      }
      const next = text === undefined ? undefined : part.next;
      const data = {
        path,
        size: opened.size,
        encoding: text === undefined ? "base64" : encoding,
        truncated: part.cut,
        ...(startByte === 1 ? {} : { start_byte: part.startByte }),
        ...(next === undefined ? {} : { next_line: next.line }),
        ...(next === undefined || next.byte === 1 ? {} : { next_byte: next.byte }),
      };
      const body = text ?? Buffer.from(part.bytes).toString("base64");
      const notices = [
        ...(part.startByte === startByte
          ? []
          : [`[Starts at byte ${part.startByte}: byte ${startByte} is inside a character]`]),
        ...(part.cut ? [cutNotice(part, { size: file.size, next })] : []),
      ];
      return { output: [body, ...notices].join("\n"), isError: false, data };
    } finally {
      await opened.close();
    }
  },
});

function outOfRange(
  found: NoPart,
  { path, startLine, startByte }: { readonly path: string; readonly startLine: number; readonly startByte: number },
): ToolError {
  return found.kind === "no_line"
    ? new ToolError(
      "line_out_of_range",
      `Cannot read "${path}" from line ${startLine}: it has ${found.lines} lines`,
    )
    : new ToolError(
      "byte_out_of_range",
      `Cannot read "${path}" from byte ${startByte} of line ${startLine}: the line has ${found.bytes} bytes`,
    );
}

/** Returns the line that says how to read on after a cut. @param next undefined: nothing but a larger limit shows more */
function cutNotice(
  { bytes }: FilePart,
  { size, next }: { readonly size: number; readonly next: TextPlace | undefined },
): string {
  const place = next === undefined
    ? "a larger [security.read_file] max_read_bytes shows more"
    : `go on with "start_line": ${next.line}${next.byte === 1 ? "" : `, "start_byte": ${next.byte}`}, where it was cut`;
  return `[Cut after ${bytes.length} of ${size} bytes: ${place}]`;
}
