import { createHash, type Hash } from "node:crypto";
import { hostname } from "node:os";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import type { Clock } from "../../base/clock.ts";
import { ConfigError, messageOf } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { DATABASE_NAME } from "../back_up.ts";
import { inspectDatabase } from "../inspect_database.ts";
import { migrateSchema } from "../postgres/migrate_schema.ts";
import { sqlStateOf } from "../postgres/database_errors.ts";
import type { DedicatedSession } from "../postgres/dedicated_session.ts";
import type { PostgresDatabase } from "../postgres/postgres_database.ts";
import { movedAway, type MovedTo, openDatabase, openReadOnly } from "../sqlite/open_database.ts";
import { migrations } from "../sqlite/migrations.ts";
import { markMoved, readMovedMark } from "./moved_mark.ts";
import { type DigestRow, SourceDatabase, type TextOf } from "./source_database.ts";
import { TargetSchema } from "./target_schema.ts";

/** Options of `moveRecords`. */
export interface MoveOptions {
  /** Folder of the database. The caller holds its lock */
  readonly dataDir: string;
  /** Database, which whoever opened it closes */
  readonly database: Pick<PostgresDatabase, "name" | "dedicated">;
  /** `[storage] schema` */
  readonly schema: string;
  /** `[storage] engine_unchecked` */
  readonly engineUnchecked?: boolean;
  /** Returns the text that a record is found by */
  readonly textOf: TextOf;
  readonly clock: Clock;
  readonly random: Random;
  /** Receives how far the move is */
  readonly onProgress: (progress: MoveProgress) => void;
  /** Milliseconds for which another copy into the schema is waited for. Default 5,000 */
  readonly lockWaitMs?: number;
}

/** How far a move is. */
export type MoveProgress =
  | { readonly step: "begun_again" | "verify" }
  | { readonly step: "copy"; readonly copied: number; readonly of: number };

/** Result of a move. */
export interface Moved {
  readonly database: string;
  readonly schema: string;
  /** ISO 8601 */
  readonly movedAt: string;
  /** Null: an earlier move had copied everything */
  readonly copied: CopyDigests | null;
}

/** Everything that a copy holds, as both sides were found to have it. */
export interface CopyDigests {
  readonly collections: readonly GroupDigest[];
  /** All streams together: journals and messages of conversations */
  readonly streams: { readonly streams: number; readonly entries: number; readonly digest: string };
  readonly texts: number;
  readonly vectors: number;
}

/** Number and digest of the records of a collection, or of the entries of a stream. */
export interface GroupDigest {
  readonly name: string;
  readonly records: number;
  /** SHA-256 in hexadecimal digits */
  readonly digest: string;
}

interface Sides {
  readonly source: SourceDatabase;
  readonly target: TargetSchema;
}

/**
 * Moves all records of a data directory into an empty PostgreSQL schema: copies them in batches, reads both sides again and compares counts
 * and digests, marks the database of the data directory as moved, and then gives the schema to gateways. A copy that was cut off is made
 * again; no gateway opens the schema until the move is done.
 * @throws {ConfigError} `database_unusable`: no records to move, a schema with records, or sides that differ after the copy;
 * `database_moved`: they were moved to another place; what `readMovedMark`, `openDatabase` and `migrateSchema` throw
 * @throws {DatabaseAwayError} the server cannot be reached. The move is made when it is called again
 */
export async function moveRecords(options: MoveOptions): Promise<Moved> {
  const path = join(options.dataDir, DATABASE_NAME);
  const mark = readMovedMark(path);
  const session = await options.database.dedicated();
  try {
    if (mark !== undefined) return await finishMoved(options, { session, mark, path });
    requireWhole(path);
    const file = openDatabase(path, migrations);
    try {
      return await moveFile(options, { session, file, path });
    } finally {
      file.close();
    }
  } finally {
    await session.close();
  }
}

