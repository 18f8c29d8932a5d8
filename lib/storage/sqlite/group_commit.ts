import type { DatabaseSync } from "node:sqlite";

/** Returned by a write whose precondition did not hold: what it did so far is taken back. */
export const ROLL_BACK = Symbol("roll back");

export interface GroupCommit {
  /**
   * Queues a write. Those queued in one turn of the event loop, or 64 of them, are one transaction; each is all or nothing
   * by itself. `apply` must be synchronous and touch the database alone.
   * @returns what `apply` returned, once it is durable; rejects when `apply` throws or the commit fails
   */
  write<T>(apply: () => T | typeof ROLL_BACK): Promise<T | typeof ROLL_BACK>;
  /** Commits what is queued, now */
  flush(): void;
  /** Whether all writes of the last transaction reached the disk */
  healthy(): boolean;
}

const MAX_GROUP = 64;

interface Pending {
  readonly apply: () => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  outcome: { readonly result: unknown } | { readonly error: unknown } | undefined;
}

/**
 * Group commit over one connection: one sync to the disk for all writes of a turn.
 *
 * A turn is what an arriving burst of work takes, well under 5 ms, so a lone write waits for nothing. The transaction is
 * opened, filled and committed without a pause, so no read sees a part of it.
 */
export function createGroupCommit(database: DatabaseSync): GroupCommit {
  const begin = database.prepare("BEGIN IMMEDIATE");
  const commit = database.prepare("COMMIT");
  const savepoint = database.prepare("SAVEPOINT one");
  const release = database.prepare("RELEASE one");
  const rollBackTo = database.prepare("ROLLBACK TO one");
  let queue: Pending[] = [];
  let scheduled = false;
  let healthy = true;

  /** @throws when the transaction itself is lost, as some errors of the disk do */
  function applyOne(pending: Pending): void {
    savepoint.run();
    try {
      const result = pending.apply();
      if (result === ROLL_BACK) rollBackTo.run();
      pending.outcome = { result };
    } catch (error) {
      pending.outcome = { error };
      rollBackTo.run();
    }
    release.run();
  }

  function commitGroup(group: readonly Pending[]): void {
    try {
      begin.run();
      for (const pending of group) applyOne(pending);
      commit.run();
      healthy = group.every(({ outcome }) => outcome !== undefined && "result" in outcome);
    } catch (error) {
      healthy = false;
      rollBack(database);
      const failure = new Error("Cannot write to the database: the transaction failed", { cause: error });
      for (const pending of group) pending.reject(failure);
      return;
    }
    for (const { outcome, resolve, reject } of group) {
      if (outcome !== undefined && "result" in outcome) resolve(outcome.result);
      else reject(outcome?.error);
    }
  }

  function flush(): void {
    scheduled = false;
    while (queue.length > 0) {
      const group = queue.slice(0, MAX_GROUP);
      queue = queue.slice(MAX_GROUP);
      commitGroup(group);
    }
  }

  return {
    write<T>(apply: () => T | typeof ROLL_BACK) {
      return new Promise<T | typeof ROLL_BACK>((resolve, reject) => {
        // The queue holds writes of every type; `apply` and `resolve` of one are of the same
        queue.push({ apply, resolve: resolve as (result: unknown) => void, reject, outcome: undefined });
        if (queue.length >= MAX_GROUP) flush();
        else if (!scheduled) {
          scheduled = true;
          setImmediate(flush);
        }
      });
    },
    flush,
    healthy: () => healthy,
  };
}

function rollBack(database: DatabaseSync): void {
  try {
    database.exec("ROLLBACK");
  } catch {
    // SQLite has ended the transaction by itself, as it does when the disk is full
  }
}
