import { join, resolve, sep } from "node:path";
import { foldName } from "./sensitive_names.ts";

/** Refused at every level (DESIGN.md section 7, "Autonomy"), beside the user's and Postern's own. */
export const FORBIDDEN_PATHS = ["/etc", "/root", "/proc", "/sys", "~/.ssh", "~/.gnupg", "~/.aws"] as const;

/**
 * The forbidden path that refuses `path`, undefined when none does.
 *
 * The longest match decides between workspace and forbidden path: a checkout under `/root` is usable, `/root` itself is not.
 * Names are compared without case.
 * @param path absolute, without `..`
 * @param options.forbidden absolute paths
 */
export function forbiddenBy(
  path: string,
  options: { readonly workspaceRoot: string; readonly forbidden: readonly string[] },
): string | undefined {
  const folded = foldPath(path);
  const workspace = foldPath(options.workspaceRoot);
  let longest = isWithin(folded, workspace) ? workspace.length : -1;
  let found: string | undefined;
  for (const forbidden of options.forbidden) {
    const candidate = foldPath(forbidden);
    // Of equal length the refusal wins
    if (!isWithin(folded, candidate) || candidate.length < longest) continue;
    longest = candidate.length;
    found = forbidden;
  }
  return found;
}

/** A forbidden path as it is configured, made absolute: `~/` is the home folder. */
export function expandForbidden(
  path: string,
  options: { readonly home: string; readonly workspaceRoot: string },
): string {
  if (path === "~") return options.home;
  if (path.startsWith("~/")) return join(options.home, path.slice(2));
  return resolve(options.workspaceRoot, path);
}

/** Whether `path` is `folder` or lies below it; both absolute. */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

function foldPath(path: string): string {
  return path.split(sep).map(foldName).join(sep);
}
