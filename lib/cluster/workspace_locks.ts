import { relative } from "node:path";
import { CancelError, cancelError } from "../base/cancel.ts";
import { Backoff, type Clock } from "../base/clock.ts";
import { ToolError } from "../base/errors.ts";
import { canonicalDigest } from "../base/json.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { UnknownWriteError } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import type { FileGuard, FileLocks } from "../system/files/files.ts";
import { FILE_LOCKS, type LockBody } from "./cluster_records.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import { fenceCheck, isOwned, type JoinedGateway, type Leases } from "./leases.ts";
import type { WorkspaceMembership } from "./workspace_membership.ts";

/** Options of `WorkspaceLocks`. */
export interface WorkspaceLocksOptions {
  readonly store: Store;
  readonly leases: Leases;
  readonly lease: GatewayLease;
  readonly membership: Pick<WorkspaceMembership, "id" | "isShared">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Locks of one change of files, each a key of a record. */
interface ChangeLocks {
  readonly keys: readonly string[];
  readonly own: JoinedGateway;
  /** Number of the change among those of this gateway. */
  readonly change: number;
}

/** Longest wait for a lock, and the pauses between two tries. Milliseconds */
const WAIT_MS = 30_000;
const PAUSES = { firstMs: 50, mostMs: 500 } as const;
/** Pause before a lock is given back again that could not be. Milliseconds */
const AGAIN_MS = 1_000;

/**
 * Locks of files as records, for the gateways of one workspace. All locks of a change are taken in one batch or none, so that no two changes
 * wait for each other. A lock counts while its gateway has its fence. Where no other gateway has the workspace, no record is written.
 */
export class WorkspaceLocks implements FileLocks {
  readonly #options: WorkspaceLocksOptions;
  #changes = 0;

  constructor(options: WorkspaceLocksOptions) {
    this.#options = options;
  }

  isShared(): boolean {
    return this.#options.membership.isShared();
  }

  async hold<T>(
    paths: readonly string[],
    { workspaceRoot, signal }: { readonly workspaceRoot: string; readonly signal: AbortSignal },
    work: (guard: FileGuard) => Promise<T>,
  ): Promise<T> {
    const { lease } = this.#options;
    const isShared = this.isShared();
    const own = await this.#joined(signal);
    const mayChange = async () => {
      if (await lease.mayActUnder(own.fence, signal)) return;
      throw new CancelError("shutdown", "Another gateway may change the files of this one's runs by now");
    };
    await mayChange();
    if (!isShared) return await work({ isShared, mayChange });
    const keys = [...new Set(paths.map((path) => this.#keyOf(relative(workspaceRoot, path))))].sort();
    const locks = { keys, own, change: ++this.#changes };
    const taken = await this.#take(locks, signal).catch((error: unknown) => {
      // The locks may be there all the same
      if (error instanceof UnknownWriteError) void this.#takeBack(locks);
      throw error;
    });
    try {
      return await work({ isShared, mayChange });
    } finally {
      await this.#giveBack(locks, taken);
    }
  }

  /** Returns this gateway with its fence, once it has one. @throws {CancelError} when the signal aborts first, or the lease was given back */
  async #joined(signal: AbortSignal): Promise<JoinedGateway> {
    const { lease, clock } = this.#options;
    for (;;) {
      const own = lease.own();
      if (own !== undefined) return own;
      if (signal.aborted) throw cancelError(signal);
      if (lease.isStopped()) throw new CancelError("shutdown");
      await clock.sleep(PAUSES.mostMs, signal).catch(() => {});
    }
  }

  /** Takes all locks. @returns the versions of their records, by key */
  async #take(locks: ChangeLocks, signal: AbortSignal): Promise<ReadonlyMap<string, number>> {
    const { store, clock, lease } = this.#options;
    const { own } = locks;
    const end = clock.monotonic() + WAIT_MS;
    for (const backoff = new Backoff(PAUSES);;) {
      const found = await this.#lookAt(locks);
      if ("writes" in found && await store.batch([fenceCheck(own), ...found.writes])) return found.versions;
      if (clock.monotonic() >= end) throw locked("holder" in found ? found.holder : "another one");
      await clock.sleep(backoff.next(), signal).catch(() => {});
      if (signal.aborted) throw cancelError(signal);
      if (!lease.hasFence(own.fence)) throw new CancelError("shutdown");
    }
  }

  /** Returns the writes that take all locks, with the versions of the records after them, or the gateway that has one of the locks. */
  async #lookAt(
    { keys, own, change }: ChangeLocks,
  ): Promise<
    | { readonly writes: readonly Write[]; readonly versions: ReadonlyMap<string, number> }
    | { readonly holder: string }
  > {
    const { store, leases } = this.#options;
    const body: LockBody = { v: 1, gateway: own.id, fence: own.fence, change };
    const writes: Write[] = [];
    const versions = new Map<string, number>();
    for (const key of keys) {
      const found = await FILE_LOCKS.read(store, key);
      versions.set(key, (found?.version ?? 0) + 1);
      if (found === undefined) {
        writes.push(FILE_LOCKS.insert(key, body));
        continue;
      }
      const { gateway } = found.value;
      // Changes of one file of this gateway come one after the other: an own lock is left of one that has ended
      if (gateway !== own.id && isOwned(found.value, await leases.fences([gateway]))) return { holder: gateway };
      writes.push(FILE_LOCKS.putOver(key, found.version, body));
    }
    return { writes, versions };
  }

  /** Gives the locks of a change back, in one batch. */
  async #giveBack(locks: ChangeLocks, taken: ReadonlyMap<string, number>): Promise<void> {
    const { store, log } = this.#options;
    const deletes = [...taken].flatMap(([key, version]) => deleteOf(key, version));
    try {
      // Without the fence the locks count for nobody, and others may have taken them
      if (await store.batch([fenceCheck(locks.own), ...deletes])) return;
    } catch (error) {
      log.warn("Locks of files could not be given back: it is tried again", { error });
      return this.#takeBackLater(locks);
    }
    await this.#takeBack(locks);
  }

  /**
   * Gives back what is left of the locks of a change. A later change of this gateway may have taken them meanwhile, and another gateway those
   * that were never there. While it fails it is tried again: others wait as long as this gateway has its fence.
   */
  async #takeBack(locks: ChangeLocks): Promise<void> {
    const { store, log } = this.#options;
    const { keys, own, change } = locks;
    try {
      for (const key of keys) {
        const found = await FILE_LOCKS.tryRead(store, key);
        const { value } = found ?? {};
        const isLeft = value?.gateway === own.id && value.fence === own.fence && value.change === change;
        if (found !== undefined && isLeft) await store.batch([fenceCheck(own), ...deleteOf(key, found.version)]);
      }
    } catch (error) {
      log.warn("Locks of files could not be given back: it is tried again", { error });
      this.#takeBackLater(locks);
    }
  }

  #takeBackLater(locks: ChangeLocks): void {
    const { lease, clock } = this.#options;
    clock.after(AGAIN_MS, () => void (lease.hasFence(locks.own.fence) && this.#takeBack(locks)));
  }

  #keyOf(path: string): string {
    return `${this.#options.membership.id}/${canonicalDigest(path)}`;
  }
}

/** Returns the writes that delete a record of a version. */
function deleteOf(key: string, version: number): readonly Write[] {
  return [FILE_LOCKS.check(key, version), FILE_LOCKS.remove(key)];
}

function locked(holder: string): ToolError {
  return new ToolError(
    "file_locked",
    `Cannot change the files: the gateway ${holder} has changed one of them for more than ${
      WAIT_MS / 1_000
    } s; try again later`,
  );
}