/** Looks at both sides of a move, and changes nothing. @throws {ConfigError} as `moveRecords` */
export async function planMove(
  options: Omit<MoveOptions, "onProgress">,
): Promise<{ readonly records: number; readonly entries: number }> {
  const path = join(options.dataDir, DATABASE_NAME);
  const mark = readMovedMark(path);
  if (mark !== undefined) throw movedAway(path, mark);
  requireWhole(path);
  const file = openReadOnly(path);
  const session = await options.database.dedicated();
  try {
    const source = new SourceDatabase(file, path, options.textOf);
    await targetOf(session, options).look(source.identity());
    return source.counts();
  } finally {
    await session.close();
    file.close();
  }
}

/** Finishes a move that was cut off between its last two steps. @throws {ConfigError} `database_moved`: to another place */
async function finishMoved(
  options: MoveOptions,
  { session, mark, path }: { readonly session: DedicatedSession; readonly mark: MovedTo; readonly path: string },
): Promise<Moved> {
  const { database, schema } = options;
  const target = targetOf(session, options);
  const unfinished = await target.unfinishedId();
  const isThere = mark.schema === schema && mark.database === database.name;
  if (!isThere || (unfinished !== undefined && unfinished !== mark.copyId)) throw movedAway(path, mark);
  await target.finish();
  return { database: mark.database, schema, movedAt: mark.movedAt, copied: null };
}

async function moveFile(
  options: MoveOptions,
  { session, file, path }: { readonly session: DedicatedSession; readonly file: DatabaseSync; readonly path: string },
): Promise<Moved> {
  const { database, schema, engineUnchecked, clock, random, dataDir, onProgress } = options;
  const source = new SourceDatabase(file, path, options.textOf);
  await migrateSchema(session, {
    schema,
    name: database.name,
    isMove: true,
    ...engineUnchecked === true && { engineUnchecked },
  });
  const target = targetOf(session, options);
  const origin = { identity: source.identity(), name: `${hostname()}:${dataDir}` };
  const copy = await target.claim(origin, random.id("copy_"));
  if (copy.wasBegun) {
    onProgress({ step: "begun_again" });
    await target.empty(source.gateways());
  }
  const copied = await copyAll({ source, target }, onProgress);
  if (typeof copied === "string") {
    await target.requireNoGateway(source.gateways());
    throw differs(copied, options);
  }
  const movedAt = new Date(clock.now()).toISOString();
  // The mark before the schema is given away: at no moment can gateways open both
  markMoved(file, { database: database.name, schema, movedAt, copyId: copy.id });
  await target.finish();
  return { database: database.name, schema, movedAt, copied };
}

/** SQLSTATE of a row whose key or id is there already */
const IS_THERE = "23505";

/** Copies everything, and compares both sides. @returns what they hold, or where they differ */
async function copyAll(sides: Sides, onProgress: MoveOptions["onProgress"]): Promise<CopyDigests | string> {
  try {
    await copyRecords(sides, onProgress);
  } catch (error) {
    if (sqlStateOf(error) !== IS_THERE) throw error;
    return "it has records that the copy did not make";
  }
  onProgress({ step: "verify" });
  return await compare(sides);
}

async function copyRecords({ source, target }: Sides, onProgress: MoveOptions["onProgress"]): Promise<void> {
  await target.reserveIds(source.lastId());
  const { records, entries } = source.counts();
  let copied = 0;
  const report = (count: number) => onProgress({ step: "copy", copied: copied += count, of: records + entries });
  report(0);
  for (let id = 0;;) {
    const batch = source.recordsAfter(id);
    if (batch.length === 0) break;
    await target.putRecords(batch);
    report(batch.length);
    id = batch.at(-1)?.id ?? id;
  }
  for (let [stream, seq] = ["", 0];;) {
    const batch = source.entriesAfter(stream, seq);
    if (batch.length === 0) break;
    await target.putEntries(batch);
    report(batch.length);
    const last = batch.at(-1);
    if (last !== undefined) [stream, seq] = [last.stream, last.seq];
  }
  await target.analyze();
}

