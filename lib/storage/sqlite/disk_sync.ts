import { closeSync, fdatasync, openSync, readSync } from "node:fs";
import { dirname } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { syncFolder } from "../../base/durable_files.ts";
import { messageOf } from "../../base/errors.ts";

/** Brings what a connection has committed to the disk, off the event loop. */
export interface DiskSync {
  /** Resolves when all that was committed before the call is on the disk. @throws the file system's error */
  sync(): Promise<void>;
  /** Returns whether the log is long enough to be copied into the database */
  isLogLong(): boolean;
  /**
   * Copies the log into the database and starts it over. Nothing may be committed meanwhile.
   * @throws {LogCopyError} when the disk has no room for the copy: the log still has everything, and a later call may succeed
   * @throws the file system's error when something could not be synced
   */
  emptyLog(): Promise<void>;
  /** Leaves the rest to SQLite, which syncs when the connection is closed; call before that */
  handBack(): void;
  /** Call after the connection was closed */
  close(): void;
}

/** The log could not be copied into the database, as on a full disk. Nothing is lost: the log has everything. */
export class LogCopyError extends Error {
  override readonly name = "LogCopyError";
}

/** 2,048 pages: copying them takes the event loop about a millisecond. */
const LONG_LOG_BYTES = 8 * 1024 * 1024;
const FRAME_HEADER_BYTES = 24;
/** Place of the number of frames in the log's index, in the byte order of the machine. Source: sqlite.org/walformat.html section 2.1 */
const FRAMES_AT = 16;

/**
 * Takes the syncs of the disk over from SQLite (`synchronous = OFF`, no automatic checkpoint), which could only make them on the event
 * loop. The order is SQLite's own (https://sqlite.org/wal.html, section 2.2): the log is synced before it is copied, the database
 * before the log starts over, and the log's new beginning before more is written. A loss of power at any moment leaves a log that
 * gives every durable write.
 *
 * The log's file keeps its length: frames that overwrite older ones need no new blocks on the disk, whose release and allocation would
 * hold up every write. The new beginning is one frame with the header before it. Whichever of the two is on the disk after a loss of
 * power, no older frame follows one that the header fits, or all of them do.
 * @param path of the database, which is open in WAL mode
 * @param options.syncFolder called once, with the first sync
 * @throws the file system's errors
 */
export function createDiskSync(
  database: DatabaseSync,
  path: string,
  options: { readonly syncFolder: typeof syncFolder } = { syncFolder },
): DiskSync {
  /** Tells whether the folder, which holds the names of the files, was synced */
  let isNamed = false;
  // Closing one of these files would drop the locks that SQLite holds on it (POSIX fcntl): they are closed after the connection
  const file = openSync(path, "r");
  const log = openSync(`${path}-wal`, "r");
  const index = openSync(`${path}-shm`, "r");
  // A log that grew further while another connection read it is cut back to twice the usual length when it starts over
  database.exec(`
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA synchronous = OFF;
    PRAGMA journal_size_limit = ${2 * LONG_LOG_BYTES};
  `);
  const copy = database.prepare("PRAGMA wal_checkpoint(PASSIVE)");
  const frameBytes = Number(database.prepare("PRAGMA page_size").get()?.["page_size"]) + FRAME_HEADER_BYTES;
  const frames = new Uint32Array(1);
  return {
    async sync() {
      const name = isNamed ? undefined : options.syncFolder(dirname(path));
      // The log's name was made with this connection, and the database's perhaps too
      await Promise.all([syncFile(log), name]);
      isNamed = true;
    },
    isLogLong() {
      readSync(index, frames, 0, frames.byteLength, FRAMES_AT);
      return (frames[0] ?? 0) * frameBytes > LONG_LOG_BYTES;
    },
    async emptyLog() {
      await syncFile(log);
      const copied = orLogCopyError(() => copy.get());
      await syncFile(file);
      // Another connection reads what would have to be copied over: later. What is not copied and synced must stay in the log
      if (copied?.["busy"] !== 0 || copied["log"] !== copied["checkpointed"]) return;
      orLogCopyError(() => writeFirstPage(database));
      await syncFile(log);
    },
    handBack: () => database.exec("PRAGMA synchronous = FULL"),
    close() {
      for (const descriptor of [index, log, file]) closeSync(descriptor);
    },
  };
}

/**
 * Writes the database's version over itself, a transaction of one page. The first transaction after the whole log was copied starts the
 * log over, unless another connection reads it; it is added behind the others then, and nothing starts over before the next copy.
 */
export function writeFirstPage(database: DatabaseSync): void {
  const version = "PRAGMA user_version";
  database.exec(`${version} = ${database.prepare(version).get()?.["user_version"]}`);
}

function orLogCopyError<T>(step: () => T): T {
  try {
    return step();
  } catch (cause) {
    const reason = messageOf(cause);
    throw new LogCopyError(`Cannot copy the log into the database: ${reason}`, { cause });
  }
}

function syncFile(descriptor: number): Promise<void> {
  return new Promise((resolve, reject) => {
    fdatasync(descriptor, (error) => (error === null || error === undefined ? resolve() : reject(error)));
  });
}
