import type { Clock, Timer } from "../../base/clock.ts";

/** The clock, and the look that is taken again and again. */
export interface WatchServersOptions {
  readonly clock: Clock;
  /** Looks which local servers answer. One call at a time. Must not throw */
  readonly look: () => Promise<void>;
}

/** A watch over local servers: looks from time to time, and soon after a sign of a change. */
export interface ServersWatch {
  /** Looks again soon: the server in use failed to answer */
  lookSoon(): void;
  stop(): void;
}

const CALM_MS = 30_000;
/** Least time between two looks, however many requests fail */
const LEAST_MS = 1_000;

/** Starts a watch that looks each 30 s. */
export function watchServers({ clock, look }: WatchServersOptions): ServersWatch {
  let timer: Timer | undefined;
  let endedAt = Number.NEGATIVE_INFINITY;
  let looking = false;
  let wanted = false;
  let stopped = false;

  const schedule = (ms: number) => {
    timer?.clear();
    timer = clock.after(ms, () => void run());
  };
  const run = async () => {
    looking = true;
    wanted = false;
    await look();
    looking = false;
    endedAt = clock.monotonic();
    if (!stopped) schedule(wanted ? LEAST_MS : CALM_MS);
  };
  schedule(CALM_MS);
  return {
    lookSoon() {
      if (stopped || wanted) return;
      wanted = true;
      if (!looking) schedule(Math.max(0, endedAt + LEAST_MS - clock.monotonic()));
    },
    stop() {
      stopped = true;
      timer?.clear();
    },
  };
}
