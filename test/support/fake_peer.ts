import {
  createSocketPeer,
  driveHooks,
  type SocketPeer,
  type SocketPeerOptions,
} from "../../handlers/testing/socket_peer.ts";

/** The socket without a network of the testing kit, with what tests of frames read of it. */
export interface FakePeer extends SocketPeer {
  /** The code it was closed with */
  code(): number | undefined;
  /** The frames sent so far, parsed */
  // deno-lint-ignore no-explicit-any
  frames(): any[];
}

export function createFakePeer(options?: SocketPeerOptions): FakePeer {
  const peer = createSocketPeer(options);
  return Object.assign(peer, {
    code: () => peer.closedWith?.code,
    frames: () => peer.sent.map((text) => JSON.parse(text)),
  });
}

export { driveHooks };
