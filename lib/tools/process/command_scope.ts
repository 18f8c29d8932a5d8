import type { ArgumentScope } from "../../system/process/screen_arguments.ts";
import type { BoundParts, ToolContext, ToolServices } from "../runtime/tool.ts";

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

/** Returns what an approval of a command is bound to: each file of the workspace that its arguments name, even if none is there. */
export async function boundFiles(
  words: readonly string[],
  context: Pick<ToolContext, "workspaceRoot" | "signal"> & { readonly services: Pick<ToolServices, "processes"> },
): Promise<BoundParts> {
  const { workspaceRoot, signal, services } = context;
  const named = await services.processes.named({ words, scope: { workspaceRoot }, signal });
  const files = named.filter(({ kind }) => kind === "file");
  return { shown: files.map(({ path, sha256 }) => ({ kind: "file", name: path, sha256 })), more: named };
}
