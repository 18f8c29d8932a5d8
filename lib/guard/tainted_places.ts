import { hash } from "node:crypto";
import { basename, dirname, join, relative, sep } from "node:path";
import { neverAborted } from "../base/cancel.ts";
import { fileState } from "../system/files/file_state.ts";
import { realLikePath } from "../system/files/like_name.ts";
import { nameIdentity } from "../system/process/surveys.ts";

/** Files of one command that are marked one by one */
export const MAX_MARKED_AT_ONCE = 500;
const NOTHING = hash("sha256", "");

/** Real path of a file, and what lies there. */
export interface FilePlace {
  readonly path: string;
  readonly identity: string;
}

/** Returns the real path and the identity of what lies at a path. Undefined where nothing can be seen. */
export async function filePlaceOf(path: string): Promise<FilePlace | undefined> {
  try {
    const real = await realLikePath(path);
    return { path: real, identity: nameIdentity(real) };
  } catch {
    return undefined;
  }
}

/** Returns the real path of a file that may not be there yet. */
export async function newPlaceOf(path: string): Promise<string> {
  try {
    return await realLikePath(path);
  } catch {
    const folder = dirname(path);
    return folder === path ? path : join(await newPlaceOf(folder), basename(path));
  }
}

/** Returns the digest of a file's content. Undefined for what is no file, and for an empty one, which is as any other. */
export async function contentOf(path: string): Promise<string | undefined> {
  const { kind, sha256 } = await fileState(path, neverAborted());
  return kind === "file" && sha256 !== null && sha256 !== NOTHING ? sha256 : undefined;
}

/**
 * Returns the places to mark for many files. While there are more than MAX_MARKED_AT_ONCE, the folder below the root that holds most of
 * them stands for its files.
 * @returns each place, and whether it is a folder that stands for names which are not plain
 */
export function foldedPaths(paths: readonly string[], root: string): ReadonlyMap<string, boolean> {
  const isFolded = (files: readonly string[]) => files.some((path) => path === root || !isPlain(path, root));
  if (paths.length <= MAX_MARKED_AT_ONCE) return new Map(paths.map((path) => [path, path === root]));
  const byFolder = Map.groupBy(paths, (path) => {
    const [first = "", ...below] = relative(root, path).split(sep);
    return below.length === 0 ? path : join(root, first);
  });
  const groups = [...byFolder].sort(([, one], [, other]) => other.length - one.length);
  let count = paths.length;
  const places = new Map<string, boolean>();
  for (const [folder, files] of groups) {
    if (count <= MAX_MARKED_AT_ONCE) { for (const path of files) places.set(path, path === root); }
    else places.set(folder, isFolded(files));
    if (count > MAX_MARKED_AT_ONCE) count -= files.length - 1;
  }
  return places.size <= MAX_MARKED_AT_ONCE ? places : new Map([[root, isFolded(paths)]]);
}

const PLAIN_NAME = /^[A-Za-z0-9._-]{1,64}$/;

/** Tells whether each name of a path below the root is too short and plain to be text for a model. */
export function isPlain(path: string, root: string): boolean {
  return relative(root, path).split(sep).every((name) => name === "" || PLAIN_NAME.test(name));
}
