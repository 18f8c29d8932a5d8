import { foldName } from "./sensitive_files.ts";

/**
 * Names of what steers Postern or runs programs: its configuration, plugins, agents, procedures (`.postern/sops`) and the
 * repository's own folder, with the short name that Windows gives it. In folded form
 */
const PROTECTED: ReadonlySet<string> = new Set([
  "postern.toml",
  ".postern",
  ".plugins",
  "plugins",
  ".agents",
  ".git",
  "git~1",
]);

/** Common names of folders and files, which count for commands at the top of the workspace alone, where Postern looks for them. */
const AT_TOP: ReadonlySet<string> = new Set(["postern.toml", "plugins"]);

/**
 * Tells whether a path goes through a name that no file tool may write, at any depth and in any case.
 * Source: docs/design/paths_and_commands.md "Protected names"
 */
export function isProtected(names: readonly string[]): boolean {
  return names.some((name) => PROTECTED.has(foldName(name)));
}

/**
 * Tells whether a file or folder of this name is read-only for commands, and may not appear while a command runs.
 * @param isAtTop it lies in the workspace itself, not in a folder of it
 */
export function isProtectedFromCommands(name: string, isAtTop: boolean): boolean {
  const folded = foldName(name);
  return PROTECTED.has(folded) && (isAtTop || !AT_TOP.has(folded));
}
