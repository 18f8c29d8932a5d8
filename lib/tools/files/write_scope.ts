import type { FileScope } from "../../system/files/files.ts";
import type { ToolContext } from "../runtime/tool.ts";

/** What the writing tools may reach, under the newest configuration. */
export function writeScope(
  context: Pick<ToolContext, "workspaceRoot" | "allowSensitiveFileWrites" | "config">,
): FileScope {
  return {
    workspaceRoot: context.workspaceRoot,
    allowedRoot: context.config.security.write_file.allowed_root,
    forbiddenPaths: context.config.autonomy.forbidden_paths,
    allowSensitive: context.allowSensitiveFileWrites,
  };
}
