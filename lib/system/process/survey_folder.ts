import { Buffer } from "node:buffer";
import {
  closeSync,
  constants,
  type Dirent,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  realpathSync,
  type Stats,
} from "node:fs";
import { basename, dirname, join, resolve, sep } from "node:path";
import { isWithin } from "../files/forbidden_paths.ts";
import { holdsPrivateKey, isSensitive, KEY_HEAD_BYTES } from "../files/sensitive_files.ts";
import { isProtectedFromCommands } from "../files/protected_names.ts";
import { type Guarded, nameIdentity, type Survey, type SurveyRequest } from "./surveys.ts";

/** Files and folders that are remembered; a tree with more is looked at anew each time */
const MAX_REMEMBERED = 1_000_000;
/** A folder or file changed less than this ago may change again within the same time stamp. Deno gives whole seconds */
const QUIET_MS = 2000;
/** Looks at the clock after so many entries */
const CLOCK_EVERY = 256;
/** `gitdir: <path>` of a `.git` file */
const MAX_POINTER_BYTES = 4096;
/** Character that stands in a listed name for bytes that are no UTF-8 */
const REPLACEMENT = "\ufffd";

type Kind = "folder" | "file" | "link";

/** An entry of a folder, with what its name says of it and what was last seen of its content. */
interface Entry {
  readonly name: string;
  readonly kind: Kind;
  readonly isSensitive: boolean;
  readonly isGuarded: boolean;
  /** Tells whether the name is not UTF-8: no string can reach such an entry */
  readonly isUnnamable: boolean;
  seen?: { readonly ino: number; readonly size: number; readonly ctimeMs: number; readonly isKey: boolean } | undefined;
}

interface Folder {
  readonly ino: number;
  readonly ctimeMs: number;
  readonly isGitFolder: boolean;
  readonly isTop: boolean;
  readonly entries: readonly Entry[];
}

export interface SurveyorOptions {
  /** Milliseconds since the epoch */
  readonly now: () => number;
  /** Milliseconds; never goes back */
  readonly monotonic: () => number;
}

/**
 * Looks through folders, with calls that stop the thread until the disk answers. Names of a folder are remembered until it changes,
 * and content of a file until that changes: times of change (`ctime`) cannot be set by a program.
 */
