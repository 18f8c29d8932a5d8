import type { Hooks, Message, Peer } from "crossws";
import type { ChatPeer } from "../../handlers/websocket/socket_session.ts";

/** A socket without a network: what was sent, how it was closed, and how much the reader has not taken. */
export interface SocketPeer extends ChatPeer {
  readonly sent: string[];
  bufferedAmount: number;
  closedWith: { readonly code: number; readonly reason: string } | undefined;
  terminated: boolean;
  pings: number;
  /** Receives each text that is sent */
  onSent?: (text: string) => void;
  /** Runs when the gateway has closed or ended the connection */
  onEnd?: () => void;
}

/** Options of `createSocketPeer`. */
export interface SocketPeerOptions {
  /** Bytes stay in the buffer until the test takes them out. Default false */
  readonly buffers?: boolean;
}

/** Creates a socket without a network. */
export function createSocketPeer({ buffers = false }: SocketPeerOptions = {}): SocketPeer {
  const peer: SocketPeer = {
    sent: [],
    bufferedAmount: 0,
    closedWith: undefined,
    terminated: false,
    pings: 0,
    send(text) {
      if (peer.closedWith !== undefined) throw new Error("The socket is closed");
      peer.sent.push(text);
      if (buffers) peer.bufferedAmount += new TextEncoder().encode(text).length;
      peer.onSent?.(text);
    },
    close(code, reason) {
      peer.closedWith = { code, reason };
      peer.onEnd?.();
    },
    terminate() {
      peer.terminated = true;
      peer.onEnd?.();
    },
    ping: () => void peer.pings++,
  };
  return peer;
}

/** Drives a route's hooks as crossws does; the other side answers pings. */
export function driveHooks(hooks: Partial<Hooks>, end: SocketPeer) {
  // The hooks use no more of a peer and a message than these have
  const peer = end as unknown as Peer;
  const message = (rawData: unknown) => void hooks.message?.(peer, { rawData } as unknown as Message); // the hooks read no more of it
  end.ping = () => {
    end.pings++;
    void hooks.pong?.(peer, new Uint8Array(0));
  };
  void hooks.open?.(peer);
  return {
    say: (value: unknown) => message(typeof value === "string" ? value : JSON.stringify(value)),
    sendBinary: message,
    /** The other side pings; the runtime puts the pong into the buffer */
    ping: () => void hooks.ping?.(peer, new Uint8Array(0)),
    drain: () => void hooks.drain?.(peer),
    leave: () => void hooks.close?.(peer, { code: 1006 }),
  };
}
