import { Buffer } from "node:buffer";
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { ConfigError, messageOf } from "../base/errors.ts";
import { syncFoldersSync } from "../base/durable_files.ts";
import { NEXT_KEY } from "./key_file.ts";
import { openReadOnly, ownerOf, refuseLostRecords } from "./sqlite/open_database.ts";

/** Name of the database in a data directory. */
export const DATABASE_NAME = "postern.db";
/** Keys that a backup holds beside the records, without which some of them cannot be opened. */
const KEPT_KEYS = ["agents_ipc.key", "browser_cookies.key"] as const;
/** Files of a data directory that a backup holds: keys, and those that take their places while records are re-encrypted. */
export const KEPT_FILES: readonly string[] = [...KEPT_KEYS, ...KEPT_KEYS.map((name) => `${name}${NEXT_KEY}`)];

/** Facts about a backup: its place and size, and what it holds. */
export interface BackupFacts {
  readonly path: string;
  readonly bytes: number;
  readonly records: number;
  /** Names of the keys in it */
  readonly keys: readonly string[];
  /** Names of the further parts in it */
  readonly parts: readonly string[];
}

/** Part of a backup beside the records and the keys. */
export interface BackupPart {
  readonly name: string;
  readonly content: Uint8Array;
}

/** Options of `backUp`. */
export interface BackupOptions {
  /** False: the caller holds the data directory's lock */
  readonly isInUse: boolean;
  /** Returns the further parts that the records need. @param bodiesOf returns the bodies of a collection, as the backup has them */
  readonly parts: (bodiesOf: (collection: string) => readonly unknown[]) => AsyncIterable<BackupPart>;
}

/**
 * Writes all records of a data directory, its keys and further parts to one new file, mode 0600: the records are those of one moment,
 * also while a gateway writes. The file appears under its name when it is whole and on the disk. Blocks: call it outside a gateway's process.
 * @throws {ConfigError} `database_unusable`: there is no database, the file exists, or it cannot be written; `database_corrupt`: the
 * database is missing or empty beside a full log
 */
export async function backUp(
  dataDir: string,
  to: string,
  { isInUse, parts }: BackupOptions,
): Promise<BackupFacts> {
  const from = join(dataDir, DATABASE_NAME);
  const unusable = (reason: string, cause?: unknown) =>
    new ConfigError("database_unusable", `Cannot back up "${from}" to "${to}": ${reason}`, { file: to, cause });
  refuseLostRecords(from);
  if (statSync(from, { throwIfNoEntry: false }) === undefined) throw unusable("there is no database yet");
  const found = statSync(to, { throwIfNoEntry: false });
  if (found?.size === 0) {
    throw unusable("the file exists and is empty, as a backup leaves it that was cut off: remove it");
  }
  if (found !== undefined) throw unusable("the file exists, and a backup replaces none");
  const partial = `${to}.partial`;
  const cannot = (error: unknown) => unusable(messageOf(error), error);
  try {
    // VACUUM INTO takes an empty file: made first, so that nobody else can read it at any moment
    closeSync(openSync(partial, "wx", 0o600));
  } catch (error) {
    // The partial file of another backup is never removed: that backup may be at work
    if (statSync(partial, { throwIfNoEntry: false }) === undefined) throw cannot(error);
    throw unusable(`"${partial}" exists: another backup is at work, or was cut off, then remove that file`, error);
  }
  try {
    // The records are those of a moment between the two readings of the keys
    const before = readKeys(dataDir);
    copyDatabase(from, partial, isInUse);
    const keys = joinKeys(before, readKeys(dataDir));
    const facts = await addFiles(partial, keys, parts);
    const file = openSync(partial, "r+");
    fsyncSync(file);
    closeSync(file);
    // Replaces this empty file alone, and none that came meanwhile. A link would do the same, but not on the FAT of a memory stick
    closeSync(openSync(to, "wx", 0o600));
    renameSync(partial, to);
    syncFoldersSync(dirname(to), dirname(to));
    return { ...facts, path: to, bytes: statSync(to).size };
  } catch (error) {
    throw cannot(error);
  } finally {
    // SQLite leaves the journal of a file that the disk had no room for
    for (const left of [partial, `${partial}-journal`]) rmSync(left, { force: true });
  }
}

