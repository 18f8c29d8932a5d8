import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { editableText, maxEditedBytes, toWritable, writeScope } from "./file_scope.ts";
import { pathLine } from "./search_pattern.ts";

const MAX_EDITS = 200;

/** `file_edit`: replaces texts that occur exactly once in a file (docs/design/tools.md "Files"). */
export const fileEdit = defineTool({
  name: "file_edit",
  description:
    "Replaces parts of a text file: each old_text must occur exactly once; all edits are made or none. Keeps line endings",
  access: "write",
  repeatable: ({ dry_run: dryRun }) => dryRun === true,
  enabled: (config) => config.security.write_file.enabled,
  enabledBy: "[security.write_file] enabled = true",
  alwaysOffered: true,
  needs: ["files"],
  input: v.strictObject({
    path: v.pipe(v.string(), v.minLength(1), v.description("Relative to the allowed root")),
    edits: v.pipe(
      v.array(
        v.strictObject({
          old_text: v.pipe(
            v.string(),
            v.minLength(1),
            v.description("Copied exactly, long enough to occur once"),
          ),
          new_text: v.pipe(v.string(), v.description("Empty to remove it")),
        }),
      ),
      v.minLength(1),
      v.maxLength(MAX_EDITS),
      v.description("Made one after the other"),
    ),
    dry_run: v.optional(v.pipe(v.boolean(), v.description("Checks and writes nothing. Default false"))),
  }),
  effects: ({ path }) => ({ root: "write_file", paths: [path] }),
  async run({ path, edits, dry_run: dryRun = false }, context) {
    const { files } = context.services;
    const found = await files.inspect(path, writeScope(context), { maxBytes: maxEditedBytes(context) });
    const { editText } = await import("./edit_text.ts");
    const content = toWritable(path, editText(editableText(path, found), edits, path), context);
    if (!dryRun) {
      const change = { kind: "write", path, content, expected: found.file?.version } as const;
      await files.change([change], writeScope(context), { signal: context.signal });
    }
    return {
      output: `dry_run=${dryRun} path=${pathLine(path)} bytes=${content.length} edits=${edits.length}`,
      isError: false,
      data: { dry_run: dryRun, path, bytes: content.length, edits: edits.length },
    };
  },
});
