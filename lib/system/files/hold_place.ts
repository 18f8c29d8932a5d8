import type { BigIntStats } from "node:fs";
import { lstat, mkdir, rmdir } from "node:fs/promises";
import { systemCodeOf, ToolError } from "../../base/errors.ts";
import { fileError, linkedFile, notAFile, notAFolder } from "./file_error.ts";
import { findLikeName, type LikeName, MAX_COMPARED, mayHaveLike } from "./like_name.ts";
import { parsePath, shown } from "./parse_path.ts";
import type { PathRules } from "./path_rules.ts";
import type { Folder, Reach } from "./reach.ts";

/** Where a file is or will be: its folder is held, so that what is looked at is what is changed. Close it. */
export interface HeldPlace {
  /** The nearest folder there is */
  readonly folder: Folder;
  /** Folders that have to be made in it, one in the other */
  readonly missing: readonly string[];
  readonly name: string;
  /** Real path relative to the root */
  readonly path: string;
  /** Name in the folder that looks like `name`, where nothing has that name */
  readonly like: string | undefined;
}

/** Folders that a change opened, to be closed in the end, and made, in the order they were made. */
export interface OpenedFolders {
  readonly folders: Folder[];
  readonly made: { readonly parent: Folder; readonly name: string }[];
}

/**
 * Goes to the folder of a file that is about to be changed; the file itself is not followed when it is a link.
 * @throws {ToolError} as Files.inspect
 */
export async function holdPlace(path: string, { reach, rules }: {
  readonly reach: Reach;
  readonly rules: PathRules;
}): Promise<HeldPlace> {
  const { names, folder: endsAsFolder } = parsePath(path, "write");
  const name = names.at(-1);
  if (name === undefined || endsAsFolder) throw notAFile(path, "write");
  for (let known = names.length - 1;; known--) {
    const reached = await reach(names.slice(0, known), rules).catch((error: unknown) => {
      if (known > 0 && error instanceof ToolError && error.code === "not_found") return undefined;
      throw error;
    });
    if (reached === undefined) continue;
    if (reached.kind === "file") {
      await reached.file.close();
      throw notAFolder(names.slice(0, known).join("/"), "write below");
    }
    const { folder } = reached;
    const missing = names.slice(known, -1);
    const found = missing.length > 0 ? undefined : await likeNameIn(folder, name);
    const refused = found === undefined ? undefined : rules.refusal([...folder.names, found.name]);
    // An error names no file that the rules refuse
    const like = refused === undefined ? found : undefined;
    const meant = like?.isSame ? like.name : name;
    const real = [...folder.names, ...missing, meant];
    const refusal = rules.refusal(real);
    if (refusal === undefined) {
      return { folder, missing, name: meant, path: real.join("/"), like: like?.isSame ? undefined : like?.name };
    }
    await folder.close();
    throw refusal;
  }
}

/** Returns what a folder has in place of a name that is not there. */
async function likeNameIn(folder: Folder, name: string): Promise<LikeName | undefined> {
  const isThere = !mayHaveLike(name) || await lstat(folder.place(name)).then(() => true, () => false);
  if (isThere) return undefined;
  return await findLikeName(name, async () => {
    const { files, folders, truncated } = await folder.list(MAX_COMPARED);
    return truncated ? [] : [...files, ...folders].map((entry) => ({ name: entry }));
  }).catch(() => undefined);
}

/**
 * Returns the state of the file at a held place without following a link. Undefined when there is none.
 * @throws {ToolError} for what may not be replaced
 */
export async function lookAtPlace({ folder, missing, name, path }: HeldPlace): Promise<BigIntStats | undefined> {
  if (missing.length > 0) return undefined;
  const stat = await statOf(folder, name, path);
  if (stat === undefined) return undefined;
  if (stat.isSymbolicLink()) {
    throw new ToolError(
      "symbolic_link",
      `Cannot write ${shown(path)}: it is a symbolic link, give the path of the file it leads to`,
    );
  }
  if (!stat.isFile()) throw notAFile(path, "write");
  if (stat.nlink !== 1n) throw linkedFile(path, "write");
  if ((stat.mode & 0o222n) === 0n) throw new ToolError("access_denied", `Cannot write ${shown(path)}: it is read-only`);
  return stat;
}

/** Looks at an entry of a folder without following a link. @returns undefined when there is none */
export async function statOf(folder: Folder, name: string, path: string): Promise<BigIntStats | undefined> {
  try {
    return await folder.prove(
      () =>
        lstat(folder.place(name), { bigint: true }).catch((error: unknown) => {
          if (systemCodeOf(error) === "ENOENT") return undefined;
          throw error;
        }),
      async () => {},
    );
  } catch (error) {
    throw fileError("write", path, error);
  }
}

/**
 * Makes the missing folders of a place.
 * @param opened gets every folder that is opened or made, also when a later one fails
 * @returns the folder of the file
 */
export async function makeMissing({ folder, missing, path }: HeldPlace, opened: OpenedFolders): Promise<Folder> {
  let parent = folder;
  for (const name of missing) {
    const inside = parent;
    try {
      const isNew = await inside.prove(
        () =>
          mkdir(inside.place(name)).then(() => true, (error: unknown) => {
            if (systemCodeOf(error) === "EEXIST") return false;
            throw error;
          }),
        async (done) => {
          if (done) await rmdir(inside.place(name)).catch(() => {});
        },
      );
      if (isNew) opened.made.push({ parent: inside, name });
      parent = await inside.folder(name);
      opened.folders.push(parent);
    } catch (error) {
      throw fileError("write", path, error);
    }
  }
  return parent;
}
