import { cancelError } from "../base/cancel.ts";
import { type Clock, type Timer, withTimeout } from "../base/clock.ts";
import { KeyedNotifier } from "../base/keyed_queues.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { LeaseBody } from "./cluster_records.ts";
import type { JoinedGateway, LeaseFacts, Leases } from "./leases.ts";
import {
  brokenHold,
  extended,
  held,
  type Hold,
  type Instant,
  type LeaseTerms,
  mayAct,
  mayTakeOver,
  renewalPause,
} from "./ownership.ts";

/** Options of `GatewayLease`. */
export interface GatewayLeaseOptions {
  readonly leases: Leases;
  readonly terms: LeaseTerms;
  readonly clock: Clock;
  readonly log: Logger;
  readonly id: string;
  readonly about: LeaseBody["about"];
  /** Runs when others have fenced the gateway off: nothing that it began before counts any more. Must not throw. */
  readonly onLost: (fence: number) => void;
  /** Receives each renewal that succeeded, with the milliseconds until the gateway's own deadline; 0 when it was fenced off. Must not throw. */
  readonly onBeat: (leftMs: number) => void;
}

/** Time that a stop waits for a first join that is at work. Milliseconds */
const LATE_JOIN_MS = 1_000;

/** Figures of the heartbeats of a gateway. */
export interface Heartbeats {
  /** Milliseconds until the gateway's own deadline; 0 when it has passed, and after an error. */
  readonly leftMs: number;
  /** Milliseconds that the answer to the last heartbeat took. Undefined before the first one that succeeded. */
  readonly roundTripMs: number | undefined;
  /** Heartbeats that failed since the start. */
  readonly failures: number;
  /** Times since the start that others fenced this gateway off. */
  readonly losses: number;
}

/**
 * Keeps the lease of this gateway: joins, renews it three times before its deadline, and joins again when others have fenced it off.
 *
 * Any error of a heartbeat, and an answer that does not come in time, takes the right to act away until a renewal succeeds. The next try
 * then comes four times as soon.
 */
export class GatewayLease {
  readonly #options: GatewayLeaseOptions;
  readonly #news = new KeyedNotifier();
  #hold: Hold | undefined = undefined;
  /** Fence that the gateway had last. */
  #lastFence = 0;
  #timer: Timer | undefined = undefined;
  #isStopped = false;
  /** Monotonic time until which the last renewal that succeeded lets this gateway act. An error of the heartbeat leaves it. */
  #deadline = 0;
  /** True after an error, so that the log has one line for an outage. */
  #databaseIsDown = false;
  /** Heartbeat that is at work. */
  #beating: Promise<void> | undefined = undefined;
  /** First join, while it is at work. */
  #joining: Promise<number> | undefined = undefined;
  #drain: LeaseBody["drain"] = undefined;
  #roundTripMs: number | undefined = undefined;
  #failures = 0;
  #losses = 0;
  readonly #roundTripListeners: ((ms: number) => void)[] = [];

  constructor(options: GatewayLeaseOptions) {
    this.#options = options;
  }

