import { statSync } from "node:fs";
import { migrations } from "./sqlite/migrations.ts";
import { type MovedTo, movedTo, openReadOnly, ownerOf } from "./sqlite/open_database.ts";
import type { Stored } from "./store.ts";
import { type StoredParsers, type StoredText, type UnreadableFound, UnreadableSearch } from "./unreadable_search.ts";

/** Facts about a database file, read without changing it. */
export interface DatabaseFacts {
  readonly owner: ReturnType<typeof ownerOf>;
  /** Bytes of the file itself, without its log */
  readonly bytes: number;
  /** Number of the last migration it had */
  readonly version: number;
  /** The newest version that this program knows */
  readonly knownVersion: number;
  /** The first thing SQLite's quick check says is wrong; null: it is whole; undefined: too large to be checked in passing */
  readonly damage: string | null | undefined;
  /** Where its records were moved to, when its owner is `moved` */
  readonly moved: MovedTo | undefined;
}

/** Bytes that a quick check reads in half a second. The check reads every page and cannot be stopped */
const MAX_CHECKED_BYTES = 536_870_912;

/**
 * Looks at a database file without writing to it, migrating it or leaving anything beside it. Only for whoever holds the data
 * directory's lock: a file in use is never opened.
 * @param options.maxBytes larger files are not checked for damage. Default 512 MiB
 * @returns undefined where there is no such file
 * @throws {ConfigError} `database_corrupt`: the file is empty beside a full log. {Error} SQLite's, for a file that is no database or
 * cannot be read
 */
export function inspectDatabase(
  path: string,
  { maxBytes = MAX_CHECKED_BYTES }: { readonly maxBytes?: number } = {},
): DatabaseFacts | undefined {
  const bytes = statSync(path, { throwIfNoEntry: false })?.size;
  if (bytes === undefined) return undefined;
  const database = openReadOnly(path);
  try {
    const version = Number(database.prepare("PRAGMA user_version").get()?.["user_version"]);
    const check = () => String(database.prepare("PRAGMA quick_check(1)").get()?.["quick_check"]);
    const said = bytes > maxBytes ? undefined : check();
    const owner = ownerOf(database);
    return {
      owner,
      moved: owner === "moved" ? movedTo(database) : undefined,
      bytes,
      version,
      knownVersion: migrations.at(-1)?.version ?? 0,
      damage: said === "ok" ? null : said,
    };
  } finally {
    database.close();
  }
}

/**
 * Reads one record of a database file, and changes nothing. Only for whoever holds the data directory's lock.
 * @throws {Error} SQLite's, for a file that cannot be read
 */
export function readStored(path: string, collection: string, key: string): Stored | undefined {
  const database = openReadOnly(path);
  try {
    const row = database.prepare("SELECT version, body FROM records WHERE collection = ? AND key = ?").get(
      collection,
      key,
    );
    return row === undefined ? undefined : { key, version: Number(row["version"]), body: parseBody(row["body"]) };
  } finally {
    database.close();
  }
}

/**
 * Parses every record of a database file, and changes nothing. Only for whoever holds the data directory's lock.
 * @param isOver asked before each record: true ends the search early
 * @throws {Error} SQLite's, for a file that cannot be read
 */
export function findUnreadable(path: string, parsers: StoredParsers, isOver: () => boolean): UnreadableFound {
  const database = openReadOnly(path);
  const search = new UnreadableSearch(parsers, isOver);
  // As bytes: SQLite's texts may be no UTF-8, and would be read with other characters in the place of what is damaged
  const rows = function* (kind: StoredText["kind"], columns: string): Generator<StoredText> {
    for (const { name, key, body } of database.prepare(`SELECT CAST(body AS BLOB) AS body, ${columns}`).iterate()) {
      yield { kind, name: String(name), key: String(key), body: textOf(body) };
    }
  };
  try {
    const finished = search.look(rows("collections", "collection AS name, key FROM records ORDER BY id")) &&
      search.look(rows("streams", "stream AS name, seq AS key FROM stream_records"));
    return search.found(finished);
  } finally {
    database.close();
  }
}

function parseBody(body: unknown): unknown {
  try {
    return JSON.parse(String(body));
  } catch {
    return undefined;
  }
}

function textOf(body: unknown): string | undefined {
  try {
    // CAST(... AS BLOB) gives bytes; of anything else this throws
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body as Uint8Array);
  } catch {
    return undefined;
  }
}
