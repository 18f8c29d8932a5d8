import type { ClaimableRun } from "../../cluster/run_claims.ts";
import { POLL_MS } from "../../cluster/cluster_news.ts";
import type { Cluster } from "../../cluster/join_cluster.ts";
import type { RunOwnership } from "../../cluster/run_ownership.ts";
import { MAX_STRANDED } from "../../cluster/work_claims.ts";
import { takenOver } from "../../cluster/work_hold.ts";
import { CancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { Poller } from "../../base/poller.ts";
import { isEnded } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { isStorageAway } from "../../storage/read_records.ts";
import { OPEN_RUNS, workspaceOf } from "../journal/run_records.ts";
import type { RunStore } from "../journal/run_store.ts";
import { endInterrupted, type RecoverOptions, recoverRun, settleRun } from "../recovery/recover_runs.ts";
import type { ActiveRun } from "./active_run.ts";
import type { ActiveRuns, RunQueue } from "./run_queue.ts";

/** Cluster, and the parts of a supervisor that claimed runs are taken up with. */
export interface RunClaimerOptions {
  readonly cluster: Cluster;
  readonly runs: RunStore;
  readonly active: ActiveRuns<ActiveRun>;
  readonly queue: RunQueue;
  /** Tells whether the tokens of a run are limited: its sub-agents then work at its gateway, within its budget. Default: they are not */
  readonly hasRunBudget?: (() => boolean) | undefined;
  readonly recovery: RecoverOptions;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Claimed runs that are read at the same time. */
const TAKEN_UP_AT_ONCE = 8;

/**
 * Claims runs of the cluster that wait, and those of gateways that are gone. A claimed run goes on here, waits for its workspace, or ends.
 *
 * A look claims and takes up what there is, and looks follow each other: one after news, and a whole one each second in case a note was lost.
 */
export class RunClaimer {
  readonly #options: RunClaimerOptions;
  readonly #ownership: RunOwnership;
  readonly #poller: Poller;
  /** True: the next look is a whole one, as once a second. */
  #isWholeDue = false;
  /** True: the database was down when a claimed run was taken up, so news waits for the next whole look. */
  #isBroken = false;
  #isStopped = false;
  /** Runs that could not be read: they stay for a person. */
  readonly #unreadable = new Set<string>();
  #hasAdopted = false;

  constructor(options: RunClaimerOptions) {
    this.#options = options;
    this.#ownership = options.cluster.ownership;
    this.#poller = new Poller(() => this.#look(), (error) => {
      options.log.error("Runs cannot be claimed: the gateway tries again each second", { error });
    });
  }

  /** Begins to claim. Resolves after the first look. */
  async start(): Promise<void> {
    const { cluster, clock } = this.#options;
    cluster.onTakeover(() => void this.look("whole"));
    this.#ownership.onLost((ids) => this.#onLost(ids));
    // A gateway whose lease has run out is noticed half a lease later at the latest. A whole look follows one after news that is at work
    this.#poller.start(clock, Math.min(POLL_MS, this.#ownership.leaseMs / 2), () => void this.look("whole"));
    await this.look("whole");
  }

  /** Ends the claiming, for a shutdown. Resolves when the look at work has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#poller.stop();
  }

  /** Tells whether the claiming was ended. */
  isStopped(): boolean {
    return this.#isStopped;
  }

  /** Looks for runs to claim, now or right after the look at work. Resolves when that look has ended. */
  look(due: "news" | "whole" = "news"): Promise<void> {
    if (due === "whole") this.#isWholeDue = true;
    return this.#poller.look();
  }

  /** Looks after a slot has become free, when the last look left runs waiting. Each run that comes to wait later has a note of its own. */
  lookForWaiting(): void {
    if (this.#ownership.queue().waiting > 0) void this.look();
  }

  /** Claims a run that was cancelled and that no gateway owns, and ends it. Does nothing for a run that has an owner. */
  async endUnowned(id: string): Promise<void> {
    const run = await this.#ownership.claimToEnd(id);
    if (run !== undefined) await this.#takeUp(run);
  }

  /** Ends a run at work here when its record says that somebody has cancelled it; else a message may wait for the run. Never throws. */
  async readSignal(id: string): Promise<void> {
    const { active, runs, log } = this.#options;
    try {
      const entry = active.find(id);
      if (await runs.isCancelled(id) !== true) return entry?.steering?.onMessage();
      const isInterrupted = entry?.steering !== undefined && await runs.isInterrupted(id);
      entry?.abort(new CancelError(isInterrupted ? "interrupted" : "cancelled"));
    } catch (error) {
      log.warn("A cancellation could not be read: it is read again in a second", { run_id: id, error });
    }
  }

  async #look(): Promise<void> {
    if (this.#isBroken && !this.#isWholeDue) return;
    const { queue, active } = this.#options;
    const isWhole = this.#isWholeDue || (this.#ownership.queue().hasAbandoned && queue.freeSlots() > 0);
    this.#isWholeDue = this.#isBroken = false;
    if (isWhole) {
      await this.#adopt();
      for (const id of await this.#ownership.signals()) await this.readSignal(id);
    }
    const claimed = await this.#ownership.claim({
      isWhole,
      limit: queue.freeSlots(),
      staysWithParent: this.#options.hasRunBudget?.() ?? false,
      // A child of a run at work here takes no slot, and its parent may wait for it
      takesNoSlot: ({ parentId }) => parentId !== null && active.find(parentId) !== undefined,
      isKnown: (id) => active.find(id) !== undefined || this.#unreadable.has(id),
    });
    for (let next = 0; next < claimed.length; next += TAKEN_UP_AT_ONCE) {
      await Promise.all(claimed.slice(next, next + TAKEN_UP_AT_ONCE).map((run) => this.#takeUp(run)));
    }
    if (isWhole) await this.#strand();
  }

  /** Takes the runs into the cluster that a gateway alone left open, once: their records may have been moved here. */
  async #adopt(): Promise<void> {
    if (this.#hasAdopted) return;
    const { log } = this.#options;
    const adopted = await this.#ownership.adopt(OPEN_RUNS.name, async (id) => {
      try {
        return await this.#toClaimable(id);
      } catch (error) {
        if (isStorageAway(error)) throw error;
        log.error("An open run cannot be read: it stays for a person", { run_id: id, error });
        return undefined;
      }
    });
    if (adopted > 0) log.info("Open runs of a gateway alone were taken into the cluster", { runs: adopted });
    this.#hasAdopted = true;
  }

  /** Returns an open run of a gateway alone. Its files are most likely where the first gateway of the cluster is. */
  async #toClaimable(id: string): Promise<ClaimableRun | undefined> {
    const { runs } = this.#options;
    const run = await runs.get(id);
    if (run === undefined) return undefined;
    const input = await runs.input(id);
    const workspace = input?.durable === true ? workspaceOf(input) ?? this.#ownership.workspace() : null;
    return { id, conversationId: run.conversation_id, parentId: run.parent_id, workspace };
  }

  /** Claims runs whose workspace has no gateway, to let them wait, or to end those that have waited long enough. */
  async #strand(): Promise<void> {
    const { cluster } = this.#options;
    const end = cluster.clock.now() - cluster.workspaceWaitMs;
    const due = this.#ownership.stranded().filter(({ since }) => since === undefined || since <= end);
    let taken = 0;
    for (const { id, since } of due.slice(0, MAX_STRANDED)) {
      const run = await this.#ownership.claimToEnd(id);
      if (run !== undefined && await this.#takeUp(run, since)) taken++;
    }
    // A look that has done nothing, as while this gateway may not act, would go round for ever
    if (taken > 0 && due.length > MAX_STRANDED) void this.look("whole");
  }

  /**
   * Lets a claimed run go on, or ends it. A run of another workspace waits for a gateway of that workspace, or ends after its time.
   * @param since time since which the workspace has no gateway. Undefined: that was just found
   */
  async #settle(run: ClaimableRun, since: number | undefined): Promise<void> {
    const { runs, recovery, cluster, log } = this.#options;
    const { id, workspace } = run;
    const found = await runs.get(id);
    // A gateway that did not know of the run's end has written its claim again
    if (found !== undefined && isEnded(found.status)) return await this.#ownership.lines.dismiss(id);
    const open = { id, cancelled: await runs.isCancelled(id) };
    if (this.#ownership.mayWorkIn(workspace)) {
      const isBack = found?.waiting_for !== undefined;
      if (isBack) await runs.setWaiting(id, undefined, this.#ownership.comingBack(id));
      return await recoverRun(open, recovery);
    }
    const interrupted = await settleRun(open, recovery);
    if (interrupted === undefined) return;
    const { workspaceWaitMs, clock } = cluster;
    if (since !== undefined && since <= clock.now() - workspaceWaitMs) {
      return await endInterrupted(interrupted, workspaceIsGone(workspaceWaitMs), recovery);
    }
    if (!await runs.setWaiting(id, "workspace", [this.#ownership.stranding(run, since ?? clock.now())])) return;
    log.warn("A run waits for its workspace, which has no gateway", { run_id: id, workspace });
  }

  /**
   * Takes up a claimed run. Never throws.
   * @returns false for a run that cannot be taken up now: it is claimed again at the next look, or stays for a person
   */
  async #takeUp(run: ClaimableRun, since?: number): Promise<boolean> {
    const { active } = this.#options;
    const { id } = run;
    let isTakenUp = false;
    try {
      if (!this.#ownership.isLost(id)) {
        await this.#settle(run, since);
        isTakenUp = true;
      }
    } catch (error) {
      if (await this.#staysForPerson(id, error)) return false;
    }
    // The lease may have been lost while the run was read: others may own it, and have it begun
    const entry = active.find(id);
    if (entry === undefined) this.#ownership.forget(id);
    else if (this.#ownership.isLost(id)) entry.abort(takenOver("run"));
    return isTakenUp;
  }

  /** Looks why a claimed run could not be taken up. @returns true for a run that cannot be read: it stays with this gateway, for a person */
  async #staysForPerson(id: string, error: unknown): Promise<boolean> {
    const isDown = isStorageAway(error);
    if (isDown) this.#isBroken = true;
    if (isDown || await this.#isDismissed(id) || this.#ownership.isLost(id)) return false;
    this.#unreadable.add(id);
    this.#options.log.error("Claimed run could not be taken up", { run_id: id, error });
    return true;
  }

  /** Ends the claim of a run without a record. @returns false for a run with a record, which may be one that cannot be read */
  async #isDismissed(id: string): Promise<boolean> {
    try {
      if (await this.#options.runs.get(id) !== undefined) return false;
      await this.#ownership.lines.dismiss(id);
      return true;
    } catch (error) {
      return isStorageAway(error);
    }
  }

  #onLost(ids: readonly string[]): void {
    const { active, runs } = this.#options;
    for (const id of ids) {
      runs.forget(id);
      active.find(id)?.abort(takenOver("run"));
      // A run that is just being taken up keeps the fence of its claim until that has ended
      if (this.#unreadable.delete(id)) this.#ownership.forget(id);
    }
  }
}

/** Returns the end of a run whose workspace has no gateway for too long. */
function workspaceIsGone(waitMs: number) {
  const message =
    `Cannot go on: its tools need a workspace that had no gateway for ${
      waitMs / 1_000
    } s; start a gateway of that workspace ` +
    "in time, or raise [cluster] workspace_wait_secs";
  return { code: "workspace_unavailable", message };
}
