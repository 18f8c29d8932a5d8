import { resolve } from "node:path";
import { parseCommandLine } from "../../base/parse_command_line.ts";
import { folderAfter, folderIn } from "../../system/process/placed_parts.ts";
import type { ToolContext, ToolServices } from "../runtime/tool.ts";

type FolderContext = Pick<ToolContext, "conversationId" | "config"> & {
  readonly services: Pick<ToolServices, "commandFolders">;
};

/**
 * Returns a line with the `cd` to the folder that its conversation is in, as the person who is asked reads it: the call is decided,
 * approved and recorded with it. Where the folder is gone, the line ends there.
 */
export async function withFolder(
  command: string,
  { conversationId, config, services: { commandFolders } }: FolderContext,
): Promise<string> {
  if (config.security.shell.syntax === "plain" || conversationId === null) return command;
  const folder = await commandFolders.get(conversationId);
  return folder === "" ? command : `${cdTo(folder)}\n${command}`;
}

/** Returns the line that goes to a folder of the workspace, or ends. */
function cdTo(folder: string): string {
  return `cd './${folder.replaceAll("'", "'\\''")}' || exit`;
}

/**
 * Keeps the folder that a line leaves its conversation in: the one that it begins with a `cd` to, where that is in the workspace.
 * @returns relative to the workspace, with `/`; empty for the workspace itself, and outside a conversation
 */
export async function keepFolder(
  command: string,
  { workspaceRoot, ...context }: FolderContext & Pick<ToolContext, "workspaceRoot">,
): Promise<string> {
  const { conversationId, config, services: { commandFolders } } = context;
  if (config.security.shell.syntax === "plain" || conversationId === null) return "";
  return await commandFolders.change(conversationId, async (before) => {
    const begin = resolve(workspaceRoot, before);
    const prefix = before === "" ? "" : `${cdTo(before)}\n`;
    // A line that ends while another one has moved the conversation began elsewhere: its `cd` counts no more
    const after = command.startsWith(prefix) ? folderAfter(command.slice(prefix.length), begin) : begin;
    const found = await folderIn(workspaceRoot, [after, begin]);
    // A line could not go to a folder whose name nobody can judge
    return parseCommandLine(cdTo(found)).asks === undefined ? found : before;
  });
}
