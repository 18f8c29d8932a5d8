import type { DatabaseSync } from "node:sqlite";
import { HttpError } from "../../base/errors.ts";
import { nextTick } from "../../base/tick.ts";
import { type DiskSync, LogCopyError, writeFirstPage } from "./disk_sync.ts";

/** Result of a write whose precondition did not hold: its changes are taken back. */
export const ROLL_BACK = Symbol("roll back");

/** Writes to a database that share transactions and syncs of the disk. */
export interface GroupCommit {
  /**
   * Queues a write. Those queued in one turn of the event loop, or 64 of them, are one transaction; each is all or nothing
   * by itself. `apply` must be synchronous and touch the database alone.
   * @returns what `apply` returned, once it is durable; rejects when `apply` throws or the commit fails
   */
  write<T>(apply: () => T | typeof ROLL_BACK): Promise<T | typeof ROLL_BACK>;
  /** Commits what is queued, now. Resolves when it is on the disk, or cannot be brought there */
  flush(): Promise<void>;
  /** Resolves when what is committed now is on the disk, or cannot be brought there; undefined when it is */
  settled(): Promise<void> | undefined;
  /** Returns whether all writes of the last transaction reached the disk. After a failure, each call tries another write */
  healthy(): boolean;
}

const MAX_GROUP = 64;
/** Groups between two attempts to copy the log: each attempt takes time of the disk. */
const GROUPS_BEFORE_RETRY = 8;

interface Pending {
  readonly apply: () => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  outcome: { readonly result: unknown } | { readonly error: unknown } | undefined;
}

/**
 * Group commit over one connection: one transaction for all writes of a turn, and one sync to the disk for all transactions that
 * were committed while the sync before it was at work.
 *
 * A turn is what an arriving burst of work takes, well under 5 ms, so a lone write waits for nothing. The transaction is
 * opened, filled and committed without a pause, so no read sees a part of it. The event loop never waits for the disk. A write can
 * only build on others that come before it in the log, so it is never durable without them.
 *
 * A disk that is full refuses writes until there is room: each is tried by itself. A log that could not be copied for want of room is
 * copied later. When a sync fails, nobody knows what of the log is on the disk, and a later success says nothing about it: every write from then
 * on is refused.
 */
