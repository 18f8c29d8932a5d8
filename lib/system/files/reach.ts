import type { Dirent } from "node:fs";
import type { OpenFile } from "./files.ts";
import type { PathRules } from "./path_rules.ts";

/** Where a path leads after every check: the two variants of `Files` differ in how they get there. */
export type Reached = { readonly kind: "file"; readonly file: OpenFile } | {
  readonly kind: "folder";
  readonly folder: Folder;
};

/** A checked folder; close it. */
export interface Folder {
  /** Real names of the folders from the root down to this one. */
  readonly names: readonly string[];
  /** At most `limit` entries, in no order */
  list(limit: number): Promise<FolderList>;
  /** A folder directly in it, not through a link. @throws {ToolError} */
  folder(name: string): Promise<Folder>;
  /** A file that its list has, not through a link. @throws {ToolError} */
  file(name: string): Promise<OpenFile>;
  /** Path of an entry for a system call; where there are no handles it may lead elsewhere by then, see `prove` */
  place(name: string): string;
  /**
   * Runs `work` and vouches that all its places were in this very folder. Work that cannot be vouched for is undone and tried
   * again.
   */
  prove<T>(work: () => Promise<T>, undo: (result: T) => Promise<void>): Promise<T>;
  close(): Promise<void>;
}

/** Names of the entries of a folder, in no order. */
export interface FolderList {
  readonly folders: readonly string[];
  readonly files: readonly string[];
  /** Links and special files */
  readonly others: readonly string[];
  /** There were more than `limit` entries */
  readonly truncated: boolean;
}

/** Goes from the root to `names`. @throws {ToolError} */
export type Reach = (names: readonly string[], rules: PathRules) => Promise<Reached>;

/** Takes at most `limit` entries of a folder, which ends the loop over them. */
export async function listFolder(
  entries: AsyncIterable<Dirent> | Iterable<Dirent>,
  limit: number,
): Promise<FolderList> {
  const folders: string[] = [];
  const files: string[] = [];
  const others: string[] = [];
  let seen = 0;
  let truncated = false;
  for await (const entry of entries) {
    if (++seen > limit) {
      truncated = true;
      break;
    }
    if (entry.isDirectory()) folders.push(entry.name);
    else if (entry.isFile()) files.push(entry.name);
    else others.push(entry.name);
  }
  return { folders, files, others, truncated };
}
