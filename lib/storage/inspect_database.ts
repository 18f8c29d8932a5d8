import { statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { migrations } from "./migrations/migrations.ts";
import { ownerOf } from "./sqlite/open_database.ts";

/** What a database file looks like from outside. */
export interface DatabaseFacts {
  readonly owner: ReturnType<typeof ownerOf>;
  /** Of the file itself, without its log. Bytes */
  readonly bytes: number;
  /** Number of the last migration it had */
  readonly version: number;
  /** The newest version that this program knows */
  readonly knownVersion: number;
  /** The first thing SQLite's quick check says is wrong; null: it is whole; undefined: too large to be checked in passing */
  readonly damage: string | null | undefined;
}

/** Half a second of reading: a quick check reads every page, and nothing can stop it */
const MAX_CHECKED_BYTES = 536_870_912;

/**
 * Looks at a database file without writing to it, migrating it or leaving anything beside it. Only for whoever holds the data
 * directory's lock: a file in use is never opened.
 * @param options.maxBytes larger files are not checked for damage. Default 512 MiB
 * @returns undefined where there is no such file
 * @throws {Error} SQLite's, for a file that is no database or cannot be read
 */
export function inspectDatabase(
  path: string,
  { maxBytes = MAX_CHECKED_BYTES }: { readonly maxBytes?: number } = {},
): DatabaseFacts | undefined {
  const bytes = sizeOf(path);
  if (bytes === undefined) return undefined;
  const address = pathToFileURL(path);
  // A log that a killed gateway left holds its last records; without one, SQLite need not make any
  if ((sizeOf(`${path}-wal`) ?? 0) === 0) address.searchParams.set("immutable", "1");
  const database = new DatabaseSync(address, { readOnly: true });
  try {
    const version = Number(database.prepare("PRAGMA user_version").get()?.["user_version"]);
    const check = () => String(database.prepare("PRAGMA quick_check(1)").get()?.["quick_check"]);
    const said = bytes > maxBytes ? undefined : check();
    return {
      owner: ownerOf(database),
      bytes,
      version,
      knownVersion: migrations.at(-1)?.version ?? 0,
      damage: said === "ok" ? null : said,
    };
  } finally {
    database.close();
  }
}

function sizeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.size;
}
