import { hash } from "node:crypto";
import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import { type ContextWith, defineTool } from "../runtime/define_tool.ts";
import { pathLine } from "./search_pattern.ts";
import { likeFile, maxEditedBytes, toWritable, writeScope } from "./file_scope.ts";

type WritingContext = Pick<ContextWith<"files">, "services" | "config" | "workspaceRoot" | "allowSensitiveFileWrites">;

/** `write_file`: makes a file, or replaces one in one step (docs/design/tools.md "Files"). */
export const writeFile = defineTool({
  name: "write_file",
  description: "Writes a text file and its missing folders. Replaces an existing file only with overwrite",
  access: "write",
  repeatable: ({ dry_run: dryRun }) => dryRun === true,
  enabled: (config) => config.security.write_file.enabled,
  enabledBy: "[security.write_file] enabled = true",
  alwaysOffered: true,
  needs: ["files"],
  input: v.strictObject({
    path: v.pipe(v.string(), v.minLength(1), v.description("Relative to the allowed root")),
    content: v.pipe(v.string(), v.description("The whole text")),
    overwrite: v.optional(
      v.pipe(v.boolean(), v.description("Replaces an existing file. Default false")),
    ),
    dry_run: v.optional(v.pipe(v.boolean(), v.description("Checks and writes nothing. Default false"))),
  }),
  effects: ({ path }) => ({ root: "write_file", paths: [path] }),
  async bind({ path, content }, context) {
    const { bytes, kept } = await toWrite({ path, content }, context);
    const name = `${path} as it will be written, ${bytes.length} bytes`;
    return {
      shown: kept.length > 0 ? [{ kind: "file", name, sha256: hash("sha256", bytes) }] : [],
      throughFiles: true,
    };
  },
  async run({ path, content, overwrite = false, dry_run: dryRun = false }, context) {
    const { files } = context.services;
    const { bytes, file, kept } = await toWrite({ path, content }, context);
    if (file !== undefined && !overwrite) {
      throw new ToolError(
        "file_exists",
        `Cannot write ${
          shown(path)
        }: it exists; "overwrite": true replaces it, file_edit and apply_patch change parts of it`,
      );
    }
    if (!dryRun) {
      const change = { kind: "write", path, content: bytes, expected: file?.version } as const;
      await files.change([change], writeScope(context), { signal: context.signal });
    }
    return {
      output: [
        `dry_run=${dryRun} path=${pathLine(path)} bytes=${bytes.length} overwrite=${overwrite}`,
        ...(kept.length > 0 ? [`[Kept of the file: ${kept.join(" and ")}]`] : []),
      ].join("\n"),
      isError: false,
      data: { dry_run: dryRun, path, bytes: bytes.length, overwrite, created: file === undefined },
    };
  },
});

/** Returns what a call writes, in the form of the file that is there, and that file. `kept`: what the given text lacks of the file's form. */
async function toWrite(
  { path, content }: { readonly path: string; readonly content: string },
  context: WritingContext,
) {
  const inspect = async (maxBytes: number | undefined) =>
    (await context.services.files.inspect(path, writeScope(context), { maxBytes })).file;
  const there = await inspect(undefined);
  // A file that is too long to be edited may be replaced all the same
  const isRead = there !== undefined && there.size <= maxEditedBytes(context);
  const file = isRead ? await inspect(maxEditedBytes(context)) : there;
  const { text, kept } = likeFile(content, file);
  return { bytes: toWritable(path, text, context), file, kept };
}
