import { lstat, opendir, realpath } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { isAscii, toAscii } from "../../base/text.ts";

/** Name that is in a folder in place of one that is not there. */
export interface LikeName {
  readonly name: string;
  /** True: the same text in other code points (NFC). False: it looks alike, as with U+202F for a blank */
  readonly isSame: boolean;
}

/** Entries of a folder that are compared with a name that is not there. */
export const MAX_COMPARED = 10_000;

/**
 * Returns the only entry of a folder that has the text of a name in other code points, or else the only one that looks like it. Undefined
 * where there is none, or several.
 * @param list called for names alone that `mayHaveLike`
 */
export async function findLikeName(
  name: string,
  list: () =>
    | AsyncIterable<{ readonly name: string }>
    | Iterable<{ readonly name: string }>
    | Promise<
      AsyncIterable<{ readonly name: string }> | Iterable<{ readonly name: string }>
    >,
): Promise<LikeName | undefined> {
  if (!mayHaveLike(name)) return undefined;
  const [composed, plain] = [name.normalize("NFC"), toAscii(name.normalize("NFC"))];
  const same: string[] = [];
  const alike: string[] = [];
  let seen = 0;
  for await (const entry of await list()) {
    if (++seen > MAX_COMPARED) return undefined;
    const text = entry.name.normalize("NFC");
    if (text === composed) same.push(entry.name);
    else if (toAscii(text) === plain) alike.push(entry.name);
  }
  const [found, another] = same.length > 0 ? same : alike;
  return found === undefined || another !== undefined ? undefined : { name: found, isSame: same.length > 0 };
}

/** Tells whether a name has blanks, quotes or characters beyond ASCII. Most that are looked for and not there have none. */
export function mayHaveLike(name: string): boolean {
  return !/^[!#-&(-~]*$/.test(name);
}

/**
 * Goes down to names of which one is not there by such entries, up to the first that only looks alike.
 * @param folder absolute path
 * @returns names below the folder. Undefined where one of them is not there and has no such entry
 */
export async function findLikeNames(
  folder: string,
  names: readonly string[],
): Promise<{ readonly names: readonly string[]; readonly isSame: boolean } | undefined> {
  const found: string[] = [];
  for (const name of names) {
    const place = join(folder, ...found);
    const isThere = await lstat(join(place, name)).then(() => true, () => false);
    const like = isThere
      ? { name, isSame: true }
      : await findLikeName(name, () => opendir(place)).catch(() => undefined);
    if (like === undefined) return undefined;
    found.push(like.name);
    if (!like.isSame) return { names: found, isSame: false };
  }
  return { names: found, isSame: true };
}

/** Returns the real path of what lies at an absolute path, its names in whichever code points. @throws as `realpath` */
export async function realLikePath(path: string): Promise<string> {
  return await realpath(path).catch(async (error: unknown) => {
    const folder = dirname(path);
    if (folder === path || isAscii(path)) throw error;
    const place = await realLikePath(folder);
    const like = await findLikeNames(place, [basename(path)]);
    if (like?.isSame !== true) throw error;
    return await realpath(join(place, ...like.names));
  });
}
