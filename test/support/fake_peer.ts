import type { Hooks, Message, Peer } from "crossws";
import type { ChatPeer } from "../../handlers/websocket/socket_session.ts";

/** A socket without a network: what was sent, how it was closed, and how much the reader has not taken. */
export interface FakePeer extends ChatPeer {
  readonly sent: string[];
  bufferedAmount: number;
  closedWith: { readonly code: number; readonly reason: string } | undefined;
  terminated: boolean;
  pings: number;
  /** The code it was closed with */
  code(): number | undefined;
  /** The frames sent so far, parsed */
  // deno-lint-ignore no-explicit-any
  frames(): any[];
}

export interface FakePeerOptions {
  /** Bytes stay in the buffer until the test takes them out. Default false */
  readonly buffers?: boolean;
}

export function createFakePeer({ buffers = false }: FakePeerOptions = {}): FakePeer {
  const peer: FakePeer = {
    sent: [],
    bufferedAmount: 0,
    closedWith: undefined,
    terminated: false,
    pings: 0,
    send(text) {
      if (peer.closedWith !== undefined) throw new Error("The socket is closed");
      peer.sent.push(text);
      if (buffers) peer.bufferedAmount += Buffer.byteLength(text);
    },
    close: (code, reason) => void (peer.closedWith = { code, reason }),
    terminate: () => void (peer.terminated = true),
    ping: () => void peer.pings++,
    code: () => peer.closedWith?.code,
    frames: () => peer.sent.map((text) => JSON.parse(text)),
  };
  return peer;
}

/** Drives a route's hooks as crossws does; the other side answers pings. */
export function connect(hooks: Partial<Hooks>, fake: FakePeer) {
  // The hooks use no more of a peer and a message than these have
  const peer = fake as unknown as Peer;
  const message = (rawData: unknown) => void hooks.message?.(peer, { rawData } as unknown as Message);
  fake.ping = () => {
    fake.pings++;
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
