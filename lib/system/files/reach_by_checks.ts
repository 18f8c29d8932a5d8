import { type BigIntStats, constants } from "node:fs";
import { type FileHandle, lstat, open, opendir, realpath } from "node:fs/promises";
import { join, sep } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { fileError, linkedFile, notAFile, notAFolder, notThere, outsideRoot } from "./file_error.ts";
import type { OpenFile } from "./files.ts";
import { isWithin } from "./forbidden_paths.ts";
import { findLikeNames } from "./like_name.ts";
import { type Folder, type FolderList, listFolder, type Reach } from "./reach.ts";
import { openFile } from "./open_file.ts";
import { shown } from "./parse_path.ts";
import type { PathRules } from "./path_rules.ts";

/** A folder changed less than this ago may change again without a new time stamp: the kernel's clock ticks each 1-10 ms */
const QUIET_MS = 50;
/** Deno gives change times in whole seconds */
const SECOND_NS = 1_000_000_000n;
const RETRY_MS = 20;
const MAX_ATTEMPTS = 75;

/**
 * Creates the way to files for any platform, by names alone: nothing of an opened file is read before it is known to lie inside the root.
 *
 * The chain of folders from the root to the file is looked at before and after the opening. The root itself cannot be swapped by
 * what happens inside it; its change time is the same in both looks and older than a tick, so none of its entries was replaced
 * in between; so the next folder is the one that was looked at; and so on down to the file, which must be the opened one, with
 * one hard link. Change times cannot be set by a program.
 */
export function createReachByChecks(clock: Clock): Reach {
  const checks = new PathChecks(clock);
  return async (names, rules) => {
    const path = names.join("/") || ".";
    check(rules, names);
    const real = await realpath(join(rules.root, ...names)).catch(async (error: unknown) => {
      const refusal = fileError("open", path, error);
      return await likePath(names, { path, rules, refusal });
    });
    if (!isWithin(real, rules.root)) throw outsideRoot(path);
    const below = real.slice(rules.root.length).split(sep).filter((part) => part !== "");
    check(rules, below);
    const stat = await lstat(real).catch((error: unknown) => {
      throw fileError("open", path, error);
    });
    if (stat.isDirectory()) return { kind: "folder", folder: new CheckedFolder(below, { rules, checks }) };
    return { kind: "file", file: await checks.openInside(rules, below) };
  };
}

/** Returns the real path of what has the text of these names in other code points. @throws {Error} `refusal` where there is none */
async function likePath(
  names: readonly string[],
  { path, rules, refusal }: { readonly path: string; readonly rules: PathRules; readonly refusal: Error },
): Promise<string> {
  if (!(refusal instanceof ToolError) || refusal.code !== "not_found") throw refusal;
  const like = await findLikeNames(rules.root, names);
  const folder = like && await realpath(join(rules.root, ...like.names.slice(0, -1))).catch(() => "");
  // An error names no file that the rules refuse
  if (like === undefined || !isWithin(folder ?? "", rules.root) || rules.refusal(like.names) !== undefined) {
    throw refusal;
  }
  if (!like.isSame) throw notThere("open", path, like.names.at(-1));
  return await realpath(join(rules.root, ...like.names)).catch(() => {
    throw refusal;
  });
}

/** Looks at the way to a place before and after work there, and tries again while something moves. */
class PathChecks {
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs `work` while nothing moves on the way to `names`; undefined when something did */
  async whileQuiet<T>(
    rules: PathRules,
    names: readonly string[],
    work: (chain: Chain) => Promise<T>,
  ): Promise<{ readonly result: T; readonly same: boolean } | undefined> {
    const before = await lookAt(rules.root, names);
    if (!this.isQuiet(before.folders)) return undefined;
    const result = await work(before);
    const after = await lookAt(rules.root, names).catch(() => undefined);
    return { result, same: after !== undefined && isSame(before, after) };
  }

  async retry<T>(path: string, attempt: () => Promise<{ readonly value: T } | undefined>): Promise<T> {
    for (let i = 0; i < MAX_ATTEMPTS; i++) {
      try {
        const done = await attempt();
        if (done !== undefined) return done.value;
      } catch (error) {
        throw fileError("open", path, error);
      }
      await this.#clock.sleep(RETRY_MS);
    }
    throw new ToolError(
      "path_changed",
      `Cannot open ${shown(path)}: folders on the way to it keep changing, try again`,
    );
  }

  /** Tells whether a change of any folder from now on would show in its change time. */
  isQuiet(folders: readonly BigIntStats[]): boolean {
    const now = this.#clock.now();
    return folders.every((folder) => isQuiet(folder, now));
  }