  /** Joins the cluster, and keeps the lease until `stop`. @throws when the database cannot be reached */
  async start(): Promise<void> {
    const { leases, id } = this.#options;
    const sentAt = this.#now();
    this.#joining = leases.join(id, this.#facts());
    const fence = await this.#joining;
    this.#joining = undefined;
    // A start that was given up gives the lease back by itself
    if (this.#isStopped) return;
    this.#take(held(fence, sentAt), sentAt);
    this.#next();
  }

  /** Returns this gateway with its fence. Undefined while it has joined no lease. */
  own(): JoinedGateway | undefined {
    return this.#hold === undefined ? undefined : { id: this.#options.id, fence: this.#hold.fence };
  }

  /** Tells whether this gateway still has a fence: as far as it knows, what it claimed under that fence is its own. */
  hasFence(fence: number): boolean {
    return this.#hold?.fence === fence;
  }

  /** Returns the name of the database's history, see `LeaseDatabase`. */
  history(): string | undefined {
    return this.#options.leases.history();
  }

  /** Returns the figures of the heartbeats. */
  heartbeats(): Heartbeats {
    const { terms } = this.#options;
    const sentAt = this.mayAct() ? this.#hold?.sentAt : undefined;
    const passed = sentAt === undefined ? 0 : this.#now().monotonic - sentAt.monotonic;
    return {
      leftMs: sentAt === undefined ? 0 : Math.max(0, terms.leaseMs - terms.marginMs - passed),
      roundTripMs: this.#roundTripMs,
      failures: this.#failures,
      losses: this.#losses,
    };
  }

  /** Calls a function with the milliseconds of each heartbeat that succeeds from now on. */
  onRoundTrip(listener: (ms: number) => void): void {
    this.#roundTripListeners.push(listener);
  }

  /** Tells the cluster how far a drain of this gateway is. */
  async announceDrain(drain: LeaseBody["drain"]): Promise<void> {
    this.#drain = drain;
    await this.#beating;
    this.#next(0);
  }

  /**
   * Joins again with the next fence: nothing counts any more that this gateway claimed before, so that others may claim it at once. Never
   * throws.
   */
  async joinAgain(drain: LeaseBody["drain"]): Promise<void> {
    this.#drain = drain;
    await this.#beating;
    if (this.#isStopped) return;
    this.#hold = undefined;
    this.#deadline = 0;
    this.#news.wake("hold");
    await this.#beat();
  }

  /** Tells whether somebody has drained this gateway: it takes no work any more. */
  isDrained(): boolean {
    return this.#drain !== undefined;
  }

  /** Tells whether the lease was given back, or will not be renewed any more. */
  isStopped(): boolean {
    return this.#isStopped;
  }

  /** Tells whether an effect may begin now. */
  mayAct(): boolean {
    return this.#hold !== undefined && mayAct(this.#hold, this.#now(), this.#options.terms);
  }

  /** Tells whether an effect may begin now under this fence. */
  mayActNowUnder(fence: number): boolean {
    return this.hasFence(fence) && this.mayAct();
  }

  /** Returns the monotonic time at which what is under way must be over, unless the lease is renewed before. */
  deadline(): number {
    return this.#deadline;
  }

  /** Tells whether others may be fenced off now. */
  mayTakeOver(): boolean {
    return this.#hold !== undefined && mayTakeOver(this.#hold, this.#now(), this.#options.terms);
  }

  /**
   * Resolves when an effect may begin under this fence.
   * @returns false when others have fenced the gateway off, or the lease was given back
   * @throws {CancelError} when the signal aborts first
   */
  async mayActUnder(fence: number, signal: AbortSignal): Promise<boolean> {
    for (;;) {
      if (!this.hasFence(fence)) return false;
      if (this.mayAct()) return true;
      if (signal.aborted) throw cancelError(signal);
      const listening = this.#news.listen("hold", signal);
      try {
        await listening.heard;
      } finally {
        listening.stop();
      }
    }
  }

  /** Gives the lease back, so that others may claim what this gateway owns at once. Never throws. */
  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#timer?.clear();
    const own = this.own() ?? await this.#joinedLate();
    this.#hold = undefined;
    this.#news.wake("hold");
    const { leases, log, clock, terms } = this.#options;
    if (own === undefined) return;
    try {
      await withTimeout(leases.leave(own), { ms: terms.leaseMs, clock });
    } catch (error) {
      log.warn("The lease could not be given back: the other gateways wait until it has run out", { error });
    }
  }

  /** Returns this gateway with the fence of a first join that is still at work, if it comes soon. */
  async #joinedLate(): Promise<JoinedGateway | undefined> {
    const { id, clock } = this.#options;
    if (this.#joining === undefined) return undefined;
    const fence = await withTimeout(this.#joining.catch(() => undefined), { ms: LATE_JOIN_MS, clock });
    return fence === undefined ? undefined : { id, fence };
  }

  /** Ends the heartbeats and leaves the lease as it is, as when the process dies. */
  abandon(): void {
    this.#isStopped = true;
    this.#timer?.clear();
    this.#hold = undefined;
    this.#news.wake("hold");
  }

  #beat(): Promise<void> {
    this.#timer?.clear();
    return this.#beating = this.#beatOnce().finally(() => this.#beating = undefined);
  }

  async #beatOnce(): Promise<void> {
    const { leases, id, clock, terms, log } = this.#options;
    const sentAt = this.#now();
    const hold = this.#hold;
    const own = this.own();
    const facts = this.#facts();
    const asking: Promise<number | boolean> = own === undefined
      ? leases.join(id, facts, this.#lastFence)
      : leases.renew(own, facts);
    try {
      // An answer that comes later counts for nothing
      const answer = await withTimeout(asking, { ms: terms.leaseMs - terms.marginMs, clock });
      if (this.#isStopped) return;
      if (answer === undefined) throw new Error("The database did not answer in time");
      if (answer === false) return this.#onFenced();
      this.#take(hold === undefined ? held(Number(answer), sentAt) : extended(hold, sentAt, terms), sentAt);
      if (this.#databaseIsDown) log.info("The lease is renewed again", { gateway: id });
      this.#databaseIsDown = false;
    } catch (error) {
      asking.catch(() => {});
      if (this.#isStopped) return;
      this.#failures++;
      if (this.#hold !== undefined) this.#hold = brokenHold(this.#hold);
      if (!this.#databaseIsDown) log.error("The lease could not be renewed: no effect begins until it is", { error });
      this.#databaseIsDown = true;
    }
    this.#next();
  }

  #facts(): LeaseFacts {
    const drain = this.#drain;
    return { about: this.#options.about, ...drain !== undefined && { drain } };
  }

  #take(hold: Hold, sentAt: Instant): void {
    const { clock, terms, onBeat } = this.#options;
    this.#hold = hold;
    this.#lastFence = hold.fence;
    const passed = clock.monotonic() - sentAt.monotonic;
    const leftMs = terms.leaseMs - terms.marginMs - passed;
    this.#roundTripMs = passed;
    for (const listener of this.#roundTripListeners) listener(passed);
    this.#deadline = clock.monotonic() + leftMs;
    onBeat(leftMs);
    this.#news.wake("hold");
  }

  #onFenced(): void {
    const { onLost, onBeat, log, id, leases } = this.#options;
    const fence = this.#hold?.fence ?? 0;
    this.#hold = undefined;
    this.#deadline = 0;
    this.#losses++;
    log.error(
      leases.hasOtherHistory(id)
        ? "The database goes on with another history, as after a failover: the runs of this gateway are claimed again"
        : "Another gateway has taken over the runs of this one, whose lease had run out",
      { gateway: id, fence },
    );
    onBeat(0);
    onLost(fence);
    this.#news.wake("hold");
    this.#next(0);
  }

  #next(pause?: number): void {
    if (this.#isStopped) return;
    const usual = renewalPause(this.#options.terms);
    this.#timer?.clear();
    this.#timer = this.#options.clock.after(
      pause ?? (this.#databaseIsDown ? usual / 4 : usual),
      () => void this.#beat(),
    );
  }

  #now(): Instant {
    const { clock } = this.#options;
    return { monotonic: clock.monotonic(), wall: clock.now() };
  }
}
