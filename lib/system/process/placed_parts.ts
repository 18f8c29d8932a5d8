import { realpath, stat } from "node:fs/promises";
import { relative, resolve, sep } from "node:path";
import {
  type CommandLineParts,
  parseCommandLine,
  type RedirectedFile,
  type ShellPart,
} from "../../base/parse_command_line.ts";
import { isWithin } from "../files/forbidden_paths.ts";

/** Words of one part of a contained line that may name files, and the folders that it may run in. */
export interface PlacedPart {
  /** Name of the program. undefined: the part starts none, or nobody knows which */
  readonly program: string | undefined;
  /** Words that may name files: arguments, redirections, and the program where it is a path */
  readonly args: readonly string[];
  /** False when some of the words show only when the line runs */
  readonly isKnown: boolean;
  /** Absolute. undefined: nobody knows where the part runs */
  readonly folders: readonly string[] | undefined;
}

/** Builtins of bash that start no program */
const INSIDE = new Set([
  "[",
  ":",
  "cd",
  "command",
  "echo",
  "exit",
  "false",
  "printf",
  "pwd",
  "read",
  "set",
  "test",
  "true",
]);
/** Builtins that read and write nothing but their own words */
const SPOKEN = new Set(["echo", "printf", "[", "test", "cd", "exit"]);
/** Folders that a line may be in at a time. With more of them nobody knows where it is */
const MAX_FOLDERS = 8;

/** Tells whether a word is a builtin of bash, for which no program is started. */
export function isTameBuiltin(name: string): boolean {
  return INSIDE.has(name) || name === "break" || name === "continue" || name === "wait";
}

/** Tells whether a program may read or write files that its words name: `echo` and its like do not. */
export function namesFiles(name: string): boolean {
  return !SPOKEN.has(name);
}

/**
 * Returns the parts of a line with the folders that they may run in: each `cd` may have happened or not.
 * @param folder absolute path of the folder that the line begins in
 */
export function placeParts({ parts }: CommandLineParts, folder: string): readonly PlacedPart[] {
  let folders: readonly string[] | undefined = [folder];
  return parts.map((part): PlacedPart => {
    const placed = placePart(part, folders);
    if (part.words[0] === "cd") folders = afterCd(part, folders);
    return placed;
  });
}

/**
 * Returns the files that each part of a line is redirected from and to, in every folder that it may run in.
 * @param folder absolute path of the folder that the line begins in
 * @returns for each part the absolute paths, with the `..` that lead where links in front of them do. `path` undefined: it shows only when the
 *   line runs
 */
export function placeRedirections(line: CommandLineParts, folder: string): readonly (readonly RedirectedFile[])[] {
  const placed = placeParts(line, folder);
  return line.parts.map(({ files }, index) =>
    files.filter(({ path }) => path !== "/dev/null").flatMap(({ path, writes }): readonly RedirectedFile[] => {
      // The root is where an absolute path begins, wherever the line is
      const folders = path?.startsWith("/") === true ? ["/"] : placed[index]?.folders;
      if (path === undefined || folders === undefined) return [{ path: undefined, writes }];
      return folders.map((each) => ({ path: `${each}/${path}`, writes }));
    })
  );
}

function placePart({ words, files }: ShellPart, folders: readonly string[] | undefined): PlacedPart {
  const [program, ...args] = words;
  const paths = files.map(({ path }) => path).filter((path) => path !== "/dev/null");
  const named = [...program?.includes("/") === true ? [program] : [], ...args, ...paths];
  return {
    program: program === undefined || isTameBuiltin(program) ? undefined : program,
    args: named.filter((word) => word !== undefined),
    isKnown: (SPOKEN.has(program ?? "") ? paths : named).every((word) => word !== undefined),
    folders,
  };
}

function afterCd({ words: [, to, ...more] }: ShellPart, folders: readonly string[] | undefined) {
  if (to === undefined || to.startsWith("-") || more.length > 0) return undefined;
  const next = [...new Set([...folders ?? [], ...(folders ?? ["/"]).map((each) => resolve(each, to))])];
  return next.length > MAX_FOLDERS || (folders === undefined && !to.startsWith("/")) ? undefined : next;
}

/**
 * Returns the folder that a line leaves its conversation in: where the `cd` leads that it begins with. Others count for the line alone.
 * @param folder absolute path of the folder that the line begins in
 */
export function folderAfter(text: string, folder: string): string {
  const [{ words: [program, to, ...more] } = { words: [] }] = parseCommandLine(text).parts;
  const isFirst = /^\s*cd\s/.test(text) && program === "cd";
  return isFirst && to !== undefined && !to.startsWith("-") && more.length === 0 ? resolve(folder, to) : folder;
}

/**
 * Returns the first of these places that is a folder of the workspace, links resolved: relative to the workspace, with `/`. Empty: the
 * workspace itself, also where none of them is a folder in it.
 */
export async function folderIn(workspaceRoot: string, places: readonly string[]): Promise<string> {
  const root = await realpath(workspaceRoot);
  for (const place of places) {
    const real = await realpath(place).catch(() => undefined);
    if (real === undefined || !isWithin(real, root) || !(await stat(real)).isDirectory()) continue;
    return relative(root, real).replaceAll(sep, "/");
  }
  return "";
}
