import type { DatabaseSync, StatementSync } from "node:sqlite";
import { type HttpError, messageOf, refuse } from "../../base/errors.ts";
import { nextTick } from "../../base/tick.ts";
import { type DiskSync, LogCopyError, writeFirstPage } from "./disk_sync.ts";

/** Result of a write whose precondition did not hold: its changes are taken back. */
export const ROLL_BACK = Symbol("roll back");

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
 * Writes to a database that share transactions and syncs of the disk.
 *
 * A tick takes a burst of arriving work well under 5 ms, so a lone write waits for nothing. The transaction is opened, filled and
 * committed without a pause, so no read sees a part of it. The event loop never waits for the disk. A write can only build on
 * writes that come before it in the log, so it is never durable without them.
 *
 * A disk that is full refuses writes until there is room: each write is tried by itself. A log that could not be copied for want of
 * room is copied later. When a sync fails, nobody knows which part of the log is on the disk, and a later success says nothing about
 * it: every write from then on is refused.
 */
export class GroupCommit {
  readonly #database: DatabaseSync;
  readonly #disk: Pick<DiskSync, "sync" | "isLogLong" | "emptyLog">;
  readonly #begin: StatementSync;
  readonly #commit: StatementSync;
  readonly #savepoint: StatementSync;
  readonly #release: StatementSync;
  readonly #rollBackTo: StatementSync;
  #queue: Pending[] = [];
  /** A flush is due at the next tick */
  #isScheduled = false;
  /** All writes of the last transaction succeeded */
  #isHealthy = true;
  /** Committed, and not known to be on the disk */
  #committed: Pending[] = [];
  #syncing: Promise<void> | undefined;
  /** The group that is brought to the disk now */
  #current: Promise<void> | undefined;
  /** The failed sync, after which every write is refused */
  #failed: Error | undefined;
  /** The log is being emptied: new writes are queued */
  #isPaused = false;
  #isTrying = false;
  /** The last copy of the log succeeded */
  #isCopied = true;
  /** Groups until a copy that failed is tried again */
  #groupsToWait = 0;

  constructor(database: DatabaseSync, disk: Pick<DiskSync, "sync" | "isLogLong" | "emptyLog">) {
    this.#database = database;
    this.#disk = disk;
    this.#begin = database.prepare("BEGIN IMMEDIATE");
    this.#commit = database.prepare("COMMIT");
    this.#savepoint = database.prepare("SAVEPOINT one");
    this.#release = database.prepare("RELEASE one");
    this.#rollBackTo = database.prepare("ROLLBACK TO one");
  }

