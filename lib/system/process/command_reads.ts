import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { candidatesOf } from "./screen_arguments.ts";

/** Programs that search the folder they run in when no argument names another. */
const SEARCHERS: ReadonlySet<string> = new Set(["rg", "ag", "ack"]);
const GREPS: ReadonlySet<string> = new Set(["grep", "egrep", "fgrep"]);
/** Words of git that show the content of files. */
const GIT_SHOWS: ReadonlySet<string> = new Set(["grep", "diff", "show", "stash", "-p", "-u", "--patch"]);

/**
 * Returns the paths that a command may read, by the rules that its arguments are screened by; all of the workspace for a search where
 * no argument names anything that is there. What a program opens unasked is not known.
 * @param words the program and its arguments
 * @returns absolute paths, perhaps of nothing
 */
export function readsOfCommand([program = "", ...args]: readonly string[], workspaceRoot: string): readonly string[] {
  const named = args.flatMap((arg) => [...candidatesOf(arg)]).map((path) => resolve(workspaceRoot, path));
  if (!searches(program, args)) return named;
  // The one word of `grep -r word` is no folder, though a folder may be called so
  const isPatternAlone = program !== "git" && program !== "find" &&
    args.filter((arg) => !arg.startsWith("-")).length < 2;
  return isPatternAlone || !named.some((path) => existsSync(path)) ? [workspaceRoot] : named;
}

function searches(program: string, args: readonly string[]): boolean {
  if (GREPS.has(program)) return args.some((arg) => /^(?:-[a-zA-Z]*[rR]|--(?:dereference-)?recursive$)/.test(arg));
  if (program === "find") return args.some((arg) => arg.startsWith("-exec"));
  return SEARCHERS.has(program) || (program === "git" && args.some((arg) => GIT_SHOWS.has(arg)));
}