  openInside(rules: PathRules, names: readonly string[]): Promise<OpenFile> {
    const path = names.join("/");
    return this.retry(path, async () => {
      const opened = await this.whileQuiet(
        rules,
        names,
        (chain) => openEntry(join(rules.root, ...names), chain.entry, path),
      );
      if (opened?.result === undefined) return undefined;
      const { handle, stat } = opened.result;
      if (opened.same && stat.isFile() && stat.nlink === 1n) {
        return { value: openFile(handle, { stat, path, keyRefusal: rules.keyRefusal }) };
      }
      await handle.close();
      if (!opened.same) return undefined;
      throw stat.isFile() ? linkedFile(path) : notAFile(path);
    });
  }
}

class CheckedFolder implements Folder {
  readonly names: readonly string[];
  readonly #rules: PathRules;
  readonly #checks: PathChecks;

  constructor(
    names: readonly string[],
    { rules, checks }: { readonly rules: PathRules; readonly checks: PathChecks },
  ) {
    this.names = names;
    this.#rules = rules;
    this.#checks = checks;
  }

  list(limit: number): Promise<FolderList> {
    return this.#checks.retry(this.#path(), async () => {
      const listed = await this.#checks.whileQuiet(this.#rules, this.names, async ({ entry }) => {
        // By now it may be a link to a folder elsewhere
        if (!entry.isDirectory()) throw notAFolder(this.names.join("/"));
        return await listFolder(await opendir(this.#place()), limit);
      });
      return listed?.same ? { value: listed.result } : undefined;
    });
  }

  async folder(name: string): Promise<Folder> {
    const below = [...this.names, name];
    check(this.#rules, below);
    return new CheckedFolder(below, { rules: this.#rules, checks: this.#checks });
  }

  async file(name: string): Promise<OpenFile> {
    const below = [...this.names, name];
    check(this.#rules, below);
    return await this.#checks.openInside(this.#rules, below);
  }

  place(name: string): string {
    return join(this.#place(), name);
  }

  prove<T>(work: () => Promise<T>, undo: (result: T) => Promise<void>): Promise<T> {
    const { root } = this.#rules;
    return this.#checks.retry(this.#path(), async () => {
      // `work` changes the folder itself. The folder is still in its place when no folder above it has changed
      const before = await lookAt(root, this.names);
      if (!before.entry.isDirectory()) throw notAFolder(this.names.join("/"));
      const above = ({ folders, entry }: Chain): Chain => ({ folders: folders.slice(0, -1), entry });
      if (!this.#checks.isQuiet(above(before).folders)) return undefined;
      const value = await work();
      const after = await lookAt(root, this.names).catch(() => undefined);
      if (after?.entry.isDirectory() && isSame(above(before), above(after))) return { value };
      await undo(value);
      return undefined;
    });
  }

  async close(): Promise<void> {}

  #place(): string {
    return join(this.#rules.root, ...this.names);
  }

  #path(): string {
    return this.names.join("/") || ".";
  }
}

interface Chain {
  readonly folders: readonly BigIntStats[];
  readonly entry: BigIntStats;
}

/** The root, each folder on the way, and what lies at the end, none of them through a link. */
async function lookAt(root: string, names: readonly string[]): Promise<Chain> {
  const folders: BigIntStats[] = [];
  let place = root;
  let entry = await lstat(place, { bigint: true });
  for (const name of names) {
    if (!entry.isDirectory()) throw Object.assign(new Error("Not a folder"), { code: "ENOTDIR" });
    folders.push(entry);
    place = join(place, name);
    entry = await lstat(place, { bigint: true });
  }
  if (entry.isDirectory()) folders.push(entry);
  return { folders, entry };
}

/** Tells whether a change from now on would show in the folder's change time. */
function isQuiet({ ctimeNs, ctimeMs }: BigIntStats, now: number): boolean {
  return now - Number(ctimeMs) >= QUIET_MS + (ctimeNs % SECOND_NS === 0n ? 1000 : 0);
}

function isSame(a: Chain, b: Chain): boolean {
  return a.folders.length === b.folders.length && isSameFile(a.entry, b.entry) &&
    a.folders.every((folder, i) => {
      const other = b.folders[i];
      return other !== undefined && isSameFile(folder, other) && folder.ctimeNs === other.ctimeNs;
    });
}

const isSameFile = (a: BigIntStats, b: BigIntStats) => a.dev === b.dev && a.ino === b.ino;

/** Opens without waiting; undefined when the name leads to another file than `expected` by now. */
async function openEntry(
  place: string,
  expected: BigIntStats,
  path: string,
): Promise<{ handle: FileHandle; stat: BigIntStats } | undefined> {
  // Opening a device or FIFO may already have an effect
  if (!expected.isFile()) throw notAFile(path);
  const handle = await open(place, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  try {
    const stat = await handle.stat({ bigint: true });
    if (isSameFile(stat, expected)) return { handle, stat };
  } catch (error) {
    await handle.close();
    throw error;
  }
  await handle.close();
  return undefined;
}

function check(rules: PathRules, names: readonly string[]): void {
  const refusal = rules.refusal(names);
  if (refusal !== undefined) throw refusal;
}
