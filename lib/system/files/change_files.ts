import { type BigIntStats, constants } from "node:fs";
import { open, rename, rmdir } from "node:fs/promises";
import { resolve } from "node:path";
import { CancelError, cancelError } from "../../base/cancel.ts";
import { messageOf, ToolError } from "../../base/errors.ts";
import type { TemporaryNames } from "../../base/durable_files.ts";
import { fileError } from "./file_error.ts";
import type { FileChange, FileGuard, FileLocks, Files, FileScope } from "./files.ts";
import { type HeldPlace, holdPlace, lookAtPlace, makeMissing, type OpenedFolders, statOf } from "./hold_place.ts";
import { shown } from "./parse_path.ts";
import type { PathRules } from "./path_rules.ts";
import { holdsPrivateKey } from "./sensitive_files.ts";
import type { Reach } from "./reach.ts";
import {
  changed,
  isSameFile,
  putNew,
  readExpected,
  removeLeftovers,
  removeTemporary,
  type StagedFile,
  stageFile,
  syncNames,
  takeAway,
} from "./stage_file.ts";

/** Services that changing files needs. */
export interface FileChangesOptions {
  readonly reach: Reach;
  readonly rulesOf: (scope: FileScope) => Promise<PathRules>;
  readonly names: TemporaryNames;
  /** Locks of files that other gateways change too. Default: none do */
  readonly locks?: FileLocks | undefined;
}

/** Change that is ready to be made. */
interface Step {
  readonly place: HeldPlace;
  readonly before: BigIntStats | undefined;
  /** undefined: the file is removed */
  readonly staged: StagedFile | undefined;
  /** A copy of what is replaced, for the way back */
  readonly backup: StagedFile | undefined;
}

/** Undoes one change that was made, and forgets what was kept for that. */
interface Done {
  readonly path: string;
  undo(): Promise<void>;
  forget(): Promise<void>;
}

/** Creates the writing half of `Files`. Changes are made one after the other, so that none is lost to another of this process. */
export function createFileChanges(options: FileChangesOptions): Pick<Files, "inspect" | "change"> {
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = (work: () => Promise<void>) => {
    const mine = last.then(work);
    last = mine.catch(() => {});
    return mine;
  };
  const { locks } = options;
  return {
    inspect: async (path, scope, { maxBytes }) =>
      await inspectFile(path, await options.rulesOf(scope), { reach: options.reach, maxBytes }),
    async change(changes, scope, { signal }) {
      const set = async () => new ChangeSet(await options.rulesOf(scope), options);
      const { workspaceRoot, allowedRoot } = scope;
      const paths = changes.map(({ path }) => resolve(workspaceRoot, allowedRoot, path));
      const locked: Turn = (work) =>
        locks === undefined ? work(undefined) : locks.hold(paths, { workspaceRoot, signal }, work);
      const isSlow = changes.some((change) => change.kind === "write" && typeof change.content === "function");
      if (isSlow) return await (await set()).make(changes, signal, (work) => inTurn(() => locked(work)));
      await inTurn(() => locked(async (guard) => await (await set()).make(changes, signal, (work) => work(guard))));
    },
  };
}

/** Does a piece of work when it may be done. The guard is undefined for a gateway alone. */
type Turn = (work: (guard: FileGuard | undefined) => Promise<void>) => Promise<void>;

async function inspectFile(
  path: string,
  rules: PathRules,
  { reach, maxBytes }: { readonly reach: Reach; readonly maxBytes: number | undefined },
): ReturnType<Files["inspect"]> {
  const place = await holdPlace(path, { reach, rules });
  try {
    const stat = await lookAtPlace(place);
    if (stat === undefined) return { path: place.path, file: undefined, like: place.like };
    if (maxBytes !== undefined && stat.size > BigInt(maxBytes)) {
      throw new ToolError(
        "file_too_large",
        `Cannot change ${shown(path)}: it has ${stat.size} bytes, more than the ${maxBytes} that can be changed`,
      );
    }
    const content = maxBytes === undefined ? undefined : await readExpected(place.folder, place.name, stat);
    if (content !== undefined && rules.keyRefusal !== undefined && holdsPrivateKey(content)) {
      throw rules.keyRefusal(path);
    }
    return {
      path: place.path,
      file: { size: Number(stat.size), mode: Number(stat.mode & 0o777n), version: versionOf(stat), content },
    };
  } catch (error) {
    throw fileError("write", path, error);
  } finally {
    await place.folder.close();
  }
}

/** Changes of several files that are made together, with what was opened, staged and done for them so far. */
class ChangeSet {
  readonly #rules: PathRules;
  readonly #reach: Reach;
  readonly #names: TemporaryNames;
  readonly #opened: OpenedFolders = { folders: [], made: [] };
  readonly #steps: Step[] = [];
  readonly #done: Done[] = [];
  /** Path of the file at work, which an error names */
  #path = "";

  constructor(rules: PathRules, { reach, names }: FileChangesOptions) {
    this.#rules = rules;
    this.#reach = reach;
    this.#names = names;
  }

