import type { Clock } from "../../lib/base/clock.ts";
import type { Caller } from "../../lib/base/records/caller.ts";
import type { Config } from "../../lib/config/config.ts";
import type { Services } from "../../lib/services.ts";
import { checkCertainty, type Door, patienceOf, refuseWhileDraining, type StandingParts } from "../door.ts";

/** Close code of a shutdown. Source: RFC 6455 section 7.4.1 */
export const GOING_AWAY = 1001;

/** Close code for a peer whose token is no longer valid. Source: RFC 6455 section 7.4.1 */
export const POLICY_VIOLATION = 1008;

/** An open socket, as the server sees it. */
export interface OpenSocket {
  /** Id of the token that opened the socket; null while pairing is off */
  readonly tokenId: string | null;
  /** Tells whether a run of this socket is at work or waits */
  busy(): boolean;
  /** Closes the socket. `reason` has 123 bytes at most */
  close(code: number, reason: string): void;
}

/** The open sockets of one gateway, and what each of them asks of it. */
export interface Sockets {
  /** Refuses a handshake once the gateway drains. @throws {HttpError} 503 shutting_down */
  checkOpen(action: string): void;
  /** Returns the limits that count for a socket which opens now. */
  limits(): Config["gateway"]["websocket"];
  /** Makes certain which tokens count, as long as a door waits for that. Undefined: it is certain */
  confirm(door: Pick<Door, "steady">, caller: Pick<Caller, "tokenId">): Promise<void> | undefined;
  /** See checkCertainty. @throws {HttpError} 503 storage_unavailable */
  checkCertainty(door: Door, caller: Pick<Caller, "tokenId">): void;
  /** Uses the token of a socket. Returns false when it counts no more. */
  useToken(caller: Pick<Caller, "tokenId">): boolean;
  add(socket: OpenSocket): void;
  remove(socket: OpenSocket): void;
  count(): number;
  /** Closes the sockets of a token with 1008, also those with a run at work */
  closeRevoked(tokenId: string): void;
  /** Tells whether `closeIdle` was called: a socket then closes as soon as its run has ended */
  draining(): boolean;
  /** Closes sockets without a run with 1001, the others after theirs. For the start of a shutdown */
  closeIdle(): void;
  /** Closes all sockets with 1001, also those with a run at work. For the end of the grace period */
  closeAll(): void;
}

/** Services of the gateway that its open sockets need. */
export interface SocketServices extends Pick<Services, "metrics" | "config" | "isDraining" | "stateReason"> {
  readonly tokens: StandingParts["tokens"] & Pick<Services["tokens"], "isShared" | "use" | "onRevoke">;
}

const REASON = "The gateway is shutting down";
/** Reason of a close with 1008. */
export const REVOKED = "The token of this socket was revoked or has expired";

/**
 * Creates the list of a gateway's open sockets, with the gauge `postern_ws_connections`. The sockets of a token are closed with 1008 when
 * the token is revoked.
 */
export function createSockets(services: SocketServices): Sockets {
  const { metrics, tokens, config } = services;
  const open = new Set<OpenSocket>();
  let draining = false;
  const sockets: Sockets = {
    checkOpen: (action) => refuseWhileDraining(services, action),
    limits: () => config().gateway.websocket,
    confirm: (door, { tokenId }) =>
      tokens.isShared ? tokens.confirm({ tokenId }, { maxMs: patienceOf(door, config()) }) : undefined,
    checkCertainty: (door, caller) => checkCertainty(door, caller, services),
    useToken: ({ tokenId }) => tokens.use(tokenId),
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
  metrics.gaugeOf("postern_ws_connections", "Open WebSocket connections", sockets.count);
  tokens.onRevoke(sockets.closeRevoked);
  return sockets;
}

/** Options of `watchPeer`. Durations in milliseconds. */
export interface WatchOptions {
  readonly clock: Clock;
  readonly heartbeatMs: number;
  readonly pongTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Sends a ping; undefined on a runtime without ping, whose own idle timeout serves */
  readonly ping: (() => void) | undefined;
  /** Tells whether a run is at work. Such a socket is not idle */
  readonly busy: () => boolean;
  /** Runs when the peer has left a ping unanswered for `pongTimeoutMs` */
  readonly onDead: () => void;
  /** Runs when the client has sent nothing for `idleTimeoutMs` while no run was at work */
  readonly onIdle: () => void;
}

/** Watches over one socket until it is stopped (docs/design/websocket.md "Limits"). */
export interface Watch {
  /** Call it when a pong came */
  alive(): void;
  /** Call it when the client sent a frame, or a run ended */
  active(): void;
  stop(): void;
}

/** Starts the heartbeat and the idle timer of a socket. */
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
