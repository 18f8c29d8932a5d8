import { statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { type ParseRecord, reasonOf } from "./read_records.ts";
import type { UnreadableRecord } from "./unreadable_records.ts";

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

/** More need not be named at once. */
const MAX_FOUND = 1_000;

/**
 * Parses every record of a database file, and changes nothing. Only for whoever holds the data directory's lock.
 * @param isOver asked before each record: true ends the search early
 * @throws {Error} SQLite's, for a file that cannot be read
 */
export function findUnreadable(path: string, parsers: StoredParsers, isOver: () => boolean): UnreadableFound {
  const address = pathToFileURL(path);
  const hasLog = (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0;
  if (!hasLog) address.searchParams.set("immutable", "1");
  const database = new DatabaseSync(address, { readOnly: true });
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
