import { foldName } from "./sensitive_names.ts";

/**
 * What steers Postern or runs programs: its configuration, plugins, agents and the repository's own folder, with the short name
 * that Windows gives it. In folded form
 */
const PROTECTED: ReadonlySet<string> = new Set(["postern.toml", ".plugins", "plugins", ".agents", ".git", "git~1"]);

/** Whether a path goes through a name that no file tool may write, at any depth and in any case (DESIGN.md section 8, "Files"). */
export function isProtected(names: readonly string[]): boolean {
  return names.some((name) => PROTECTED.has(foldName(name)));
}