export function createSurveyor({ now, monotonic }: SurveyorOptions): (request: SurveyRequest) => Survey {
  const folders = new Map<string, Folder>();
  let remembered = 0;

  /** The entries of a folder; undefined when it went away. @throws when it cannot be read */
  const entriesOf = (
    path: string,
    { isGitFolder, isTop }: { readonly isGitFolder: boolean; readonly isTop: boolean },
  ) => {
    const { ino, ctimeMs } = lstatSync(path);
    const known = folders.get(path);
    const isKnown = known?.ino === ino && known.ctimeMs === ctimeMs;
    if (isKnown && known.isGitFolder === isGitFolder && known.isTop === isTop) return known.entries;
    const parent = basename(path);
    const before = new Map(known?.entries.map((entry) => [entry.name, entry.seen]));
    const entries: Entry[] = [];
    const listed = readdirSync(path, { withFileTypes: true });
    const isUnnamable = unnamableIn(path, listed);
    for (const entry of listed) {
      const kind = kindOf(entry);
      if (kind === undefined) continue;
      const { name } = entry;
      entries.push({
        name,
        kind,
        isSensitive: isSensitive([name], isGitFolder ? ".git" : parent),
        isGuarded: isProtectedFromCommands(name, isTop),
        isUnnamable: isUnnamable(name),
        seen: before.get(name),
      });
    }
    folders.delete(path);
    if (now() - ctimeMs > QUIET_MS && remembered + entries.length <= MAX_REMEMBERED) {
      folders.set(path, { ino, ctimeMs, isGitFolder, isTop, entries });
      remembered += entries.length - (known?.entries.length ?? 0);
    } else if (known !== undefined) remembered -= known.entries.length;
    return entries;
  };

  return (request) => {
    const end = monotonic() + request.timeoutMs;
    let steps = 0;
    let isLate = false;
    const late = () => isLate ||= ++steps % CLOCK_EVERY === 0 && monotonic() > end;

    const sensitive: string[] = [];
    const guarded: Guarded[] = [];
    const unnamable: string[] = [];
    /** Files with several names, and which of them are secrets under another */
    const linked: { readonly path: string; readonly file: string; readonly isUnnamable: boolean }[] = [];
    const secrets = request.secrets ? secretsOfUser(request, late) : new Set<string>();
    const skip = new Set(request.skip);
    const pending: { readonly path: string; readonly isGitFolder: boolean; readonly isGuarded: boolean }[] = [];

    const cover = (path: string) => {
      sensitive.push(path);
      const real = unlessGone(() => realpathSync(path));
      if (real === undefined || !isWithin(real, request.root)) return;
      for (const file of linkedFilesIn(real, late)) secrets.add(file);
    };
    const lookAtFile = (path: string, entry: Entry): void => {
      let found: Stats;
      try {
        found = lstatSync(path);
      } catch (error) {
        if (!isGone(error)) sensitive.push(path);
        return;
      }
      if (!found.isFile()) return;
      if (found.nlink > 1) linked.push({ path, file: `${found.dev}:${found.ino}`, isUnnamable: false });
      const { ino, size, ctimeMs } = found;
      const { seen } = entry;
      const isSame = seen !== undefined && seen.ino === ino && seen.size === size && seen.ctimeMs === ctimeMs;
      const isKey = isSame ? seen.isKey : isKeyFile(path, size);
      if (!isSame) entry.seen = now() - ctimeMs > QUIET_MS ? { ino, size, ctimeMs, isKey } : undefined;
      if (isKey) cover(path);
    };
    /** Looks by its bytes at a file whose name is no UTF-8. Nothing can hide it: where it may hold credentials, its name is told. */
    const lookAtUnnamable = (path: string, places: readonly Buffer[] | undefined): void => {
      const judged = places?.map((place) => judgeByBytes(place)) ?? [undefined];
      if (judged.includes(undefined)) unnamable.push(path);
      for (const file of judged) {
        if (file?.link !== undefined) linked.push({ path, file: file.link, isUnnamable: true });
      }
    };
    const lookAt = (folder: (typeof pending)[number]): void => {
      const { path, isGitFolder, isGuarded } = folder;
      let entries: readonly Entry[];
      try {
        const isTop = path === request.root;
        entries = entriesOf(path, { isGitFolder, isTop });
      } catch (error) {
        // A folder that cannot be looked into is hidden: a command of the same user could make it readable
        if (!isGone(error) && request.secrets) sensitive.push(path);
        return;
      }
      const bytesOf = request.secrets && entries.some(({ isUnnamable }) => isUnnamable)
        ? placesByName(path)
        : undefined;
      for (const entry of entries) {
        if (late()) return;
        const below = path === sep ? `${sep}${entry.name}` : `${path}${sep}${entry.name}`;
        if (skip.has(below)) continue;
        if (entry.isUnnamable) {
          // A folder may hold protected names as well; what a link leads to is found where it lies
          if (entry.kind === "folder" || (entry.isSensitive && request.secrets)) unnamable.push(below);
          else if (entry.kind === "file" && request.secrets) lookAtUnnamable(below, bytesOf?.get(entry.name));
          continue;
        }
        if (entry.isGuarded && !isGuarded) {
          guarded.push(...guardedAt(below, request.root));
          for (const target of gitFolderOf(below, entry, request.root)) {
            guarded.push(...guardedAt(target.path, request.root));
            pending.push(target);
          }
        }
        if (entry.isSensitive) {
          if (!request.secrets) continue;
          cover(below);
          continue;
        }
        if (entry.kind === "folder") {
          const inGit = isGitFolder || entry.name.toLowerCase() === ".git";
          // Objects are compressed, and named by their digest
          if (isGitFolder && (entry.name === "objects" || entry.name === "lfs")) continue;
          pending.push({ path: below, isGitFolder: inGit, isGuarded: isGuarded || entry.isGuarded });
        } else if (request.secrets && entry.kind === "file") lookAtFile(below, entry);
      }
    };

    const top = unlessGone(() => lstatSync(request.root));
    if (top?.isDirectory()) pending.push({ path: request.root, isGitFolder: false, isGuarded: false });
    else if (top?.isFile() && request.secrets) {
      lookAtFile(request.root, { name: "", kind: "file", isSensitive: false, isGuarded: false, isUnnamable: false });
    }
    for (let folder = pending.pop(); folder !== undefined && !late(); folder = pending.pop()) lookAt(folder);
    for (const { path, file, isUnnamable } of linked) {
      if (secrets.has(file)) (isUnnamable ? unnamable : sensitive).push(path);
    }
    return { finished: !isLate, sensitive: [...new Set(sensitive)].sort(), guarded, unnamable };
  };
}

