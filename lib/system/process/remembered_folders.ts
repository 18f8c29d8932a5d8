import { Buffer } from "node:buffer";
import { type Dirent, lstatSync, readdirSync } from "node:fs";
import { basename, join, sep } from "node:path";
import { systemCodeOf } from "../../base/errors.ts";
import { isProtectedFromCommands } from "../files/forbidden_paths.ts";
import { isSensitive } from "../files/sensitive_files.ts";

/** Files and folders that are remembered; what is beyond them is looked at again each time */
export const MAX_REMEMBERED = 1_000_000;
/** A folder or file changed less than this ago may change again within the same time stamp. Deno gives whole seconds */
export const QUIET_MS = 2000;
/** Character that is in a listed name for bytes that are no UTF-8 */
const REPLACEMENT = "\ufffd";

/** Kinds of entries that a survey looks at. */
type Kind = "folder" | "file" | "link" | "socket";

/** An entry of a folder, with what its name says of it and what was last seen of its content. */
export interface FolderEntry {
  readonly name: string;
  readonly kind: Kind;
  readonly isSensitive: boolean;
  readonly isGuarded: boolean;
  /** Tells whether the name is not UTF-8: no string can reach such an entry */
  readonly isUnnamable: boolean;
  /** Number that depends on the path alone. Threads share the files of a workspace by it */
  readonly lot: number;
  seen?: { readonly ino: number; readonly size: number; readonly ctimeMs: number; readonly isKey: boolean } | undefined;
}

/** Role of a folder in a survey: it decides which of the names in it count. */
export interface FolderRole {
  readonly isGitFolder: boolean;
  /** True for the root of the survey */
  readonly isTop: boolean;
}

/** Entries of a folder. */
export interface FolderEntries {
  readonly all: readonly FolderEntry[];
  /** Entries that count by their names alone: folders, sockets, protected names, and names that are not UTF-8 */
  readonly named: readonly FolderEntry[];
}

interface RememberedFolder extends FolderRole {
  readonly ino: number;
  readonly ctimeMs: number;
  readonly entries: FolderEntries;
}

/** The entries of folders that surveys have seen, until a folder changes. */
export class RememberedFolders {
  readonly #now: () => number;
  readonly #max: number;
  readonly #folders = new Map<string, RememberedFolder>();
  /** Number of entries in all remembered folders */
  #remembered = 0;

  constructor(now: () => number, max: number) {
    this.#now = now;
    this.#max = max;
  }

  /** Returns the entries of a folder. @throws the error of the system when the folder cannot be read */
  entriesOf(path: string, { isGitFolder, isTop }: FolderRole): FolderEntries {
    const { ino, ctimeMs } = lstatSync(path);
    const known = this.#folders.get(path);
    const isKnown = known?.ino === ino && known.ctimeMs === ctimeMs;
    if (isKnown && known.isGitFolder === isGitFolder && known.isTop === isTop) return known.entries;
    const all = listEntries(path, { isGitFolder, isTop, known: known?.entries.all ?? [] });
    const named = all.filter(({ kind, isGuarded, isUnnamable }) =>
      kind === "folder" || kind === "socket" || isGuarded || isUnnamable
    );
    const entries = { all, named };
    this.#remember(path, { ino, ctimeMs, isGitFolder, isTop, entries });
    return entries;
  }

  #remember(path: string, folder: RememberedFolder): void {
    const { entries, ctimeMs } = folder;
    const before = this.#folders.get(path)?.entries.all.length ?? 0;
    this.#folders.delete(path);
    if (this.#now() - ctimeMs > QUIET_MS && this.#remembered + entries.all.length <= this.#max) {
      this.#folders.set(path, folder);
      this.#remembered += entries.all.length;
    }
    this.#remembered -= before;
  }
}

function listEntries(path: string, { isGitFolder, isTop, known }: FolderRole & {
  /** Entries that the folder had when it was last listed */
  readonly known: readonly FolderEntry[];
}): readonly FolderEntry[] {
  const parent = basename(path);
  const before = new Map(known.map((entry) => [entry.name, entry.seen]));
  const lot = lotOf(path, 0);
  const entries: FolderEntry[] = [];
  const listed = readdirSync(path, { withFileTypes: true });
  const isUnnamable = unnamableIn(path, listed);
  for (const entry of listed) {
    const kind = kindOf(entry, path);
    if (kind === undefined) continue;
    const { name } = entry;
    entries.push({
      name,
      kind,
      isSensitive: isSensitive([name], isGitFolder ? ".git" : parent),
      isGuarded: isProtectedFromCommands(name, isTop),
      isUnnamable: isUnnamable(name),
      lot: lotOf(name, lot),
      seen: before.get(name),
    });
  }
  return entries;
}

/** Returns an unsigned number of 32 bits. @param start number of the folder that the name lies in */
function lotOf(name: string, start: number): number {
  let lot = start;
  for (let at = 0; at < name.length; at++) lot = Math.imul(lot, 31) + name.charCodeAt(at);
  // The low bits alone decide, and would be those of the last characters
  return (lot ^ (lot >>> 15)) >>> 0;
}

function kindOf(entry: Dirent, folder: string): Kind | undefined {
  if (entry.isDirectory()) return "folder";
  if (entry.isFile()) return "file";
  if (entry.isSymbolicLink()) return "link";
  // Deno lists a socket as nothing
  return unlessGone(() => lstatSync(join(folder, entry.name)))?.isSocket() === true ? "socket" : undefined;
}

/** Tells for the names of a folder whether the replacement character in one stands for bytes that are no UTF-8, and not for itself. */
function unnamableIn(folder: string, listed: readonly Dirent[]): (name: string) => boolean {
  const counts = new Map<string, number>();
  for (const { name } of listed) if (name.includes(REPLACEMENT)) counts.set(name, (counts.get(name) ?? 0) + 1);
  // Beside a file whose name has the character itself, other bytes look the same
  return (name) =>
    counts.has(name) && (counts.get(name) !== 1 || unlessGone(() => lstatSync(join(folder, name))) === undefined);
}

/** Returns the places of a folder's entries as the bytes that they are, by the names that listings show for them. */
export function placesByName(folder: string): ReadonlyMap<string, readonly Buffer[]> {
  const places = new Map<string, Buffer[]>();
  for (const name of unlessGone(() => readdirSync(folder, { encoding: "buffer" })) ?? []) {
    const shown = name.toString("utf8");
    places.set(shown, [...places.get(shown) ?? [], Buffer.concat([Buffer.from(`${folder}${sep}`), name])]);
  }
  // Deno lists other bytes than there are: two names that are one cannot be told apart
  for (const [shown, found] of places) {
    if (new Set(found.map((place) => place.toString("latin1"))).size < found.length) places.delete(shown);
  }
  return places;
}

/** Returns what a look at the disk gives; undefined for a place that went away or may not be looked at. */
export function unlessGone<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch {
    return undefined;
  }
}

/** Tells whether an error says that nothing lies at a path. */
export function isGone(error: unknown): boolean {
  return ["ENOENT", "ENOTDIR"].includes(systemCodeOf(error) ?? "");
}
