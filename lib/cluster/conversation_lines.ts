import { cancelError } from "../base/cancel.ts";
import { type Clock, withTimeout } from "../base/clock.ts";
import { KeyedNotifier } from "../base/keyed_queues.ts";
import type { Patience } from "../storage/read_records.ts";
import type { Write } from "../storage/store.ts";
import { type ClusterBus, POLL_MS } from "./cluster_news.ts";
import type { JoinedGateway } from "./leases.ts";
import type { ClaimableRun, RunClaims } from "./run_claims.ts";

/** Run that this gateway owns. */
export interface OwnedRun extends ClaimableRun {
  /** This gateway, with the fence of the claim. */
  readonly own: JoinedGateway;
  /** True: the run works in its conversation. */
  holds: boolean;
  /** True: the claim of the run is written, and the run has no record yet. */
  isInLine?: boolean;
}

/** The runs that this gateway owns, as far as the lines of conversations need them, see `RunOwnership`. */
export interface OwnedRuns {
  find(runId: string): OwnedRun | undefined;
  forget(runId: string): void;
  take(run: ClaimableRun, signal: AbortSignal): Promise<void>;
  patienceOf(runId: string, signal: AbortSignal): Patience;
  tell(kind: "end", id: string): void;
}

/** Parts of `ConversationLines`. */
export interface ConversationLinesOptions {
  readonly runs: OwnedRuns;
  readonly bus: ClusterBus;
  readonly claims: RunClaims;
  readonly clock: Clock;
}

/** Pause before a place in a line is asked for again. Milliseconds */
const RETRY_MS = 250;
/** The one key of the notifier of ends: a run may wait for the end of any other. */
const ENDS = "ends";

/** The places of this gateway's runs in the lines of their conversations: of each conversation one run works at a time in the whole cluster. */
export class ConversationLines {
  readonly #runs: OwnedRuns;
  readonly #claims: RunClaims;
  readonly #clock: Clock;
  readonly #ends = new KeyedNotifier();

  constructor({ runs, bus, claims, clock }: ConversationLinesOptions) {
    this.#runs = runs;
    this.#claims = claims;
    this.#clock = clock;
    bus.onNote(({ kind }) => void (kind === "end" && this.#ends.wake(ENDS)));
  }

  /**
   * Gives an attached run its place among the runs of its conversation. A run that was claimed has one, with its conversation or without, as
   * one that was claimed to be ended and then went on.
   * @param options.mayHold true: the run has its slot, and takes its conversation when that is free
   * @param options.maxBefore open runs of the conversation that may be before it in the cluster; undefined: any number
   * @returns false when there are more: the run has no place then
   * @throws {CancelError} when the signal aborts first
   */
  async lineUp(run: ClaimableRun, { mayHold, maxBefore, signal }: {
    readonly mayHold: boolean;
    readonly maxBefore: number | undefined;
    readonly signal: AbortSignal;
  }): Promise<boolean> {
    const { conversationId } = run;
    if (conversationId === null || this.#runs.find(run.id) !== undefined) return true;
    for (;;) {
      await this.#runs.take(run, signal);
      const owned = this.#runs.find(run.id);
      if (owned === undefined) return true;
      // An attached run goes on nowhere, so any gateway may end it
      const place = { ...run, conversationId, workspace: null };
      const found = await this.#claims.lineUp(place, { own: owned.own, mayHold, maxBefore });
      if (found === "full") {
        this.#runs.forget(run.id);
        return false;
      }
      if (found !== undefined) {
        owned.isInLine = true;
        owned.holds = found === "holds";
        return true;
      }
      await this.#clock.sleep(RETRY_MS, signal);
    }
  }

  /** Tells whether a run has its conversation for itself, or has none. */
  holds(run: Pick<ClaimableRun, "id" | "conversationId">): boolean {
    return run.conversationId === null || this.#runs.find(run.id)?.holds === true;
  }

  /**
   * Resolves when a run that is in line has its conversation for itself. Waits also while the database is down.
   * @throws {CancelError} when the signal aborts first, or others own the run
   */
  async takeConversation(run: ClaimableRun, signal: AbortSignal): Promise<void> {
    const { conversationId } = run;
    for (;;) {
      const owned = this.#runs.find(run.id);
      if (owned === undefined || owned.holds) return;
      const hold = async () =>
        conversationId === null || await this.#claims.hold(conversationId, { runId: run.id, own: owned.own });
      const listening = this.#ends.listen(ENDS, signal);
      try {
        if (await this.#runs.patienceOf(run.id, signal)(hold)) {
          owned.holds = true;
          return;
        }
        await withTimeout(listening.heard, { ms: POLL_MS, clock: this.#clock });
      } finally {
        listening.stop();
      }
      if (signal.aborted) throw cancelError(signal);
    }
  }

  /** Gives back what a run that left without a record of its end still has. Never throws. */
  async leave(
    { id, conversationId }: Pick<ClaimableRun, "id" | "conversationId">,
    log: (error: unknown) => void,
  ): Promise<void> {
    const owned = this.#runs.find(id);
    this.#runs.forget(id);
    if (owned === undefined || conversationId === null || !(owned.holds || owned.isInLine)) return;
    try {
      if (owned.isInLine) await this.#claims.leaveLine({ id, conversationId }, owned);
      else await this.#claims.release(conversationId, { runId: id, own: owned.own });
      this.#runs.tell("end", id);
    } catch (error) {
      log(error);
    }
  }

  /** Ends the claim of a run without a record: it was in line for its conversation at a gateway that is gone. */
  async dismiss(runId: string): Promise<void> {
    const owned = this.#runs.find(runId);
    if (owned === undefined) return;
    // A claim that stays is found again by the next look
    this.#runs.forget(runId);
    await this.#claims.leaveLine(owned, owned);
    this.#runs.tell("end", runId);
  }

  /** Returns the id of the open run of a conversation that the cluster accepted first. Undefined: there is none */
  runIn(conversationId: string): Promise<string | undefined> {
    return this.#claims.runIn(conversationId);
  }

  /** Returns the precondition that no run works in a conversation. */
  unheld(conversationId: string): readonly Write[] {
    return this.#claims.unheld(conversationId);
  }
}
