import { readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import { ConfigError, messageOf } from "../../lib/base/errors.ts";
import {
  CONVERSATIONS,
  conversationStream,
  parseConversationEntry,
} from "../../lib/runs/conversations/conversation_records.ts";
import { journalOf, RUNS } from "../../lib/runs/journal/run_records.ts";
import { DATABASE_NAME } from "../../lib/storage/back_up.ts";
import { backUpAll } from "../restore/back_up_all.ts";
import { findUnreadable, inspectDatabase } from "../../lib/storage/inspect_database.ts";
import type { UnreadableFound } from "../../lib/storage/unreadable_search.ts";
import { takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { scanAll } from "../../lib/storage/read_records.ts";
import { lostLogBytes, movedAway } from "../../lib/storage/sqlite/open_database.ts";
import type { Store, StreamRecord, UnreadableRecord, Write } from "../../lib/storage/store.ts";
import { CommandError } from "../command.ts";
import { COLLECTIONS, STREAMS } from "../../handlers/stored_records.ts";
import { PARSERS } from "./damaged_records.ts";

/** Name of the backup that a repair makes. */
const BACKUP = /^before-repair-[\dTZ.-]+\.db$/;
/** Names of the files that make a backup until it is whole. */
const CUT_OFF = /^before-repair-[\dTZ.-]+\.db\.partial(?:-journal)?$/;

/** Result of a repair: the backup, the removed records, and whether more are left. */
export interface Repaired {
  /** Path of the file that has the removed records as they were. Null: nothing was damaged, and nothing was changed */
  readonly backup: string | null;
  readonly removed: readonly UnreadableRecord[];
  /** False: there are more damaged records, for another repair */
  readonly finished: boolean;
}

/**
 * Removes every record that cannot be read, and records that are of no use without it, after a backup of everything.
 * @throws {CommandError} a gateway or node runs on the data directory
 * @throws {ConfigError} `database_corrupt`: the file itself is damaged, or is no database of Postern
 */
export async function repair(dataDir: string, clock: Clock = systemClock): Promise<Repaired> {
  const lock = takeGatewayLock(dataDir);
  if (lock === undefined) {
    throw new CommandError(
      `Cannot repair "${dataDir}": a gateway or node uses it; postern daemon stop, or end it first`,
    );
  }
  try {
    removeCutOff(dataDir);
    const path = join(dataDir, DATABASE_NAME);
    const { unreadable, finished } = lookThrough(path);
    if (unreadable.length === 0) return { backup: null, removed: [], finished };
    const time = new Date(clock.now()).toISOString().replaceAll(":", "-");
    const { path: backup } = await backUpAll(dataDir, join(dataDir, `before-repair-${time}.db`), { isInUse: false });
    const store = await openSqliteStore({ path, clock });
    try {
      await removeUnreadable(store, unreadable);
    } finally {
      await store.close();
    }
    return { backup, removed: unreadable, finished };
  } finally {
    lock.release();
  }
}

/** Removes what a repair left that was killed during its backup, a copy of all records that is not whole. Only with the lock. */
function removeCutOff(dataDir: string): void {
  for (const name of readdirSync(dataDir)) {
    const path = join(dataDir, name);
    const isEmpty = BACKUP.test(name) && statSync(path, { throwIfNoEntry: false })?.size === 0;
    if (isEmpty || CUT_OFF.test(name)) rmSync(path, { force: true });
  }
}

/** Finds the damaged records of a database that is whole as a file. @throws {ConfigError} `database_corrupt` for any other file */
function lookThrough(path: string): UnreadableFound {
  const corrupt = (reason: string, cause?: unknown) =>
    new ConfigError(
      "database_corrupt",
      `Cannot repair "${path}": ${reason}; restore a backup with postern restore <file>, or move it away with its log`,
      { file: path, cause },
    );
  if (lostLogBytes(path) > 0) throw corrupt("it is missing or empty, and its log holds records");
  try {
    const facts = inspectDatabase(path, { maxBytes: Infinity });
    if (facts?.moved !== undefined) throw movedAway(path, facts.moved);
    if (facts?.owner === "another") throw corrupt("it is the database of another program");
    if (typeof facts?.damage === "string") throw corrupt(`it is damaged as a whole (${facts.damage})`);
    if (facts === undefined || facts.owner === "nobody") return { unreadable: [], looked: 0, finished: true };
    return findUnreadable(path, PARSERS, () => false);
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw corrupt(`it is damaged or no database (${messageOf(error)})`, error);
  }
}

/**
 * Removes records that cannot be read, and what is of no use without them.
 * @param keep told of the writes of each removal before they are made. Default: nobody
 */
export async function removeUnreadable(
  store: Store,
  unreadable: readonly UnreadableRecord[],
  keep: (writes: readonly Write[]) => Promise<void> = async () => {},
): Promise<void> {
  const dropped = new Set<string>();
  for (const record of unreadable) {
    // A removal mends a stream as a whole
    if (dropped.has(record.collection)) continue;
    const writes = await removalOf(store, record);
    await keep(writes);
    await store.batch(writes);
    for (const write of writes) if (write.op === "drop") dropped.add(write.stream);
  }
}

async function removalOf(store: Store, { collection, key }: UnreadableRecord): Promise<readonly Write[]> {
  const [kind = "", id = ""] = collection.split("/", 2);
  if (collection === journalOf(id)) return await removalOf(store, { collection: RUNS.name, key: id, reason: "" });
  if (collection === conversationStream(id)) return await withoutTurn(store, id);
  if (kind in STREAMS && id !== "") return [{ op: "drop", stream: collection }];
  const declared = Object.hasOwn(COLLECTIONS, collection) ? COLLECTIONS[collection] : undefined;
  const { becomes, removes = [collection], removesBelow, drops } = declared?.options.onDamage ?? {};
  if (becomes !== undefined) return [{ op: "put", collection, key, body: becomes }];
  const below = removesBelow === undefined
    ? []
    : await Array.fromAsync(scanAll(store, removesBelow, { prefix: `${key}/` }));
  return [
    ...removes.map((collection): Write => ({ op: "delete", collection, key })),
    ...below.map(({ key }): Write => ({ op: "delete", collection: removesBelow ?? "", key })),
    ...drops === undefined ? [] : [{ op: "drop", stream: drops(key) } as const],
  ];
}

/** Writes a conversation again without the turns that hold a damaged message: a result without its call cannot be sent to a model. */
async function withoutTurn(store: Store, id: string): Promise<readonly Write[]> {
  const stream = conversationStream(id);
  const kept: unknown[] = [];
  let turn: unknown[] | undefined = [];
  for (let afterSeq = 0;;) {
    const page: readonly StreamRecord[] = await store.read(stream, { afterSeq, limit: 1000 });
    for (const { seq, body } of page) {
      afterSeq = seq;
      const role = roleOf(body);
      if (role === "user") {
        kept.push(...turn ?? []);
        turn = [];
      }
      if (role === undefined) turn = undefined;
      else turn?.push(body);
    }
    if (page.length < 1000) break;
  }
  kept.push(...turn ?? []);
  const record = await store.get(CONVERSATIONS.name, id);
  if (typeof record?.body !== "object" || record.body === null) return [{ op: "drop", stream }];
  // The summary is dropped: it counts messages that may be gone
  const { summary: _, ...body } = record.body as Readonly<Record<string, unknown>>;
  return [
    { op: "drop", stream },
    { op: "append", stream, expectedSeq: 0, records: kept },
    { op: "put", collection: CONVERSATIONS.name, key: id, body: { ...body, messages: kept.length } },
  ];
}

/** Returns the role of a message. Undefined for a message that cannot be read. */
function roleOf(body: unknown): string | undefined {
  try {
    return parseConversationEntry(body).message.role;
  } catch {
    return undefined;
  }
}
