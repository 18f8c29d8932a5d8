import { readlink, realpath } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { type FileState, fileState } from "../files/file_state.ts";
import { isWithin, loadForbiddenBy } from "../files/forbidden_paths.ts";
import { isSensitive } from "../files/sensitive_files.ts";

/** Paths that the arguments of a command may name. */
export interface ArgumentScope {
  /** Absolute path of the folder the agent works in, and of the command */
  readonly workspaceRoot: string;
  /** Refuses paths outside the workspace too */
  readonly workspaceOnly: boolean;
  /** The user's forbidden paths beside the built-in ones */
  readonly forbiddenPaths: readonly string[];
  /** Opens `.env`, keys and their like */
  readonly allowSensitive: boolean;
}

/** A path that an argument may name, links resolved; perhaps nothing lies there. */
export interface NamedPlace {
  readonly arg: string;
  /** Absolute */
  readonly path: string;
}

/** Places that arguments of a command may not name. */
export interface ScreenOptions {
  /** The user's home folder, for `~/` in forbidden paths */
  readonly home: string;
  /** Postern's own data directory and configuration file. Absolute */
  readonly ownPaths: readonly string[];
}

/** PATH_MAX of Linux: nothing longer is a path */
const MAX_PATH_BYTES = 4096;
/** Paths that one argument may be taken for. An argument of 128 bytes, the default limit, has fewer. */
const MAX_CANDIDATES = 512;
/** Letters of one argument that are taken for options */
const MAX_SHORT_OPTIONS = 8;

/**
 * Refuses arguments that name a sensitive or forbidden file or, with `workspaceOnly`, one outside the workspace; also glued to
 * an option (`--file=/etc/passwd`, `-f../x`) or to another word (`if=/etc/passwd`, `@.env`), and through symbolic links; and
 * folders of the workspace that hold a file of Postern's own.
 *
 * @param options.folders absolute paths of the folders that the program may run in. Default: the workspace
 * @returns every path that the arguments may name, each once
 *
 * Screening, not containment: a program may open what no argument names, and the disk may change afterwards.
 * @throws {ToolError} `path_sensitive`, `path_forbidden`, `path_outside_root`, `command_too_long`
 * Source: docs/design/paths_and_commands.md "Screening"
 */
export async function screenArguments(
  args: readonly string[],
  scope: ArgumentScope,
  options: ScreenOptions & { readonly folders?: readonly string[] | undefined },
): Promise<{ readonly places: readonly NamedPlace[] }> {
  const places = new Map<string, NamedPlace>();
  const workspace = await realpath(scope.workspaceRoot);
  const forbiddenBy = await loadForbiddenBy(scope, options);
  const real = await Promise.all(options.ownPaths.map((path) => realpath(path).catch(() => path)));
  // By its name too: one that is a link could be exchanged
  const own = [...options.ownPaths, ...real];
  for (const arg of args) {
    const candidates = candidatesOf(arg);
    if (candidates.size > MAX_CANDIDATES) {
      throw refusal("command_too_long", arg, `it has more than ${MAX_CANDIDATES} parts that may name a file`);
    }
    for (const [candidate, path] of await placesOf(candidates, options.folders ?? [workspace])) {
      const inside = isWithin(path, workspace);
      const names = (inside ? relative(workspace, path) : path).split(sep).filter((name) => name !== "");
      const by = forbiddenBy(path);
      if (by !== undefined) {
        throw refusal("path_forbidden", arg, `it names a file in the forbidden path "${by}"; name other files`);
      }
      // Moved or filled as a whole, a folder would bring another configuration
      const held = inside && path !== workspace ? own.find((one) => isWithin(one, path)) : undefined;
      if (held !== undefined) {
        throw refusal("path_forbidden", arg, `the forbidden path "${held}" is in it; name other files`);
      }
      if (!scope.allowSensitive && (isSensitive(names) || isSensitive(candidate.split("/")))) {
        throw refusal(
          "path_sensitive",
          arg,
          "files of this name hold credentials; [autonomy] allow_sensitive_file_reads and allow_sensitive_file_writes together open them",
        );
      }
      if (scope.workspaceOnly && !inside) {
        throw refusal(
          "path_outside_root",
          arg,
          "it names a path outside the workspace; use paths of the workspace (and a space between an option and its value), or set [autonomy] workspace_only = false",
        );
      }
      places.set(path, { arg, path });
    }
  }
  return { places: [...places.values()] };
}