  /**
   * Queues a write. All writes of one tick, or 64 of them, are one transaction. Each write is all or nothing by itself.
   * `apply` must be synchronous and touch the database alone.
   * @returns what `apply` returned, once it is durable; rejects when `apply` throws or the commit fails
   */
  write<T>(apply: () => T | typeof ROLL_BACK): Promise<T | typeof ROLL_BACK> {
    if (this.#failed !== undefined) return Promise.reject(this.#failed);
    return new Promise<T | typeof ROLL_BACK>((resolve, reject) => {
      // The queue holds writes of every type; `apply` and `resolve` of one are of the same
      this.#queue.push({ apply, resolve: resolve as (result: unknown) => void, reject, outcome: undefined });
      if (this.#queue.length >= MAX_GROUP) void this.flush();
      else if (!this.#isScheduled) {
        this.#isScheduled = true;
        void nextTick().then(() => this.flush());
      }
    });
  }

  /** Commits what is queued, now. Resolves when it is on the disk, or cannot be brought there */
  flush(): Promise<void> {
    this.#isScheduled = false;
    if (!this.#isPaused) this.#commitQueued();
    if (this.#committed.length > 0) this.#syncing ??= this.#syncAll();
    return this.#syncing ?? Promise.resolve();
  }

  /** Resolves when what is committed now is on the disk, or cannot be brought there; undefined when it is */
  settled(): Promise<void> | undefined {
    if (this.#committed.length === 0) return this.#current;
    return new Promise((resolve) => {
      const heard = () => resolve();
      this.#committed.push({ apply: () => undefined, resolve: heard, reject: heard, outcome: { result: undefined } });
    });
  }

  /** Returns whether all writes of the last transaction reached the disk. After a failure, each call tries another write */
  healthy(): boolean {
    const isWhole = this.#isHealthy && this.#isCopied;
    if (!isWhole && this.#failed === undefined) this.#tryAgain();
    return isWhole && this.#failed === undefined;
  }

  #commitQueued(): void {
    while (this.#queue.length > 0) {
      const group = this.#queue.slice(0, MAX_GROUP);
      this.#queue = this.#queue.slice(MAX_GROUP);
      if (this.#failed === undefined) this.#commitGroup(group);
      else for (const pending of group) pending.reject(this.#failed);
    }
  }

  #commitGroup(group: readonly Pending[]): void {
    try {
      this.#begin.run();
      for (const pending of group) this.#applyOne(pending);
      this.#commit.run();
    } catch (error) {
      this.#isHealthy = false;
      rollBack(this.#database);
      const failure = unavailable("the transaction failed", error);
      for (const pending of group) pending.reject(failure);
      return;
    }
    this.#committed.push(...group);
  }

  /** Applies a write within the transaction. @throws when the transaction itself is lost, as some errors of the disk do */
  #applyOne(pending: Pending): void {
    this.#savepoint.run();
    try {
      const result = pending.apply();
      if (result === ROLL_BACK) this.#rollBackTo.run();
      pending.outcome = { result };
    } catch (error) {
      pending.outcome = { error };
      try {
        this.#rollBackTo.run();
      } catch {
        // SQLite has ended the transaction by itself, as it does when the disk is full: the first error says why
        throw error;
      }
    }
    this.#release.run();
  }

  async #syncAll(): Promise<void> {
    while (this.#committed.length > 0) {
      const group = this.#committed;
      this.#committed = [];
      this.#current = this.#syncGroup(group);
      await this.#current;
      this.#current = undefined;
      if (this.#failed !== undefined || !this.#disk.isLogLong() || this.#groupsToWait-- > 0) continue;
      this.#isPaused = true;
      await this.#attempt(() => this.#copyLog());
      this.#isPaused = false;
      this.#commitQueued();
    }
    this.#syncing = undefined;
  }

  async #syncGroup(group: readonly Pending[]): Promise<void> {
    await this.#attempt(this.#disk.sync);
    if (this.#failed !== undefined) {
      for (const pending of group) pending.reject(this.#failed);
      return;
    }
    this.#isHealthy = group.every(({ outcome }) => outcome !== undefined && "result" in outcome);
    for (const { outcome, resolve, reject } of group) {
      if (outcome !== undefined && "result" in outcome) resolve(outcome.result);
      else reject(outcome?.error);
    }
  }

  /** Copies the log. A log that cannot be copied stays whole, and grows while there is room: the copy is tried again after some groups. */
  async #copyLog(): Promise<void> {
    try {
      await this.#disk.emptyLog();
      this.#isCopied = true;
      this.#groupsToWait = 0;
    } catch (error) {
      if (!(error instanceof LogCopyError)) throw error;
      this.#isCopied = false;
      this.#groupsToWait = GROUPS_BEFORE_RETRY;
    }
  }

  async #attempt(step: () => Promise<void>): Promise<void> {
    try {
      await step();
    } catch (error) {
      this.#failed ??= unavailable("the disk did not take what was written; see what it says, and restart", error);
    }
  }

  /** Writes the database's version over itself. Without that, a gateway at rest would be unhealthy until somebody has work for it. */
  #tryAgain(): void {
    if (this.#isTrying) return;
    this.#isTrying = true;
    this.write(() => writeFirstPage(this.#database))
      .catch(() => {})
      .finally(() => this.#isTrying = false);
  }
}

/** Returns the error for the client: 503, with the reason. */
function unavailable(what: string, cause: unknown): HttpError {
  const reason = messageOf(cause);
  const way = /is full|ENOSPC/i.test(reason) ? "; make room on the disk, and it goes on by itself" : "";
  return refuse("storage_unavailable", `Cannot write to the database: ${what} (${reason})${way}`, { cause });
}

/** Ends a transaction without its writes, also where SQLite has ended it. */
export function rollBack(database: DatabaseSync): void {
  try {
    database.exec("ROLLBACK");
  } catch {
    // SQLite has ended the transaction by itself, as it does when the disk is full
  }
}
