import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { pathLine } from "./search_pattern.ts";
import { toWritable, writeScope } from "./file_scope.ts";

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
  async run({ path, content, overwrite = false, dry_run: dryRun = false }, context) {
    const { files } = context.services;
    const bytes = toWritable(path, content, context);
    const { file } = await files.inspect(path, writeScope(context), { maxBytes: undefined });
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
      output: `dry_run=${dryRun} path=${pathLine(path)} bytes=${bytes.length} overwrite=${overwrite}`,
      isError: false,
      data: { dry_run: dryRun, path, bytes: bytes.length, overwrite, created: file === undefined },
    };
  },
});
