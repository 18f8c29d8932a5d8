import type { FileScope } from "../../system/files/files.ts";
import type { ToolContext } from "../runtime/tool.ts";

/** What the reading tools may reach, under the newest configuration. */
export function readScope(
  context: Pick<ToolContext, "workspaceRoot" | "allowSensitiveFileReads" | "config">,
): FileScope {
  return {
    workspaceRoot: context.workspaceRoot,
    allowedRoot: context.config.security.read_file.allowed_root,
    forbiddenPaths: context.config.autonomy.forbidden_paths,
    allowSensitive: context.allowSensitiveFileReads,
  };
}