/** Returns the refusal of an argument whose folder or file holds credentials that the name does not tell. @param held the first of them */
export function holdsSensitive(arg: string, held: string): ToolError {
  return refusal(
    "path_sensitive",
    arg,
    `${JSON.stringify(held)} holds credentials, and no sandbox hides it; name other files, or install bubblewrap`,
  );
}

/** Returns what in an argument a program could take for a path. */
export function candidatesOf(arg: string): ReadonlySet<string> {
  const found = new Set<string>();
  const add = (text: string) => {
    if (text === "" || text === "-" || found.size > MAX_CANDIDATES) return;
    if (Buffer.byteLength(text) <= MAX_PATH_BYTES) found.add(text);
  };
  add(arg);
  // A value glued to one short option, or to several: -f../x, -xvf/etc/passwd, -xvfprivate/x
  const short = /^-[^-]/.test(arg);
  if (short) {
    const letters = /^-[a-z0-9]+/i.exec(arg)?.[0].length ?? 0;
    for (let end = 2; end <= Math.min(Math.max(letters, 2), MAX_SHORT_OPTIONS + 1); end++) add(arg.slice(end));
    const path = arg.slice(1).search(/\/|\.\.|\.[a-z_]/i);
    if (path !== -1) add(arg.slice(path + 1));
  }
  // --file=path, if=path, key:path, @path, a,path: what follows the sign, and each piece alone
  const url = /^[a-z][a-z0-9+.-]*:\/\//i.test(arg) && !/^file:/i.test(arg);
  for (const { index } of arg.matchAll(url ? /[=,@]/g : /[=:,@]/g)) add(arg.slice(index + 1));
  for (const piece of arg.split(url ? /[=,@]/ : /[=:,@]/)) add(piece);
  return found;
}

/** Returns where each name leads from each folder. */
async function placesOf(
  names: Iterable<string>,
  folders: readonly string[],
): Promise<readonly (readonly [name: string, path: string])[]> {
  const pairs = [...names].flatMap((name) =>
    (name.startsWith("/") ? ["/"] : folders).map((folder) => [name, folder] as const)
  );
  return await Promise.all(pairs.map(async ([name, folder]) => [name, await realPathOf(name, folder)] as const));
}

/** Links to nothing that are followed one after the other, as many as Linux follows */
const MAX_LINKS = 40;

/**
 * Returns where a path leads, name by name, as the operating system walks it: `link/..` is the parent of the link's target. What does
 * not exist is taken by its name, and so is what a link to nothing leads to: a program that opens it makes it there.
 */
export async function realPathOf(path: string, workspace: string, links = MAX_LINKS): Promise<string> {
  let at = path.startsWith("/") ? "/" : workspace;
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  for (const [index, name] of names.entries()) {
    if (name === "..") at = dirname(at);
    else {
      const [folder, next] = [at, join(at, name)];
      at = await realpath(next).catch(async () => {
        // Behind a name in the middle that is not there nothing is made
        const isLast = index === names.length - 1 && links > 0;
        const target = isLast ? await readlink(next).catch(() => undefined) : undefined;
        return target === undefined ? next : await realPathOf(target, folder, links - 1);
      });
    }
  }
  return at;
}

function refusal(code: string, arg: string, reason: string): ToolError {
  const shown = JSON.stringify(arg.length > 80 ? `${arg.slice(0, 80)}...` : arg);
  return new ToolError(code, `Cannot run the command with the argument ${shown}: ${reason}`);
}

/** A place of the workspace that an argument names, with what lies there. */
export interface NamedFile extends FileState {
  /** Relative to the workspace, links resolved */
  readonly path: string;
}

/**
 * Looks at every file of the workspace that the arguments of a command name, by the rules that the arguments are screened by: also
 * glued to an option, and through links. A name where nothing lies is among them, so that what appears there is noticed.
 * @returns in the order of the paths, each once
 * @throws {CancelError} when the signal aborts
 */
export async function namedFiles(
  args: readonly string[],
  { workspaceRoot, folders, signal }: {
    readonly workspaceRoot: string;
    /** Absolute paths of the folders that the program may run in. Default: the workspace */
    readonly folders?: readonly string[] | undefined;
    readonly signal: AbortSignal;
  },
): Promise<readonly NamedFile[]> {
  const workspace = await realpath(workspaceRoot);
  const places = new Set<string>();
  for (const arg of args) {
    for (const [, place] of await placesOf(candidatesOf(arg), folders ?? [workspace])) {
      if (isWithin(place, workspace)) places.add(place);
    }
  }
  const found: NamedFile[] = [];
  for (const place of [...places].sort()) {
    found.push({ path: relative(workspace, place) || ".", ...await fileState(place, signal) });
  }
  return found;
}
