import type { Clock } from "../base/clock.ts";
import { Poller } from "../base/poller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { POLL_MS } from "./cluster_news.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import type { Leases } from "./leases.ts";

/** Options of `Takeovers`. */
export interface TakeoversOptions {
  readonly leases: Pick<Leases, "fenceOff" | "forgetGone">;
  readonly lease: Pick<GatewayLease, "own" | "mayTakeOver">;
  /** Milliseconds of a lease. */
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Time from one removal of gateways that are gone to the next. Milliseconds */
const FORGET_EVERY_MS = 60_000;
/** Time after which the last look says nothing any more. Milliseconds */
const STALE_MS = 5 * POLL_MS;

/**
 * Fences off the gateways whose leases have run out, and forgets those that are gone. Every gateway does, also one that is drained or has no
 * agent: what a gateway that died had claimed, such as locks of files and its chain of the audit, would otherwise count for ever.
 */
export class Takeovers {
  readonly #options: TakeoversOptions;
  readonly #listeners: (() => void)[] = [];
  readonly #poller: Poller;
  #count = 0;
  #forgetAt = 0;
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(options: TakeoversOptions) {
    this.#options = options;
    this.#poller = new Poller(() => this.#look(), (error) => {
      options.log.error("Gateways that are gone cannot be looked for: the gateway tries again each second", { error });
    });
  }

  /** Begins to look: at least once a second, so that a lease that has run out is noticed half a lease later at the latest. */
  start(): void {
    const { clock, leaseMs } = this.#options;
    this.#lookedAt = clock.monotonic();
    this.#poller.start(clock, Math.min(POLL_MS, leaseMs / 2));
  }

  /** Ends the looks. Resolves when one that is at work has ended. */
  stop(): Promise<void> {
    return this.#poller.stop();
  }

  /** Calls a function each time that gateways were fenced off, so that nobody owns their work any more. It must not throw. */
  onTakeover(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Returns how many gateways this one has fenced off. */
  count(): number {
    return this.#count;
  }

  /** Tells whether no look has succeeded for some seconds, as while the database is down. */
  isStale(): boolean {
    return this.#options.clock.monotonic() - this.#lookedAt > STALE_MS;
  }

  async #look(): Promise<void> {
    const { leases, lease, clock, log } = this.#options;
    const own = lease.own();
    if (own === undefined || !lease.mayTakeOver()) return;
    const off = await leases.fenceOff(own);
    this.#lookedAt = clock.monotonic();
    this.#count += off.length;
    for (const gateway of off) log.warn("A gateway is gone: its runs are taken over", { gateway });
    if (off.length > 0) { for (const listener of this.#listeners) listener(); }
    if (clock.monotonic() >= this.#forgetAt) {
      this.#forgetAt = clock.monotonic() + FORGET_EVERY_MS;
      await leases.forgetGone(own);
    }
  }
}
