import { realpath } from "node:fs/promises";
import { basename, join, resolve, sep } from "node:path";
import { BUILT_IN_FORBIDDEN_PATHS } from "../../base/built_in_forbidden_paths.ts";
import { foldName } from "./sensitive_files.ts";

/** The forbidden path that refuses an absolute path without `..`; undefined when none does. */
export type ForbiddenBy = (path: string) => string | undefined;

/**
 * Creates the check of absolute paths. The longest match decides between workspace and forbidden path: a checkout under `/root` is usable,
 * `/root` itself is not. Names are compared without case.
 * @param options.forbidden absolute paths
 */
export function createForbiddenBy(
  options: { readonly workspaceRoot: string; readonly forbidden: readonly string[] },
): ForbiddenBy {
  const workspace = folderBy(options.workspaceRoot);
  const known = options.forbidden.map(folderBy);
  // Paths come folder by folder
  let last = { folder: "", folded: "" };
  return (path) => {
    const end = path.lastIndexOf(sep);
    const folder = path.slice(0, end);
    if (folder !== last.folder) last = { folder, folded: foldPath(folder) };
    const folded = `${last.folded}${sep}${foldName(path.slice(end + 1))}`;
    let longest = holds(workspace, folded) ? workspace.folded.length : -1;
    let found: string | undefined;
    for (const candidate of known) {
      // Of equal length the refusal wins
      if (candidate.folded.length < longest || !holds(candidate, folded)) continue;
      longest = candidate.folded.length;
      found = candidate.path;
    }
    return found;
  };
}

/** Path of a folder, in the forms that each file of a walk is compared with. */
interface FoldedFolder {
  readonly path: string;
  readonly folded: string;
  /** `folded` with a separator at its end */
  readonly prefix: string;
}

function folderBy(path: string): FoldedFolder {
  const folded = foldPath(path);
  return { path, folded, prefix: folded.endsWith(sep) ? folded : folded + sep };
}

function holds(folder: FoldedFolder, folded: string): boolean {
  return folded === folder.folded || folded.startsWith(folder.prefix);
}

/** Makes a forbidden path absolute: `~/` is the home folder. */
export function expandForbidden(
  path: string,
  options: { readonly home: string; readonly workspaceRoot: string },
): string {
  if (path === "~") return options.home;
  if (path.startsWith("~/")) return join(options.home, path.slice(2));
  return resolve(options.workspaceRoot, path);
}

/** Returns every forbidden path by its configured name, absolute: the built-in ones, the user's and Postern's own. */
export function forbiddenNames(
  scope: { readonly workspaceRoot: string; readonly forbiddenPaths: readonly string[] },
  options: { readonly home: string; readonly ownPaths: readonly string[] },
): readonly string[] {
  const places = { home: options.home, workspaceRoot: scope.workspaceRoot };
  const forbidden = [...BUILT_IN_FORBIDDEN_PATHS, ...scope.forbiddenPaths];
  return [...forbidden.map((path) => expandForbidden(path, places)), ...options.ownPaths];
}

/** Decides by the names forbidden paths are configured with, and by where these lead; one that is not there counts by its name. */
export async function loadForbiddenBy(
  scope: Parameters<typeof forbiddenNames>[0],
  options: Parameters<typeof forbiddenNames>[1],
): Promise<ForbiddenBy> {
  const named = forbiddenNames(scope, options);
  const [workspaceRoot = scope.workspaceRoot, ...real] = await Promise.all(
    [scope.workspaceRoot, ...named].map((path) => realpath(path).catch(() => path)),
  );
  return createForbiddenBy({ workspaceRoot, forbidden: [...new Set([...named, ...real])] });
}

/** Tells whether `path` is `folder` or lies below it; both absolute. */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

function foldPath(path: string): string {
  return path.split(sep).map(foldName).join(sep);
}

/**
 * Names of what steers Postern or runs programs: its configuration, plugins, agents, skills, procedures (`.postern/sops`) and the
 * repository's own folder, with the short name that Windows gives it. In folded form
 */
const PROTECTED: ReadonlySet<string> = new Set([
  "postern.toml",
  ".postern",
  ".plugins",
  "plugins",
  ".agents",
  ".claude",
  ".git",
  "git~1",
]);

/**
 * Files of a folder that instruct the agents which work there, those of other agents too, the first to count first. File tools do not write
 * a file of such a name, so that no run steers the next one; commands may, since a person trusts one content of them.
 */
export const INSTRUCTION_FILES: readonly string[] = [
  "AGENTS.md",
  "CLAUDE.md",
  "GEMINI.md",
  ".github/copilot-instructions.md",
  ".cursorrules",
];

const INSTRUCTIONS: ReadonlySet<string> = new Set(INSTRUCTION_FILES.map((file) => foldName(basename(file))));

/** Tells whether a name is that of a file that instructs agents, in any case. */
export function isInstructionFile(name: string): boolean {
  return INSTRUCTIONS.has(foldName(name));
}

/** Common names of folders and files, which count for commands at the top of the workspace alone, where Postern looks for them. */
const AT_TOP: ReadonlySet<string> = new Set(["postern.toml", "plugins"]);

/**
 * Tells whether a path goes through a name that no file tool may write, at any depth and in any case.
 * Source: docs/design/paths_and_commands.md "Protected names"
 */
export function isProtected(names: readonly string[]): boolean {
  return names.some((name) => PROTECTED.has(foldName(name)) || isInstructionFile(name));
}

/**
 * Tells whether a file or folder of this name is read-only for commands, and may not appear while a command runs.
 * @param isAtTop it lies in the workspace itself, not in a folder of it
 */
export function isProtectedFromCommands(name: string, isAtTop: boolean): boolean {
  const folded = foldName(name);
  return PROTECTED.has(folded) && (isAtTop || !AT_TOP.has(folded));
}