export function createGroupCommit(
  database: DatabaseSync,
  disk: Pick<DiskSync, "sync" | "isLogLong" | "emptyLog">,
): GroupCommit {
  const begin = database.prepare("BEGIN IMMEDIATE");
  const commit = database.prepare("COMMIT");
  const savepoint = database.prepare("SAVEPOINT one");
  const release = database.prepare("RELEASE one");
  const rollBackTo = database.prepare("ROLLBACK TO one");
  let queue: Pending[] = [];
  let scheduled = false;
  let healthy = true;
  /** Committed, and not known to be on the disk */
  let committed: Pending[] = [];
  let syncing: Promise<void> | undefined;
  /** The group that is brought to the disk now */
  let current: Promise<void> | undefined;
  let failed: Error | undefined;
  /** The log is being emptied: what comes is queued */
  let paused = false;
  let trying = false;
  /** The last copy of the log succeeded */
  let isCopied = true;
  /** Groups until a copy that failed is tried again */
  let groupsToWait = 0;

  /** @throws when the transaction itself is lost, as some errors of the disk do */
  function applyOne(pending: Pending): void {
    savepoint.run();
    try {
      const result = pending.apply();
      if (result === ROLL_BACK) rollBackTo.run();
      pending.outcome = { result };
    } catch (error) {
      pending.outcome = { error };
      try {
        rollBackTo.run();
      } catch {
        // SQLite has ended the transaction by itself, as it does when the disk is full: the first error says why
        throw error;
      }
    }
    release.run();
  }

  function commitGroup(group: readonly Pending[]): void {
    try {
      begin.run();
      for (const pending of group) applyOne(pending);
      commit.run();
    } catch (error) {
      healthy = false;
      rollBack(database);
      const failure = unavailable("the transaction failed", error);
      for (const pending of group) pending.reject(failure);
      return;
    }
    committed.push(...group);
  }

  async function syncAll(): Promise<void> {
    while (committed.length > 0) {
      const group = committed;
      committed = [];
      current = syncGroup(group);
      await current;
      current = undefined;
      if (failed !== undefined || !disk.isLogLong() || groupsToWait-- > 0) continue;
      paused = true;
      await attempt(copyLog);
      paused = false;
      commitQueued();
    }
    syncing = undefined;
  }

  /** A log that cannot be copied stays whole, and grows while there is room: the copy is tried again after some groups. */
  async function copyLog(): Promise<void> {
    try {
      await disk.emptyLog();
      isCopied = true;
      groupsToWait = 0;
    } catch (error) {
      if (!(error instanceof LogCopyError)) throw error;
      isCopied = false;
      groupsToWait = GROUPS_BEFORE_RETRY;
    }
  }

  async function syncGroup(group: readonly Pending[]): Promise<void> {
    await attempt(disk.sync);
    if (failed === undefined) settle(group);
    else for (const pending of group) pending.reject(failed);
  }

  async function attempt(step: () => Promise<void>): Promise<void> {
    try {
      await step();
    } catch (error) {
      failed ??= unavailable("the disk did not take what was written; see what it says, and restart", error);
    }
  }

  function settle(group: readonly Pending[]): void {
    healthy = group.every(({ outcome }) => outcome !== undefined && "result" in outcome);
    for (const { outcome, resolve, reject } of group) {
      if (outcome !== undefined && "result" in outcome) resolve(outcome.result);
      else reject(outcome?.error);
    }
  }

  function commitQueued(): void {
    while (queue.length > 0) {
      const group = queue.slice(0, MAX_GROUP);
      queue = queue.slice(MAX_GROUP);
      if (failed === undefined) commitGroup(group);
      else for (const pending of group) pending.reject(failed);
    }
  }

  function flush(): Promise<void> {
    scheduled = false;
    if (!paused) commitQueued();
    if (committed.length > 0) syncing ??= syncAll();
    return syncing ?? Promise.resolve();
  }

  function write<T>(apply: () => T | typeof ROLL_BACK): Promise<T | typeof ROLL_BACK> {
    if (failed !== undefined) return Promise.reject(failed);
    return new Promise<T | typeof ROLL_BACK>((resolve, reject) => {
      // The queue holds writes of every type; `apply` and `resolve` of one are of the same
      queue.push({ apply, resolve: resolve as (result: unknown) => void, reject, outcome: undefined });
      if (queue.length >= MAX_GROUP) void flush();
      else if (!scheduled) {
        scheduled = true;
        void nextTick().then(flush);
      }
    });
  }

  /** Writes the database's version over itself: without that, a gateway at rest would be unhealthy until somebody has work for it. */
  function tryAgain(): void {
    if (trying) return;
    trying = true;
    write(() => writeFirstPage(database))
      .catch(() => {})
      .finally(() => trying = false);
  }

  return {
    write,
    flush,
    settled() {
      if (committed.length === 0) return current;
      return new Promise((resolve) => {
        const heard = () => resolve();
        committed.push({ apply: () => undefined, resolve: heard, reject: heard, outcome: { result: undefined } });
      });
    },
    healthy() {
      if (!(healthy && isCopied) && failed === undefined) tryAgain();
      return healthy && isCopied && failed === undefined;
    },
  };
}

/** Returns the error that a client is told: 503, with the reason. */
function unavailable(what: string, cause: unknown): HttpError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  const way = /is full|ENOSPC/i.test(reason) ? "; make room on the disk, and it goes on by itself" : "";
  return new HttpError("storage_unavailable", `Cannot write to the database: ${what} (${reason})${way}`, {
    status: 503,
    type: "api_error",
    headers: { "retry-after": "5" },
    cause,
  });
}

function rollBack(database: DatabaseSync): void {
  try {
    database.exec("ROLLBACK");
  } catch {
    // SQLite has ended the transaction by itself, as it does when the disk is full
  }
}
