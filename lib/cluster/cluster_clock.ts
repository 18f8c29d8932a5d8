import type { Clock } from "../base/clock.ts";
import type { LeaseDatabase } from "./leases.ts";

/** The time of the database, as a gateway knows it from its heartbeats. */
export interface ClusterClock {
  /** Clock whose `now` is the database's. Durations are those of this machine. */
  readonly clock: Clock;
  /** The same leases, whose readings of the time are noted. */
  readonly leases: LeaseDatabase;
}

/**
 * Creates a clock that all gateways of a cluster share, so that a gateway whose wall clock is wrong fires nothing early and ends nothing late.
 *
 * Each reading of the database's time bounds the difference between that time and this machine's monotonic clock: the time was read after the
 * question was sent, and before the answer came. The clock keeps its difference while the bounds allow it. Before the first reading `now` is
 * this machine's. A machine that slept has an older time until its next heartbeat, and the database's time is never later than that.
 */
export function createClusterClock(own: Clock, leases: LeaseDatabase): ClusterClock {
  let difference: number | undefined;
  return {
    clock: {
      now: () => difference === undefined ? own.now() : Math.floor(own.monotonic() + difference),
      monotonic: () => own.monotonic(),
      sleep: (ms, signal) => own.sleep(ms, signal),
      timeoutSignal: (ms) => own.timeoutSignal(ms),
      after: (ms, fn) => own.after(ms, fn),
      every: (ms, fn) => own.every(ms, fn),
    },
    leases: {
      store: leases.store,
      history: () => leases.history?.(),
      admit: async () => await leases.admit?.(),
      async now() {
        const asked = own.monotonic();
        const now = await leases.now();
        const earliest = now - own.monotonic();
        difference = Math.min(Math.max(difference ?? earliest, earliest), now - asked);
        return now;
      },
    },
  };
}
