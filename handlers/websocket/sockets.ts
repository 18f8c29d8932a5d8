import type { Clock } from "../../lib/base/clock.ts";
import type { Services } from "../../lib/gateway.ts";

/** Why the server closes a socket. Source: RFC 6455 section 7.4.1 */
export const GOING_AWAY = 1001;

/** The peer breaks the rules, here: its token is no longer one. Source: RFC 6455 section 7.4.1 */
export const POLICY_VIOLATION = 1008;

/** An open socket, as the server sees it. */
export interface OpenSocket {
  /** Of the token it was opened with; null while pairing is off */
  readonly tokenId: string | null;
  /** Whether a run is at work or waits on it */
  busy(): boolean;
  /** Closes it; `reason` has 123 bytes at most */
  close(code: number, reason: string): void;
}

/** The open sockets of one gateway. */
export interface Sockets {
  add(socket: OpenSocket): void;
  remove(socket: OpenSocket): void;
  count(): number;
  /** Closes the sockets of a token with 1008, whatever they do */
  closeRevoked(tokenId: string): void;
  /** Whether `closeIdle` was called: a socket then closes as soon as its run has ended */
  draining(): boolean;
  /** Closes sockets without a run with 1001, the others after theirs. For the start of a shutdown */
  closeIdle(): void;
  /** Closes all with 1001, whatever they do. For the end of the grace */
  closeAll(): void;
}

const REASON = "The gateway is shutting down";
/** Reason of a close with 1008. */
export const REVOKED = "The token of this socket was revoked or has expired";
const gateways = new WeakMap<Services, Sockets>();

/**
 * The registry that belongs to these services, made when first asked for, with the gauge `postern_ws_connections`. Its sockets are
 * closed with 1008 when their token is revoked.
 */
export function socketsOf(services: Services): Sockets {
  const known = gateways.get(services);
  if (known !== undefined) return known;
  const made = createSockets();
  services.metrics.gaugeOf("postern_ws_connections", "Open WebSocket connections", made.count);
  services.tokens.onRevoke(made.closeRevoked);
  gateways.set(services, made);
  return made;
}

function createSockets(): Sockets {
  const open = new Set<OpenSocket>();
  let draining = false;
  return {
    add: (socket) => void open.add(socket),
    remove: (socket) => void open.delete(socket),
    count: () => open.size,
    closeRevoked(tokenId) {
      for (const socket of [...open]) if (socket.tokenId === tokenId) socket.close(POLICY_VIOLATION, REVOKED);
    },
    draining: () => draining,
    closeIdle() {
      draining = true;
      for (const socket of [...open]) if (!socket.busy()) socket.close(GOING_AWAY, REASON);
    },
    closeAll() {
      draining = true;
      for (const socket of [...open]) socket.close(GOING_AWAY, REASON);
    },
  };
}

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
