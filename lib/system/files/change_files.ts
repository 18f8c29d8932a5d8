import type { BigIntStats } from "node:fs";
import { rename, rmdir } from "node:fs/promises";
import { cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import type { TemporaryNames } from "../../base/durable_files.ts";
import { fileError } from "./file_error.ts";
import type { FileChange, Files, FileScope } from "./files.ts";
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

export interface FileChangesOptions {
  readonly reach: Reach;
  readonly rulesOf: (scope: FileScope) => Promise<PathRules>;
  readonly names: TemporaryNames;
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

/** The writing half of `Files`. Changes are made one after the other, so that none is lost to another of this process. */
export function createFileChanges(options: FileChangesOptions): Pick<Files, "inspect" | "change"> {
  const { names } = options;
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const mine = last.then(work);
    last = mine.catch(() => {});
    return mine;
  };

  const inspect: Files["inspect"] = async (path, scope, { maxBytes }) => {
    const rules = await options.rulesOf(scope);
    const place = await holdPlace(path, { reach: options.reach, rules });
    try {
      const stat = await lookAtPlace(place);
      if (stat === undefined) return { path: place.path, file: undefined };
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
  };

  /** Goes to a place, makes its folders and clears what a crash left there. */
  const prepare = async (change: FileChange, rules: PathRules, opened: OpenedFolders): Promise<HeldPlace> => {
    const held = await holdPlace(change.path, { reach: options.reach, rules });
    opened.folders.push(held.folder);
    const folder = await makeMissing(held, opened);
    await removeLeftovers(folder, names);
    return { ...held, folder, missing: [] };
  };

  /** Everything that can fail for want of space or permission happens here, before the first file changes. */
  const stage = async (change: FileChange, place: HeldPlace, withBackup: boolean): Promise<Step> => {
    const { folder, path } = place;
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
  };

  const make = async ({ place, before, staged, backup }: Step): Promise<Done> => {
    const { folder, name, path } = place;
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
  };

  const change: Files["change"] = async (changes, scope, { signal }) => {
    const rules = await options.rulesOf(scope);
    const opened: OpenedFolders = { folders: [], made: [] };
    const steps: Step[] = [];
    const done: Done[] = [];
    let failure: unknown;
    let path = "";
    try {
      const places: HeldPlace[] = [];
      for (const one of changes) {
        path = one.path;
        places.push(await prepare(one, rules, opened));
      }
      for (const [i, one] of changes.entries()) {
        path = one.path;
        steps.push(await stage(one, places[i] as HeldPlace, changes.length > 1)); // One place for each change
      }
      if (signal.aborted) throw cancelError(signal);
      for (const step of steps) {
        path = step.place.path;
        done.push(await make(step));
      }
      for (const folder of opened.folders) await syncNames(folder);
    } catch (error) {
      failure = fileError("write", path, error);
      const kept = await undoAll(done);
      if (kept.length > 0) failure = partlyWritten(failure, kept);
    }
    for (const { place, staged, backup } of steps) {
      for (const { name } of [staged, backup].filter((file) => file !== undefined)) {
        await removeTemporary(place.folder, name);
      }
    }
    if (failure === undefined) { for (const { forget } of done) await forget(); }
    else for (const { parent, name } of opened.made.toReversed()) await rmdir(parent.place(name)).catch(() => {});
    for (const folder of opened.folders) await folder.close();
    if (failure !== undefined) throw failure;
  };

  return { inspect, change: (changes, scope, more) => inTurn(() => change(changes, scope, more)) };
}

/** Takes changes back, the last one first. @returns paths of those that could not be */
async function undoAll(done: readonly Done[]): Promise<readonly string[]> {
  const kept: string[] = [];
  for (const { path, undo } of done.toReversed()) await undo().catch(() => void kept.push(path));
  return kept;
}

function partlyWritten(failure: unknown, kept: readonly string[]): ToolError {
  const cause = failure instanceof Error ? failure.message : String(failure);
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
