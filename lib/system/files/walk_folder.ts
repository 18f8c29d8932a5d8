import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { createYielder, type Yielder } from "../../base/tick.ts";
import type { OpenFile, WalkedFile, WalkEnd, WalkOptions } from "./files.ts";
import type { PathRules } from "./path_rules.ts";
import type { Folder } from "./reach.ts";
import { compileSegments, matchSegments, type Segment } from "./glob.ts";

/** Open folders at one time, so file handles too */
const MAX_DEPTH = 64;
const MAX_GITIGNORE_BYTES = 262_144;

/** The rules of one `.gitignore`, for paths relative to the folder it lies in. */
export interface IgnoreRules {
  /** true: ignored, false: taken back by `!`, undefined: no rule says anything */
  verdict(names: readonly string[], isFolder: boolean): boolean | undefined;
}

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
  const yielder = createYielder(options);
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

const MAX_RULES = 2000;
const MAX_RULE = 1000;

interface Rule {
  readonly segments: readonly Segment[];
  readonly negated: boolean;
  readonly foldersOnly: boolean;
}

/**
 * Parses the rules of a `.gitignore`. Rules after the first 2000, and those over 1000 characters, are left out.
 * Source: https://git-scm.com/docs/gitignore
 */
export function parseGitignore(text: string): IgnoreRules {
  const rules: Rule[] = [];
  for (const line of text.split(/\r?\n/)) {
    if (rules.length === MAX_RULES) break;
    const rule = line.length > MAX_RULE ? undefined : parseRule(line);
    if (rule !== undefined) rules.push(rule);
  }
  return {
    verdict(names, isFolder) {
      // The last rule that matches decides
      for (let i = rules.length - 1; i >= 0; i--) {
        const rule = rules[i] as Rule; // Below the length
        if ((!rule.foldersOnly || isFolder) && matchSegments(rule.segments, names)) return !rule.negated;
      }
      return undefined;
    },
  };
}

function parseRule(line: string): Rule | undefined {
  let pattern = line.startsWith("#") ? "" : line;
  while (pattern.endsWith(" ") && !pattern.endsWith("\\ ")) pattern = pattern.slice(0, -1);
  const negated = pattern.startsWith("!");
  if (negated) pattern = pattern.slice(1);
  const foldersOnly = pattern.endsWith("/");
  if (foldersOnly) pattern = pattern.slice(0, -1);
  if (pattern === "") return undefined;
  const anchored = pattern.includes("/");
  const segments = compileSegments(pattern.startsWith("/") ? pattern.slice(1) : pattern);
  return { segments: anchored ? segments : ["any", ...segments], negated, foldersOnly };
}
