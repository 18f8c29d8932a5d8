import { closeSync, fdatasync, fstatSync, openSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import { BUSY_TIMEOUT_MS } from "./open_database.ts";

/** Brings what a connection has committed to the disk, off the event loop. */
export interface DiskSync {
  /** Resolves when all that was committed before the call is on the disk. @throws the file system's error */
  sync(): Promise<void>;
  /** Whether the log has grown so long that it should be copied into the database */
  isLogLong(): boolean;
  /** Copies the log into the database and empties it. Nothing may be committed meanwhile. @throws the file system's error */
  emptyLog(): Promise<void>;
  /** Leaves the rest to SQLite, which syncs when the connection is closed; call before that */
  handBack(): void;
  /** Call after the connection was closed */
  close(): void;
}

/** 2,048 pages: copying them takes the event loop a few milliseconds. */
const LONG_LOG_BYTES = 8 * 1024 * 1024;

/**
 * Takes the syncs of the disk over from SQLite (`synchronous = OFF`, no automatic checkpoint), which could only make them on the event
 * loop. The order is SQLite's own (https://sqlite.org/wal.html, section 2.2): the log is synced before it is copied, the database
 * before the log is emptied, and the empty log before it is written again, so that no frame of before can be taken for a new one. A
 * loss of power at any moment leaves a log that gives every durable write.
 * @param path of the database, which is open in WAL mode
 * @throws the file system's errors
 */
export function createDiskSync(database: DatabaseSync, path: string): DiskSync {
  // Closing the database file would drop the locks that SQLite holds on it (POSIX fcntl): it is closed after the connection
  const file = openSync(path, "r");
  const log = openSync(`${path}-wal`, "r");
  database.exec("PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF");
  const copy = database.prepare("PRAGMA wal_checkpoint(PASSIVE)");
  const empty = database.prepare("PRAGMA wal_checkpoint(TRUNCATE)");
  return {
    sync: () => syncFile(log),
    isLogLong: () => fstatSync(log).size > LONG_LOG_BYTES,
    async emptyLog() {
      await syncFile(log);
      const copied = copy.get();
      await syncFile(file);
      // Another connection reads what would have to be copied over: later. What is not copied and synced must stay in the log
      if (copied?.["busy"] !== 0 || copied["log"] !== copied["checkpointed"]) return;
      database.exec("PRAGMA busy_timeout = 0");
      const isEmpty = empty.get()?.["busy"] === 0;
      database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
      await syncFile(log);
      // A log that another connection reads starts over with its old frames behind the new ones: SQLite must sync between
      database.exec(`PRAGMA synchronous = ${isEmpty ? "OFF" : "NORMAL"}`);
    },
    handBack: () => database.exec("PRAGMA synchronous = FULL"),
    close() {
      closeSync(log);
      closeSync(file);
    },
  };
}

function syncFile(descriptor: number): Promise<void> {
  return new Promise((resolve, reject) => {
    fdatasync(descriptor, (error) => (error === null || error === undefined ? resolve() : reject(error)));
  });
}