  /**
   * Makes all changes or none. Everything is staged at once; what changes a file is done in its turn.
   * @throws {ToolError}; what a source throws
   * @throws {CancelError} when the signal aborts before the first change
   */
  async make(changes: readonly FileChange[], signal: AbortSignal, turn: Turn): Promise<void> {
    let failure: unknown;
    try {
      await this.#stageAll(changes);
      await turn(async (guard) => {
        if (signal.aborted) throw cancelError(signal);
        for (const step of this.#steps) {
          this.#path = step.place.path;
          await guard?.mayChange();
          if (guard?.isShared === true) await askServer(step.place);
          this.#done.push(await this.#makeOne(step));
        }
        for (const folder of this.#opened.folders) await syncNames(folder);
      });
    } catch (error) {
      failure = fileError("write", this.#path, error);
      // A gateway that may not act any more takes nothing back: others may have gone on from here
      const kept = error instanceof CancelError ? [] : await undoAll(this.#done);
      if (kept.length > 0) failure = partlyWritten(failure, kept);
    }
    await this.#cleanUp({ failed: failure !== undefined });
    if (failure !== undefined) throw failure;
  }

  /** Everything that can fail for want of space or permission happens here, before the first file changes. */
  async #stageAll(changes: readonly FileChange[]): Promise<void> {
    const places: HeldPlace[] = [];
    for (const one of changes) {
      this.#path = one.path;
      places.push(await this.#prepare(one));
    }
    for (const [i, one] of changes.entries()) {
      this.#path = one.path;
      this.#steps.push(await this.#stage(one, places[i] as HeldPlace, changes.length > 1)); // One place for each change
    }
  }

  /** Goes to a place, makes its folders and clears what a crash left there. */
  async #prepare({ path }: FileChange): Promise<HeldPlace> {
    const held = await holdPlace(path, { reach: this.#reach, rules: this.#rules });
    this.#opened.folders.push(held.folder);
    const folder = await makeMissing(held, this.#opened);
    await removeLeftovers(folder, this.#names);
    return { ...held, folder, missing: [] };
  }

  async #stage(change: FileChange, place: HeldPlace, withBackup: boolean): Promise<Step> {
    const { folder, path } = place;
    const names = this.#names;
    const before = await lookAtPlace(place);
    if ((before === undefined ? undefined : versionOf(before)) !== change.expected) throw changed(path);
    if (change.kind === "remove") return { place, before, staged: undefined, backup: undefined };
    const staged = await stageFile(folder, change.content, { path, names, like: before, mode: change.mode });
    if (before === undefined || !withBackup) return { place, before, staged, backup: undefined };
    try {
      const old = await readExpected(folder, place.name, before);
      const backup = await stageFile(folder, old, { path, names, like: before, mode: undefined });
      return { place, before, staged, backup };
    } catch (error) {
      await removeTemporary(folder, staged.name);
      throw error;
    }
  }

  async #makeOne({ place, before, staged, backup }: Step): Promise<Done> {
    const { folder, name, path } = place;
    const names = this.#names;
    const now = await lookAtPlace(place);
    if ((now === undefined ? undefined : versionOf(now)) !== (before === undefined ? undefined : versionOf(before))) {
      throw changed(path);
    }
    if (staged === undefined) {
      if (before === undefined) throw changed(path);
      const away = await takeAway(folder, name, { names, expected: before });
      return { path, undo: () => putNew(folder, away, name), forget: () => removeTemporary(folder, away) };
    }
    if (before === undefined) {
      await putNew(folder, staged.name, name);
      const undo = async () => removeTemporary(folder, await takeAway(folder, name, { names, expected: staged }));
      return { path, undo, forget: async () => {} };
    }
    await rename(folder.place(staged.name), folder.place(name));
    const undo = async () => {
      const current = await statOf(folder, name, path);
      if (backup === undefined || current === undefined || !isSameFile(current, staged)) throw changed(path);
      await rename(folder.place(backup.name), folder.place(name));
    };
    return { path, undo, forget: async () => {} };
  }

  /** Removes temporary files, after a failure also the folders that were made, and closes every folder. */
  async #cleanUp({ failed }: { readonly failed: boolean }): Promise<void> {
    for (const { place, staged, backup } of this.#steps) {
      for (const { name } of [staged, backup].filter((file) => file !== undefined)) {
        await removeTemporary(place.folder, name);
      }
    }
    const { folders, made } = this.#opened;
    if (!failed) { for (const { forget } of this.#done) await forget(); }
    else for (const { parent, name } of made.toReversed()) await rmdir(parent.place(name)).catch(() => {});
    for (const folder of folders) await folder.close();
  }
}

/** Opens a file for a moment: a network file system then asks its server what the file is now. */
async function askServer({ folder, name }: HeldPlace): Promise<void> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  await open(folder.place(name), flags).then((file) => file.close(), () => {});
}

/** Takes changes back, the last one first. @returns paths of those that could not be */
async function undoAll(done: readonly Done[]): Promise<readonly string[]> {
  const kept: string[] = [];
  for (const { path, undo } of done.toReversed()) await undo().catch(() => void kept.push(path));
  return kept;
}

function partlyWritten(failure: unknown, kept: readonly string[]): ToolError {
  const cause = messageOf(failure);
  return new ToolError(
    "partly_written",
    `${cause}; taking back failed too, so these stay changed: ${kept.map(shown)}`,
    {
      cause: failure,
    },
  );
}

function versionOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(":");
}
