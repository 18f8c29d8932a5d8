import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { Yielder } from "../../base/tick.ts";
import type { OpenFile, WalkedFile, WalkEnd, WalkOptions } from "./files.ts";
import type { PathRules } from "./path_rules.ts";
import type { Folder } from "./reach.ts";
import { type IgnoreRules, parseGitignore } from "./gitignore.ts";

/** Open folders at one time, so file handles too */
const MAX_DEPTH = 64;
const MAX_GITIGNORE_BYTES = 262_144;

/** `.gitignore` rules of a folder, which also hold for what lies deeper. */
export interface FolderIgnores {
  /** Parts of the folder's path */
  readonly depth: number;
  readonly rules: IgnoreRules;
}

interface Level {
  readonly folder: Folder;
  /** Not yet visited, last first */
  readonly folders: string[];
  readonly ignores: readonly FolderIgnores[];
}

/** Visits a folder and all below it, depth first; closes `start` and every folder it opened, also when it is left early. */
export async function* walkFolder(
  start: Folder,
  options: WalkOptions & {
    readonly rules: PathRules;
    readonly clock: Clock;
    /** Reads the `.gitignore` files above the start */
    readonly ignores: () => Promise<readonly (FolderIgnores | undefined)[]>;
  },
): AsyncGenerator<readonly WalkedFile[], WalkEnd> {
  const levels: Level[] = [];
  const yielder = new Yielder(options);
  let left = options.maxEntries;
  let truncated = false;
  let current: Folder | undefined = start;
  try {
    const inherited = (await options.ignores()).filter((found) => found !== undefined);
    for (;;) {
      if (options.signal.aborted) throw cancelError(options.signal);
      if (current !== undefined) {
        const folder: Folder = current;
        const above: readonly FolderIgnores[] = levels.at(-1)?.ignores ?? inherited;
        const level: Level = { folder, folders: [], ignores: above };
        levels.push(level);
        current = undefined;
        const visited = await visit(folder, {
          ...options,
          limit: left,
          ignores: above,
          depth: start.names.length,
          yielder,
        });
        left -= visited.seen;
        truncated ||= visited.truncated;
        levels[levels.length - 1] = { folder, folders: visited.folders, ignores: visited.ignores };
        yield visited.files;
      }
      const level: Level | undefined = levels.at(-1);
      if (level === undefined) return { truncated };
      const name: string | undefined = left > 0 ? level.folders.pop() : undefined;
      if (name === undefined) {
        truncated ||= level.folders.length > 0;
        levels.pop();
        await level.folder.close();
      } else if (levels.length === MAX_DEPTH) {
        truncated = true;
      } else {
        current = await level.folder.folder(name).catch(unreadable);
      }
    }
  } finally {
    await current?.close();
    for (const level of levels) await level.folder.close();
  }
}

interface Visited {
  readonly files: readonly WalkedFile[];
  readonly folders: string[];
  readonly ignores: readonly FolderIgnores[];
  readonly seen: number;
  readonly truncated: boolean;
}

async function visit(
  folder: Folder,
  { rules, ignores, limit, respectGitignore, depth, yielder }: {
    readonly rules: PathRules;
    readonly ignores: readonly FolderIgnores[];
    readonly limit: number;
    readonly respectGitignore: boolean;
    /** Depth of the folder that the walk started at. */
    readonly depth: number;
    readonly yielder: Yielder;
  },
): Promise<Visited> {
  const listed = await folder.list(limit).catch(unreadable);
  if (listed === undefined) return { files: [], folders: [], ignores, seen: 0, truncated: false };
  const own = respectGitignore && listed.files.includes(".gitignore")
    ? await readIgnores(() => folder.file(".gitignore"), folder.names.length)
    : undefined;
  const all = own === undefined ? ignores : [...ignores, own];
  const isShown = (name: string, isFolder: boolean) => {
    const names = [...folder.names, name];
    if (rules.refusal(names) !== undefined) return false;
    return !respectGitignore || !(isFolder && name === ".git" || isIgnored(all, names, isFolder));
  };
  /** Hostile rules take their time for each name, so others get their turn in between */
  const shown = async (names: readonly string[], isFolder: boolean) => {
    const kept: string[] = [];
    for (const name of names) {
      if (isShown(name, isFolder)) kept.push(name);
      if (yielder.isDue()) await yielder.yield();
    }
    return kept.sort();
  };
  return {
    files: (await shown(listed.files, false)).map((name) => ({
      path: [...folder.names, name].join("/"),
      below: [...folder.names.slice(depth), name].join("/"),
      open: () => folder.file(name),
    })),
    folders: (await shown(listed.folders, true)).reverse(),
    ignores: all,
    seen: listed.files.length + listed.folders.length,
    truncated: listed.truncated,
  };
}

/** The deepest `.gitignore` that says anything decides. */
function isIgnored(ignores: readonly FolderIgnores[], names: readonly string[], isFolder: boolean): boolean {
  for (let i = ignores.length - 1; i >= 0; i--) {
    const { depth, rules } = ignores[i] as FolderIgnores; // Below the length
    const verdict = rules.verdict(names.slice(depth), isFolder);
    if (verdict !== undefined) return verdict;
  }
  return false;
}

/** Reads a `.gitignore`; undefined when it cannot be read. */
export async function readIgnores(open: () => Promise<OpenFile>, depth: number): Promise<FolderIgnores | undefined> {
  const file = await open().catch(unreadable);
  if (file === undefined) return undefined;
  try {
    const bytes = new Uint8Array(Math.min(file.size, MAX_GITIGNORE_BYTES));
    const length = await file.read(bytes, 0);
    return { depth, rules: parseGitignore(new TextDecoder().decode(bytes.subarray(0, length))) };
  } finally {
    await file.close();
  }
}

/** Leaves a folder that cannot be opened out of the walk. Throws any other failure again. */
function unreadable(error: unknown): undefined {
  if (!(error instanceof ToolError)) throw error;
}
