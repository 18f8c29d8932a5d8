import type { Clock } from "../../lib/base/clock.ts";

export interface WatchOptions {
  readonly clock: Clock;
  readonly heartbeatMs: number;
  readonly pongTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** undefined where the runtime has no ping: its own idle timeout serves there */
  readonly ping: (() => void) | undefined;
  /** Whether a run is at work: such a socket is not idle */
  readonly busy: () => boolean;
  /** The peer left a ping unanswered for `pongTimeoutMs` */
  readonly onDead: () => void;
  /** Nothing was said for `idleTimeoutMs` while no run was at work */
  readonly onIdle: () => void;
}

/** Watches over one socket until it is stopped (docs/design/websocket.md "Limits"). */
export interface Watch {
  /** A pong came */
  alive(): void;
  /** The client said something, or a run ended */
  active(): void;
  stop(): void;
}

export function watchPeer(options: WatchOptions): Watch {
  const { clock } = options;
  let unansweredSince: number | undefined;
  let lastActive = clock.monotonic();
  const heartbeat = options.ping === undefined ? undefined : clock.every(options.heartbeatMs, () => {
    const now = clock.monotonic();
    if (unansweredSince !== undefined && now - unansweredSince >= options.pongTimeoutMs) return options.onDead();
    unansweredSince ??= now;
    options.ping?.();
  });
  const idleAfter = (ms: number) =>
    clock.after(ms, () => {
      const quiet = options.busy() ? 0 : clock.monotonic() - lastActive;
      if (quiet >= options.idleTimeoutMs) return options.onIdle();
      idle = idleAfter(options.idleTimeoutMs - quiet);
    });
  let idle = idleAfter(options.idleTimeoutMs);
  return {
    alive() {
      unansweredSince = undefined;
    },
    active() {
      unansweredSince = undefined;
      lastActive = clock.monotonic();
    },
    stop() {
      heartbeat?.clear();
      idle.clear();
    },
  };
}