function copyDatabase(from: string, to: string, isInUse: boolean): void {
  const database = openReadOnly(from, { isInUse });
  try {
    const owner = ownerOf(database);
    if (owner === "moved") {
      throw new Error("its records were moved to PostgreSQL; back that up, or postern storage unmark");
    }
    if (owner !== "postern") throw new Error("it is empty, or the database of another program");
    database.prepare("VACUUM INTO ?").run(to);
  } finally {
    database.close();
  }
}

/** Contents of the files of a key, the older one first. */
type KeyContents = readonly Uint8Array[];

/** Reads the keys of a data directory. */
function readKeys(dataDir: string): ReadonlyMap<string, KeyContents> {
  const read = (name: string): KeyContents => {
    const path = join(dataDir, name);
    return statSync(path, { throwIfNoEntry: false })?.isFile() === true ? [readFileSync(path)] : [];
  };
  return new Map(KEPT_KEYS.map((name) => {
    // The new key first, since it is renamed over the other one: read last, it could be missed under both names
    const next = read(`${name}${NEXT_KEY}`);
    return [name, [...read(name), ...next]];
  }));
}

/**
 * Returns the key files of a backup. Where the key was changed during the copy, nobody knows which one the records have: the backup then has
 * both, as in the middle of the change.
 * @throws {Error} a key that was changed twice: a data directory has no place for three
 */
function joinKeys(
  before: ReadonlyMap<string, KeyContents>,
  after: ReadonlyMap<string, KeyContents>,
): readonly BackupPart[] {
  return KEPT_KEYS.flatMap((name) => {
    const [key, next, ...more] = distinct([...before.get(name) ?? [], ...after.get(name) ?? []]);
    if (more.length > 0) throw new Error(`the key "${name}" was changed twice meanwhile; make the backup again`);
    return [
      ...(key === undefined ? [] : [{ name, content: key }]),
      ...(next === undefined ? [] : [{ name: `${name}${NEXT_KEY}`, content: next }]),
    ];
  });
}

function distinct(contents: KeyContents): KeyContents {
  return contents.filter((one, at) => contents.findIndex((other) => Buffer.compare(one, other) === 0) === at);
}

async function addFiles(
  path: string,
  keys: readonly BackupPart[],
  parts: BackupOptions["parts"],
): Promise<Pick<BackupFacts, "records" | "keys" | "parts">> {
  const database = new DatabaseSync(path);
  try {
    database.exec(
      "PRAGMA journal_mode = DELETE; CREATE TABLE backup_files (name TEXT PRIMARY KEY, content BLOB NOT NULL)",
    );
    const insert = database.prepare("INSERT INTO backup_files (name, content) VALUES (?, ?)");
    for (const { name, content } of keys) insert.run(name, content);
    const names: string[] = [];
    for await (const { name, content } of parts((collection) => bodiesIn(database, collection))) {
      insert.run(name, content);
      names.push(name);
    }
    const records = Number(database.prepare("SELECT count(*) AS n FROM records").get()?.["n"]);
    return { records, keys: keys.map(({ name }) => name), parts: names };
  } finally {
    database.close();
  }
}

/** Returns the bodies of a collection in a database; undefined for those that are damaged. */
export function bodiesIn(database: DatabaseSync, collection: string): readonly unknown[] {
  return database.prepare("SELECT body FROM records WHERE collection = ?").all(collection).map(toBody);
}

/** Returns the body of a row; undefined for one that is damaged. */
function toBody({ body }: Readonly<Record<string, unknown>>): unknown {
  try {
    return JSON.parse(String(body));
  } catch {
    return undefined;
  }
}