/** Reads both sides and compares them. @returns what they hold, or where they differ */
async function compare({ source, target }: Sides): Promise<CopyDigests | string> {
  const collections: GroupDigest[] = [];
  for await (const [one, other] of pairs(groups(source.recordDigests()), groups(target.recordDigests()))) {
    const difference = differenceOf(one, other);
    if (difference !== undefined || one === undefined) return `collection ${difference}`;
    collections.push(one);
  }
  const all = createHash("sha256");
  let [streams, entries] = [0, 0];
  for await (const [one, other] of pairs(groups(source.entryDigests()), groups(target.entryDigests()))) {
    const difference = differenceOf(one, other);
    if (difference !== undefined || one === undefined) return `stream ${difference}`;
    streams++;
    entries += one.records;
    all.update(`${one.digest}\n`);
  }
  const { texts, vectors } = await target.indexCounts();
  const wanted = source.indexed();
  if (texts !== wanted.texts || vectors !== wanted.vectors) {
    return `index: ${wanted.texts} texts and ${wanted.vectors} vectors here, ${texts} and ${vectors} there`;
  }
  return { collections, streams: { streams, entries, digest: all.digest("hex") }, texts, vectors };
}

function differenceOf(one: GroupDigest | undefined, other: GroupDigest | undefined): string | undefined {
  if (one?.name === other?.name && one?.records === other?.records && one?.digest === other?.digest) return undefined;
  const shown = (side: GroupDigest | undefined) =>
    side === undefined ? "nothing" : `${side.records} of ${JSON.stringify(side.name)} (${side.digest.slice(0, 16)})`;
  return `${shown(one)} here, ${shown(other)} there`;
}

/** Yields number and digest of each group of rows, which stand together. */
async function* groups(rows: Iterable<DigestRow> | AsyncIterable<DigestRow>): AsyncGenerator<GroupDigest> {
  let name: string | undefined;
  let hash: Hash = createHash("sha256");
  let records = 0;
  for await (const { group, line } of rows) {
    if (name !== undefined && group !== name) {
      yield { name, records, digest: hash.digest("hex") };
      hash = createHash("sha256");
      records = 0;
    }
    name = group;
    records++;
    hash.update(`${line}\n`);
  }
  if (name !== undefined) yield { name, records, digest: hash.digest("hex") };
}

async function* pairs<T>(
  left: AsyncGenerator<T>,
  right: AsyncGenerator<T>,
): AsyncGenerator<readonly [T | undefined, T | undefined]> {
  try {
    for (;;) {
      const [one, other] = [await left.next(), await right.next()];
      if (one.done === true && other.done === true) return;
      yield [one.done === true ? undefined : one.value, other.done === true ? undefined : other.value];
    }
  } finally {
    await Promise.all([left.return(undefined), right.return(undefined)]);
  }
}

function targetOf(
  session: DedicatedSession,
  { database, schema, lockWaitMs }: Pick<MoveOptions, "database" | "schema" | "lockWaitMs">,
) {
  return new TargetSchema(session, { database: database.name, schema }, { lockWaitMs });
}

/** @throws {ConfigError} a file that is missing, damaged, or no database of Postern */
function requireWhole(path: string): void {
  const refuse = (reason: string, way: string, cause?: unknown) =>
    new ConfigError("database_unusable", `Cannot move the records of "${path}": ${reason}; ${way}`, {
      file: path,
      cause,
    });
  const restore = "restore a backup with postern restore <file>";
  let facts: ReturnType<typeof inspectDatabase>;
  try {
    facts = inspectDatabase(path, { maxBytes: Infinity });
  } catch (error) {
    throw refuse(`it cannot be read (${messageOf(error)})`, restore, error);
  }
  if (facts === undefined || facts.owner === "nobody") {
    throw refuse("there are none", 'a new gateway needs no move: set storage.driver = "postgres"');
  }
  if (facts.owner === "another") throw refuse("it is the database of another program", restore);
  if (typeof facts.damage === "string") throw refuse(`it is damaged (${facts.damage})`, restore);
}

function differs(difference: string, { database, schema }: MoveOptions): ConfigError {
  return new ConfigError(
    "database_unusable",
    `Cannot move the records: the copy in the schema "${schema}" of the database ${database.name} differs from the source: ${difference}; ` +
      "nothing was given away, and the source is as before. See that no gateway and no other program uses the schema, remove it with DROP SCHEMA, and try again",
    { key: "storage.schema" },
  );
}
