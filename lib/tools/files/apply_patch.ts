import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { notThere } from "../../system/files/file_error.ts";
import type { FileChange, Inspected } from "../../system/files/files.ts";
import { shown } from "../../system/files/parse_path.ts";
import { type ContextWith, defineTool } from "../runtime/define_tool.ts";
import { editableText, likeFile, maxEditedBytes, toWritable, writeScope } from "./file_scope.ts";
import { parsePatch, type PatchSection, pathsOf } from "./parse_patch.ts";
import { pathLine } from "./search_pattern.ts";

/** `apply_patch`: adds, deletes, changes and moves files, all or none (docs/design/tools.md "Files"). */
export const applyPatch = defineTool({
  name: "apply_patch",
  description:
    'Changes several files at once, all or none. The patch starts with "*** Begin Patch", ends with "*** End Patch", and has sections "*** Add File: p" with + lines, "*** Delete File: p", "*** Update File: p" with optional "*** Move to: q" and hunks from the top down: @@, then lines that start with a space, - or +. A hunk must fit one place alone: give lines of context, and where lines repeat, "@@ class A" with a heading above the place or "@@ -12,3 +12,4 @@" with line numbers; "*** End of File" ties a hunk to the end',
  access: "write",
  repeatable: ({ dry_run: dryRun }) => dryRun === true,
  enabled: (config) => config.security.write_file.enabled,
  enabledBy: "[security.write_file] enabled = true",
  alwaysOffered: true,
  needs: ["files"],
  input: v.strictObject({
    patch: v.pipe(v.string(), v.minLength(1), v.description("From *** Begin Patch to *** End Patch")),
    dry_run: v.optional(v.pipe(v.boolean(), v.description("Checks and writes nothing. Default false"))),
  }),
  textField: "patch",
  check: ({ patch }) => void parsePatch(patch),
  effects: ({ patch }) => ({ root: "write_file", paths: pathsOf(parsePatch(patch)) }),
  async run({ patch, dry_run: dryRun = false }, context) {
    const planned = await plan(parsePatch(patch), context);
    if (!dryRun) {
      const changes = planned.flatMap(({ changes }) => changes);
      await context.services.files.change(changes, writeScope(context), { signal: context.signal });
    }
    return {
      output: [`dry_run=${dryRun} files=${planned.length}`, ...planned.map(({ line }) => line)].join("\n"),
      isError: false,
      data: { dry_run: dryRun, files: planned.map(({ done }) => done) },
    };
  },
});

/** Section of a patch that was checked against the files on disk. */
interface Planned {
  readonly changes: readonly FileChange[];
  /** Line of the output, such as `M src/a.ts` */
  readonly line: string;
  /** The same as data for programs */
  readonly done: {
    readonly kind: Exclude<PatchSection["kind"], "rewrite"> | "move";
    readonly path: string;
    readonly from?: string;
  };
}

/** Looks at the files of one patch. A file that the patch names twice is refused. */
interface PatchInspector {
  /** @throws {ToolError} `patch_malformed` for a file that the patch names again */
  inspect(path: string, maxBytes?: number): Promise<Inspected>;
  /** Checks that there is no file yet. @throws {ToolError} `file_exists` */
  inspectNew(path: string): Promise<void>;
}

function createInspector(context: ContextWith<"files">): PatchInspector {
  const seen = new Set<string>();
  const inspect = async (path: string, maxBytes?: number): Promise<Inspected> => {
    const found = await context.services.files.inspect(path, writeScope(context), { maxBytes });
    if (seen.has(found.path)) {
      throw new ToolError(
        "patch_malformed",
        `Cannot apply the patch: it names the file ${shown(path)} twice; put all its hunks in one section`,
      );
    }
    seen.add(found.path);
    return found;
  };
  return {
    inspect,
    async inspectNew(path) {
      const { file } = await inspect(path);
      if (file === undefined) return;
      throw new ToolError("file_exists", `Cannot add ${shown(path)}: it exists; "*** Update File:" changes it`);
    },
  };
}

async function plan(sections: readonly PatchSection[], context: ContextWith<"files">): Promise<readonly Planned[]> {
  const inspector = createInspector(context);
  const planned: Planned[] = [];
  for (const section of sections) planned.push(await planSection(section, { inspector, context }));
  return planned;
}

interface PlanContext {
  readonly inspector: PatchInspector;
  readonly context: ContextWith<"files">;
}

async function planSection(section: PatchSection, { inspector, context }: PlanContext): Promise<Planned> {
  const { path } = section;
  switch (section.kind) {
    case "add": {
      await inspector.inspectNew(path);
      const content = toWritable(path, section.content, context);
      const change = { kind: "write", path, content, expected: undefined } as const;
      return { changes: [change], line: `A ${pathLine(path)}`, done: { kind: "add", path } };
    }
    case "delete": {
      const { file, like } = await inspector.inspect(path);
      if (file === undefined) throw notThere("delete", path, like);
      const change = { kind: "remove", path, expected: file.version } as const;
      return { changes: [change], line: `D ${pathLine(path)}`, done: { kind: "delete", path } };
    }
    case "rewrite": {
      const { file, like } = await inspector.inspect(path, maxEditedBytes(context));
      if (file === undefined) throw notThere("delete", path, like);
      const content = toWritable(path, likeFile(section.content, file).text, context);
      const change = { kind: "write", path, content, expected: file.version } as const;
      return { changes: [change], line: `M ${pathLine(path)}`, done: { kind: "update", path } };
    }
    case "update":
      return await planUpdate(section, { inspector, context });
  }
}

async function planUpdate(
  { path, moveTo, hunks }: Extract<PatchSection, { kind: "update" }>,
  { inspector, context }: PlanContext,
): Promise<Planned> {
  const found = await inspector.inspect(path, maxEditedBytes(context));
  const { file } = found;
  const { applyHunks } = await import("./apply_hunks.ts");
  const content = toWritable(moveTo ?? path, applyHunks(editableText(path, found), hunks, path), context);
  // editableText refuses a file that is not there
  const { version: expected = "", mode = 0 } = file ?? {};
  if (moveTo === undefined) {
    const change = { kind: "write", path, content, expected } as const;
    return { changes: [change], line: `M ${pathLine(path)}`, done: { kind: "update", path } };
  }
  await inspector.inspectNew(moveTo);
  return {
    changes: [
      { kind: "write", path: moveTo, content, expected: undefined, mode },
      { kind: "remove", path, expected },
    ],
    line: `R ${pathLine(path)} -> ${pathLine(moveTo)}`,
    done: { kind: "move", path: moveTo, from: path },
  };
}
