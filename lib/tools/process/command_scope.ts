import type { ArgumentScope } from "../../system/process/screen_arguments.ts";
import type { ToolContext } from "../runtime/tool.ts";

/** What the arguments of a command may name, under the newest configuration: a command may read and write what it names. */
export function commandScope(
  context: Pick<
    ToolContext,
    "workspaceRoot" | "allowSensitiveFileReads" | "allowSensitiveFileWrites" | "config"
  >,
): ArgumentScope {
  const { autonomy } = context.config;
  return {
    workspaceRoot: context.workspaceRoot,
    workspaceOnly: autonomy.workspace_only,
    forbiddenPaths: autonomy.forbidden_paths,
    allowSensitive: context.allowSensitiveFileReads && context.allowSensitiveFileWrites,
  };
}
