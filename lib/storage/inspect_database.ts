import { statSync } from "node:fs";
import { type ParseRecord, reasonOf } from "./read_records.ts";
import { migrations } from "./sqlite/migrations.ts";
import { type MovedTo, movedTo, openReadOnly, ownerOf } from "./sqlite/open_database.ts";
import type { UnreadableRecord } from "./store.ts";

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

/** Parsers of everything that a database holds. */
export interface StoredParsers {
  /** By collection. A record of another collection need only be JSON */
  readonly collections: Readonly<Record<string, ParseRecord<unknown>>>;
  /** By the part of a stream's name before the slash */
  readonly streams: Readonly<Record<string, ParseRecord<unknown>>>;
}

/** Records that were found unreadable, and whether all records were looked at. */
export interface UnreadableFound {
  readonly unreadable: readonly UnreadableRecord[];
  readonly looked: number;
  readonly finished: boolean;
}

/** Damaged records that are named at once. */
const MAX_FOUND = 1_000;

/**
 * Parses every record of a database file, and changes nothing. Only for whoever holds the data directory's lock.
 * @param isOver asked before each record: true ends the search early
 * @throws {Error} SQLite's, for a file that cannot be read
 */
export function findUnreadable(path: string, parsers: StoredParsers, isOver: () => boolean): UnreadableFound {
  const database = openReadOnly(path);
  const unreadable: UnreadableRecord[] = [];
  let looked = 0;
  const look = (
    rows: Iterable<Record<string, unknown>>,
    parserOf: (collection: string) => ParseRecord<unknown> | undefined,
  ): boolean => {
    for (const { collection, key, body } of rows) {
      if (isOver() || unreadable.length >= MAX_FOUND) return false;
      looked++;
      const reason = whyUnreadable(String(body), parserOf(String(collection)));
      if (reason !== undefined) unreadable.push({ collection: String(collection), key: String(key), reason });
    }
    return true;
  };
  try {
    const records = database.prepare("SELECT collection, key, body FROM records ORDER BY id").iterate();
    const entries = database.prepare("SELECT stream AS collection, seq AS key, body FROM stream_records").iterate();
    const finished = look(records, (name) => ownOf(parsers.collections, name)) &&
      look(entries, (name) => ownOf(parsers.streams, name.split("/", 1)[0] ?? ""));
    return { unreadable, looked, finished };
  } finally {
    database.close();
  }
}

/** Returns the parser of this name, and none that every object has, as "constructor". */
function ownOf(parsers: Readonly<Record<string, ParseRecord<unknown>>>, name: string) {
  return Object.hasOwn(parsers, name) ? parsers[name] : undefined;
}

function whyUnreadable(json: string, parse: ParseRecord<unknown> | undefined): string | undefined {
  let body: unknown;
  try {
    body = JSON.parse(json);
    parse?.(body);
    return undefined;
  } catch (error) {
    return reasonOf(body, error);
  }
}
