import { existsSync } from "node:fs";
import { basename, resolve } from "node:path";
import type { CommandLineParts } from "../../base/parse_command_line.ts";
import { placeParts } from "./placed_parts.ts";
import { candidatesOf } from "./screen_arguments.ts";

/** Programs that search the folder they run in when no argument names another. */
const SEARCHERS: ReadonlySet<string> = new Set(["rg", "rga", "ag", "ack", "pt", "sift", "ug", "ugrep", "rgrep"]);
const GREPS: ReadonlySet<string> = new Set(["grep", "egrep", "fgrep"]);
/** Recursion of GNU grep, also as letters among others, such as `-5r`, and as the beginning of a long option. `-d` says what to do with folders. */
const RECURSES = /^(?:-[a-zA-Z0-9]*[rRd]|--(?:rec|der|dir))/;
/** Options of GNU grep whose value says what to do with folders, where it is an argument of its own. */
const FOLDER_ACTION = /^(?:-[a-zA-Z0-9]*d|--dir[a-z]*)$/;
/** Words of git that show the content of files, and options that make others show it. */
const GIT_SHOWS =
  /^(?:grep|diff.*|show|stash|whatchanged|format-patch|archive|range-diff|cat-file|-[pucWv]+|-U\d*|--(?:patch|unified|cc|word-diff|color-words|function-context|verbose).*)$/;
/** Programs that show names of the folder they run in when no argument names another. */
const LISTERS: ReadonlySet<string> = new Set(
  ["ls", "dir", "vdir", "tree", "find", "fd", "fdfind", "du", "exa", "eza", "lsd", "git", ...SEARCHERS],
);

/**
 * Returns the paths that a command may read, by the rules that its arguments are screened by; all of the workspace for a search where
 * no argument names anything that is there. What a program opens unasked is not known.
 * @param words the program and its arguments
 * @returns absolute paths, perhaps of nothing
 */
export function readsOfCommand(words: readonly string[], workspaceRoot: string): readonly string[] {
  const named = words.slice(1).flatMap((arg) => [...candidatesOf(arg)]).map((path) => resolve(workspaceRoot, path));
  const search = programOf(words, searches);
  if (search === undefined) return named;
  const [program = "", ...args] = search;
  // The one word of `grep -r word` is no folder, though a folder may be called so
  const isPatternAlone = program !== "git" && program !== "find" &&
    args.filter((arg, at) => !arg.startsWith("-") && !FOLDER_ACTION.test(args[at - 1] ?? "")).length < 2;
  return isPatternAlone || !named.some((path) => existsSync(path)) ? [workspaceRoot] : named;
}

/**
 * Returns the paths that each part of a line may read, or whose names it may show: all of the workspace for a part with words that show
 * only when it runs, and for a line that nobody can judge.
 * @param pathsOf `readsOfCommand` or `listsOfCommand`
 */
export function pathsOfLine(
  line: CommandLineParts,
  workspaceRoot: string,
  pathsOf: (words: readonly string[], folder: string) => readonly string[],
): readonly string[] {
  const parts = placeParts(line, workspaceRoot);
  if (line.asks !== undefined || parts.some(({ isKnown, folders }) => !isKnown || folders === undefined)) {
    return [workspaceRoot];
  }
  return parts.flatMap(({ program = "", args, folders = [] }) =>
    folders.flatMap((folder) => pathsOf([program, ...args], folder))
  );
}

/**
 * Returns the paths whose names, and those of what lies below, a command may show. All of the workspace where not every argument names
 * something that is there.
 * @param words the program and its arguments
 * @returns absolute paths; empty for a command that lists nothing
 */
export function listsOfCommand(words: readonly string[], workspaceRoot: string): readonly string[] {
  const [program, ...args] = programOf(words, (name) => LISTERS.has(name)) ?? [];
  if (program === undefined) return [];
  const named = args.filter((arg) => !arg.startsWith("-")).map((arg) => resolve(workspaceRoot, arg));
  return named.length === 0 || !named.every((path) => existsSync(path)) ? [workspaceRoot] : named;
}

/** Returns the program that is looked for, with its arguments: the command's own, or one that it starts, as in `env grep -r word`. */
function programOf(
  words: readonly string[],
  isMeant: (program: string, args: readonly string[]) => boolean,
): readonly string[] | undefined {
  const pieces = words.flatMap((word) => word.split(/[\s;|&()`]+/));
  const at = pieces.findIndex((piece, index) => isMeant(basename(piece), pieces.slice(index + 1)));
  return at === -1 ? undefined : [basename(pieces[at] ?? ""), ...pieces.slice(at + 1)];
}

function searches(program: string, args: readonly string[]): boolean {
  if (GREPS.has(program)) return args.some((arg) => RECURSES.test(arg));
  if (program === "find") return args.some((arg) => arg.startsWith("-exec"));
  return SEARCHERS.has(program) || (program === "git" && args.some((arg) => GIT_SHOWS.test(arg)));
}