function kindOf(entry: Dirent): Kind | undefined {
  return entry.isDirectory() ? "folder" : entry.isFile() ? "file" : entry.isSymbolicLink() ? "link" : undefined;
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
function placesByName(folder: string): ReadonlyMap<string, readonly Buffer[]> {
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

/** Returns undefined for what may hold credentials, or cannot be looked at; `link`: the file has several names. */
function judgeByBytes(place: Buffer): { readonly link: string | undefined } | undefined {
  const found = unlessGone(() => lstatSync(place));
  if (found === undefined || (found.isFile() && isKeyFile(place, found.size))) return undefined;
  return { link: found.isFile() && found.nlink > 1 ? `${found.dev}:${found.ino}` : undefined };
}

function isKeyFile(path: string | Buffer, size: number): boolean {
  if (size === 0) return false;
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    // A file that cannot be read is hidden: a command of the same user could make it readable
    return !isGone(error);
  }
  try {
    const head = new Uint8Array(KEY_HEAD_BYTES);
    return holdsPrivateKey(head.subarray(0, readSync(file, head, 0, head.length, 0)));
  } finally {
    closeSync(file);
  }
}

function guardedAt(path: string, root: string): readonly Guarded[] {
  const identity = unlessGone(() => nameIdentity(path));
  return identity === undefined || !isWithin(path, root) ? [] : [{ path, identity }];
}

/** The folder that a `.git` file points to, where it lies in the workspace: it is one of git as well. */
function gitFolderOf(path: string, entry: Entry, root: string) {
  if (entry.kind !== "file" || !/^(?:\.git|git~1)$/i.test(entry.name)) return [];
  try {
    if (lstatSync(path).size > MAX_POINTER_BYTES) return [];
    const target = /^gitdir: (.+?)\s*$/m.exec(readFileSync(path, "utf8"))?.[1];
    if (target === undefined) return [];
    const folder = resolve(dirname(path), target);
    return isWithin(folder, root) && folder !== root ? [{ path: folder, isGitFolder: true, isGuarded: true }] : [];
  } catch {
    return [];
  }
}

/** Device and inode of every file with several names among the user's secrets and Postern's own files. */
function secretsOfUser({ home, ownPaths }: SurveyRequest, late: () => boolean): Set<string> {
  const places = [...ownPaths];
  for (const folder of ["", ".config", ".cargo", ".gem", join(".config", "gh")]) {
    const path = join(home, folder);
    for (const entry of unlessGone(() => readdirSync(path, { withFileTypes: true })) ?? []) {
      if (isSensitive([entry.name], basename(path))) places.push(join(path, entry.name));
    }
  }
  return new Set(places.flatMap((place) => [...linkedFilesIn(place, late)]));
}

/** Files with several names at a path or below it. */
function* linkedFilesIn(path: string, late: () => boolean): Generator<string> {
  const pending = [path];
  for (let place = pending.pop(); place !== undefined && !late(); place = pending.pop()) {
    const at = place;
    const found = unlessGone(() => lstatSync(at));
    if (found?.isFile() && found.nlink > 1) yield `${found.dev}:${found.ino}`;
    if (!found?.isDirectory()) continue;
    for (const name of unlessGone(() => readdirSync(at)) ?? []) pending.push(join(at, name));
  }
}

function isGone(error: unknown): boolean {
  return error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR");
}

/** undefined for what went away or may not be looked at. */
function unlessGone<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch {
    return undefined;
  }
}
