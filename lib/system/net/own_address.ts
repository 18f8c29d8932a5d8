import type { OwnGateway } from "./guarded_fetch.ts";
import { isLoopbackName } from "./address.ts";

/** Address of this gateway, known once a port is open. */
export interface OwnAddress {
  /** Takes the port that the gateway listens on. */
  listensOn(port: number): void;
  /** Returns what a guarded fetch must know of the gateway; undefined while no port is open. */
  gateway(): OwnGateway | undefined;
  /** Tells whether an origin is this gateway. */
  isOwn(origin: string): boolean;
}

/**
 * Creates the address of a gateway that listens on no port yet.
 * @param publicPaths paths of the gateway that anyone may read
 */
export function createOwnAddress(publicPaths: readonly string[]): OwnAddress {
  let ownPort: number | undefined;
  return {
    listensOn: (port) => void (ownPort = port),
    gateway: () => ownPort === undefined ? undefined : { port: ownPort, publicPaths },
    isOwn(origin) {
      const { hostname, port } = new URL(origin);
      return ownPort !== undefined && Number(port) === ownPort && isLoopbackName(hostname);
    },
  };
}
