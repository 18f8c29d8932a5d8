import type { Buffer } from "node:buffer";
import {
  closeSync,
  constants,
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
import {
  type FolderEntries,
  type FolderEntry,
  isGone,
  MAX_REMEMBERED,
  placesByName,
  QUIET_MS,
  RememberedFolders,
  unlessGone,
} from "./remembered_folders.ts";
import { type Guarded, MAX_CHANGED, nameIdentity, type Survey, type SurveyRequest } from "./surveys.ts";

/** Looks at the clock after so many entries */
const CLOCK_EVERY = 256;
/** `gitdir: <path>` of a `.git` file */
const MAX_POINTER_BYTES = 4096;

/** A longer file named `config` is not looked into for the words of a repository's configuration */
const MAX_CONFIG_BYTES = 262_144;
/** Configuration of a repository, and of one of its working trees */
const GIT_CONFIG = /^config(?:\.worktree)?$/;

/** Clocks and memory of a surveyor. */
export interface SurveyorOptions {
  /** Milliseconds since the epoch */
  readonly now: () => number;
  /** Milliseconds; never goes back */
  readonly monotonic: () => number;
  /** Files and folders that are remembered. Default: MAX_REMEMBERED */
  readonly maxRemembered?: number;
}

/**
 * Looks through folders, with calls that stop the thread until the disk answers. Names of a folder are remembered until it changes,
 * and content of a file until that changes: times of change (`ctime`) cannot be set by a program.
 */
export function createSurveyor(options: SurveyorOptions): (request: SurveyRequest) => Survey {
  const { now, monotonic, maxRemembered = MAX_REMEMBERED } = options;
  const folders = new RememberedFolders(now, maxRemembered);
  return (request) => new FolderSurvey(request, { folders, now, monotonic }).run();
}

/** A folder that a survey still has to look into. */
interface PendingFolder {
  readonly path: string;
  readonly isGitFolder: boolean;
  /** True below a protected name, where no other is told */
  readonly isGuarded: boolean;
}

/** Survey at work, with what it has found so far. */
class FolderSurvey {
  readonly #request: SurveyRequest;
  readonly #folders: RememberedFolders;
  readonly #now: () => number;
  readonly #monotonic: () => number;
  readonly #end: number;
  /** Names of the folders' entries that are skipped, by the folder */
  readonly #skip: ReadonlyMap<string, ReadonlySet<string>>;
  /** Identities of files with several names that hold credentials under one of them */
  readonly #secrets: Set<string>;
  readonly #pending: PendingFolder[] = [];
  readonly #sensitive: string[] = [];
  readonly #gitConfigs: string[] = [];
  readonly #guarded: Guarded[] = [];
  readonly #sockets: string[] = [];
  readonly #unnamable: string[] = [];
  readonly #changed: string[] = [];
  /** Files with several names */
  readonly #linked: { readonly path: string; readonly file: string; readonly isUnnamable: boolean }[] = [];
  /** Room for the beginning of a file */
  readonly #head = new Uint8Array(KEY_HEAD_BYTES);
  #steps = 0;
  #files = 0;
  #isLate = false;

  constructor(request: SurveyRequest, options: SurveyorOptions & { readonly folders: RememberedFolders }) {
    this.#request = request;
    this.#folders = options.folders;
    this.#now = options.now;
    this.#monotonic = options.monotonic;
    this.#end = options.monotonic() + request.timeoutMs;
    this.#secrets = request.secrets ? secretsOfUser(request, this.#late) : new Set();
    this.#skip = namesByFolder(request.skip);
  }

  run(): Survey {
    const { root, secrets, part } = this.#request;
    const top = unlessGone(() => lstatSync(root));
    if (top?.isDirectory()) this.#pending.push({ path: root, isGitFolder: false, isGuarded: false });
    else if (top?.isFile() && secrets && (part?.index ?? 0) === 0) {
      this.#lookAtFile(root, {
        name: "",
        kind: "file",
        isSensitive: false,
        isGuarded: false,
        isUnnamable: false,
        lot: 0,
      });
    }
    for (let folder = this.#pending.pop(); folder !== undefined && !this.#late(); folder = this.#pending.pop()) {
      this.#lookAtFolder(folder);
    }
    for (const { path, file, isUnnamable } of this.#linked) {
      if (this.#secrets.has(file)) (isUnnamable ? this.#unnamable : this.#sensitive).push(path);
    }
    return {
      finished: !this.#isLate && this.#changed.length <= MAX_CHANGED,
      sensitive: [...new Set(this.#sensitive)].sort(),
      gitConfigs: [...new Set(this.#gitConfigs)],
      guarded: this.#guarded,
      sockets: this.#sockets,
      unnamable: this.#unnamable,
      changed: this.#changed,
      files: this.#files,
    };
  }

  readonly #late = (): boolean => this.#isLate ||= ++this.#steps % CLOCK_EVERY === 0 && this.#monotonic() > this.#end;

  #lookAtFolder(folder: PendingFolder): void {
    const { path, isGitFolder } = folder;
    const { root, secrets, changedSince } = this.#request;
    let listed: FolderEntries;
    try {
      listed = this.#folders.entriesOf(path, { isGitFolder, isTop: path === root });
    } catch (error) {
      // A folder that cannot be looked into is hidden: a command of the same user could make it readable
      if (!isGone(error) && secrets) this.#sensitive.push(path);
      return;
    }
    const entries = secrets || changedSince !== undefined ? listed.all : listed.named;
    const skipped = this.#skip.get(path);
    const isRepository = has(entries, "HEAD") && (isGitFolder || isBare(entries));
    const bytesOf = secrets && entries.some(({ isUnnamable }) => isUnnamable) ? placesByName(path) : undefined;
    for (const entry of entries) {
      if (this.#late()) return;
      if (skipped?.has(entry.name)) continue;
      const below = path === sep ? `${sep}${entry.name}` : `${path}${sep}${entry.name}`;
      if (entry.isUnnamable) this.#lookAtUnnamable(below, entry, bytesOf?.get(entry.name));
      else this.#lookAtEntry(below, entry, folder);
      if (secrets && GIT_CONFIG.test(entry.name) && (isRepository || (!isGitFolder && saysRepository(below)))) {
        this.#cover(below);
        if (entry.kind === "file") this.#gitConfigs.push(below);
      }
    }
  }

  #lookAtEntry(path: string, entry: FolderEntry, { isGitFolder, isGuarded }: PendingFolder): void {
    const { secrets } = this.#request;
    if (entry.isGuarded && !isGuarded) this.#guard(path, entry);
    if (entry.kind === "file" && !isGitFolder) this.#noteChange(path);
    if (entry.kind === "socket") this.#sockets.push(path);
    if (entry.isSensitive) {
      if (secrets) this.#cover(path);
      return;
    }
    if (entry.kind === "folder") {
      const inGit = isGitFolder || entry.name.toLowerCase() === ".git";
      // Objects are compressed, and named by their digest
      if (isGitFolder && (entry.name === "objects" || entry.name === "lfs")) return;
      this.#pending.push({ path, isGitFolder: inGit, isGuarded: isGuarded || entry.isGuarded });
    } else if (secrets && entry.kind === "file" && this.#isMine(entry)) this.#lookAtFile(path, entry);
  }

  /** Notes a file that changed. No program can set the time of change. Where a runtime gives whole seconds, the second before counts too. */
  #noteChange(path: string): void {
    const { changedSince } = this.#request;
    if (changedSince === undefined || this.#changed.length > MAX_CHANGED) return;
    const ctimeMs = unlessGone(() => lstatSync(path))?.ctimeMs ?? 0;
    if ((ctimeMs % 1000 === 0 ? ctimeMs + 999 : ctimeMs) >= changedSince) this.#changed.push(path);
  }

  /** Notes a protected name, and the folder that a `.git` file points to. */
  #guard(path: string, entry: FolderEntry): void {
    const { root } = this.#request;
    this.#guarded.push(...guardedAt(path, root));
    if (!/^(?:\.git|git~1)$/i.test(entry.name)) return;
    const gitDir = entry.kind === "folder" ? path : gitFolderOf(path, entry, root);
    if (gitDir === undefined) return;
    if (gitDir !== path) this.#guardFolder(gitDir, { isLed: entry.kind === "link" });
    const shared = sharedFolderOf(gitDir, root);
    if (shared !== undefined) this.#guardFolder(shared, { isLed: true });
  }

  /** Notes a folder of git that has no protected name. */
  #guardFolder(path: string, { isLed }: { readonly isLed: boolean }): void {
    this.#guarded.push(...guardedAt(path, this.#request.root).map((found) => isLed ? { ...found, isLed } : found));
    this.#pending.push({ path, isGitFolder: true, isGuarded: true });
  }

  /** Notes a sensitive path, and the other names of its files. */
  #cover(path: string): void {
    this.#sensitive.push(path);
    const real = unlessGone(() => realpathSync(path));
    if (real === undefined || !isWithin(real, this.#request.root)) return;
    for (const file of linkedFilesIn(real, this.#late)) this.#secrets.add(file);
  }

  /** Tells whether this thread looks at a file. Other names of a file of credentials are found by the threads that look at those. */
  #isMine({ lot }: FolderEntry): boolean {
    const { part } = this.#request;
    return part === undefined || lot % part.count === part.index;
  }

  #lookAtFile(path: string, entry: FolderEntry): void {
    this.#files++;
    let found: Stats;
    try {
      found = lstatSync(path);
    } catch (error) {
      if (!isGone(error)) this.#sensitive.push(path);
      return;
    }
    if (!found.isFile()) return;
    if (found.nlink > 1) this.#linked.push({ path, file: `${found.dev}:${found.ino}`, isUnnamable: false });
    const { ino, size, ctimeMs } = found;
    const { seen } = entry;
    const isSame = seen !== undefined && seen.ino === ino && seen.size === size && seen.ctimeMs === ctimeMs;
    const isKey = isSame ? seen.isKey : isKeyFile(path, size, this.#head);
    if (!isSame) entry.seen = this.#now() - ctimeMs > QUIET_MS ? { ino, size, ctimeMs, isKey } : undefined;
    if (isKey) this.#cover(path);
  }

  /**
   * Looks at an entry whose name is no UTF-8, a file by its bytes. Nothing can hide it: where it may hold credentials, its name is told.
   * @param places paths of the files whose names look the same; undefined when they cannot be told apart
   */
  #lookAtUnnamable(path: string, { kind, isSensitive }: FolderEntry, places: readonly Buffer[] | undefined): void {
    const { secrets } = this.#request;
    // A folder may hold protected names as well. The target of a link is found where it lies
    if (kind === "folder" || kind === "socket" || (isSensitive && secrets)) this.#unnamable.push(path);
    else if (kind === "file" && secrets) {
      const judged = places?.map((place) => judgeByBytes(place, this.#head)) ?? [undefined];
      if (judged.includes(undefined)) this.#unnamable.push(path);
      for (const file of judged) {
        if (file?.link !== undefined) this.#linked.push({ path, file: file.link, isUnnamable: true });
      }
    }
  }
}

function has(entries: readonly FolderEntry[], wanted: string): boolean {
  return entries.some(({ name }) => name === wanted);
}

/**
 * Tells whether git takes a folder with a `HEAD` for a repository, or for the folder of one of its working trees, under any name.
 * Source: gitrepository-layout(5)
 */
function isBare(entries: readonly FolderEntry[]): boolean {
  return (has(entries, "objects") && has(entries, "refs")) || has(entries, "commondir");
}

/**
 * Tells whether a file is the configuration of a repository by its words, which a command cannot change where a copy takes its place: an
 * earlier command may have removed what lies beside it.
 */
function saysRepository(path: string): boolean {
  const found = unlessGone(() => lstatSync(path));
  if (found?.isFile() !== true || found.size > MAX_CONFIG_BYTES) return false;
  return /repositoryformatversion/i.test(unlessGone(() => readFileSync(path, "latin1")) ?? "");
}

function namesByFolder(paths: readonly string[]): ReadonlyMap<string, ReadonlySet<string>> {
  const names = new Map<string, Set<string>>();
  for (const path of paths) {
    const folder = dirname(path);
    names.set(folder, (names.get(folder) ?? new Set()).add(basename(path)));
  }
  return names;
}

/** Returns undefined for what may hold credentials, or cannot be looked at; `link`: the file has several names. */
function judgeByBytes(place: Buffer, head: Uint8Array): { readonly link: string | undefined } | undefined {
  const found = unlessGone(() => lstatSync(place));
  if (found === undefined || (found.isFile() && isKeyFile(place, found.size, head))) return undefined;
  return { link: found.isFile() && found.nlink > 1 ? `${found.dev}:${found.ino}` : undefined };
}

/** @param head room for KEY_HEAD_BYTES */
function isKeyFile(path: string | Buffer, size: number, head: Uint8Array): boolean {
  if (size === 0) return false;
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    // A file that cannot be read is hidden: a command of the same user could make it readable
    return !isGone(error);
  }
  try {
    return holdsPrivateKey(head.subarray(0, readSync(file, head, 0, head.length, 0)));
  } finally {
    closeSync(file);
  }
}

function guardedAt(path: string, root: string): readonly Guarded[] {
  const identity = unlessGone(() => nameIdentity(path));
  return identity === undefined || !isWithin(path, root) ? [] : [{ path, identity }];
}

/** The folder that a `.git` file or link leads to, where it lies in the workspace: it is one of git as well. */
function gitFolderOf(path: string, { kind }: FolderEntry, root: string): string | undefined {
  if (kind === "link") return insideOf(path, root);
  const target = /^gitdir: (.+)/m.exec(pointerAt(path))?.[1];
  return target === undefined ? undefined : insideOf(resolve(dirname(path), target.trimEnd()), root);
}

/** The folder that a git folder shares with other working trees, as that of a bare repository. Hooks and configuration lie there. */
function sharedFolderOf(gitDir: string, root: string): string | undefined {
  const target = pointerAt(join(gitDir, "commondir")).trimEnd();
  return target === "" ? undefined : insideOf(resolve(gitDir, target), root);
}

/** Returns the text of a small file; empty where there is none. */
function pointerAt(path: string): string {
  return unlessGone(() => {
    const found = lstatSync(path);
    return found.isFile() && found.size <= MAX_POINTER_BYTES ? readFileSync(path, "utf8") : undefined;
  }) ?? "";
}

/** Returns where a path leads; undefined outside of the root, and for the root itself. */
function insideOf(path: string, root: string): string | undefined {
  const real = unlessGone(() => realpathSync(path));
  return real !== undefined && real !== root && isWithin(real, root) ? real : undefined;
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
