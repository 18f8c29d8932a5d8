import { connect, isIP, type LookupFunction, type Socket } from "node:net";
import { cancelError } from "../../base/cancel.ts";
import { hostAndPort, isSameAddress } from "./address.ts";
import { PinError } from "./network_error.ts";
import { openTunnel } from "./proxy.ts";
import { untilConnected } from "./tcp.ts";

/** Connection to one of these addresses and no other. */
export interface PinnedConnection {
  readonly url: URL;
  /** Addresses of the host's name, which were checked. They are tried in this order. */
  readonly addresses: readonly string[];
  /** Proxy that connects to the address in our place, such as `http://proxy.example:3128`. Undefined: none */
  readonly proxy: string | undefined;
  /** Ends the attempt. Has no meaning for the connection once it is open */
  readonly signal: AbortSignal;
}

/** Milliseconds for one address, before the next is tried beside it; the system's own limit is too short for far-off hosts. */
export const ATTEMPT_MS = 2_000;

/**
 * Opens a TCP connection to the host and port of a URL, for bytes of any kind. The name is not looked up again: the socket gets the
 * addresses that were checked.
 * @throws {PinError}; what the network or the runtime throws
 * @throws {CancelError} when the signal aborts first
 */
export async function connectPinned(request: PinnedConnection): Promise<Socket> {
  const { url, addresses, proxy, signal } = request;
  if (signal.aborted) throw cancelError(signal);
  if (proxy === undefined) return await connectDirectly(request);
  const { port } = hostAndPort(url);
  return await tunnelToFirst({ proxy, addresses, port, tlsName: undefined, signal });
}

async function connectDirectly({ url, addresses, signal }: PinnedConnection): Promise<Socket> {
  const socket = connect({
    ...hostAndPort(url),
    lookup: lookupOf(addresses),
    autoSelectFamilyAttemptTimeout: ATTEMPT_MS,
    allowHalfOpen: true,
    noDelay: true,
  });
  await untilConnected(socket, signal);
  const at = socket.remoteAddress;
  if (at !== undefined && addresses.some((address) => isSameAddress(address, at))) return socket;
  socket.destroy();
  throw new PinError(`the connection led to ${at ?? "nobody"}, which was not checked`);
}

/**
 * Opens a tunnel through a proxy, trying one address after the other, as the system does for a connection of its own.
 * @param request.tlsName as in TunnelOptions
 */
export async function tunnelToFirst(
  { addresses, ...tunnel }: Omit<Parameters<typeof openTunnel>[0], "address"> & {
    readonly addresses: readonly string[];
  },
): Promise<Socket> {
  let failure: unknown = new PinError("there is no address to connect to");
  for (const address of addresses) {
    try {
      return await openTunnel({ ...tunnel, address });
    } catch (error) {
      failure = error;
      if (tunnel.signal.aborted) break;
    }
  }
  throw failure;
}

/** Returns a look-up that knows these addresses alone, whatever name it is asked for. */
export function lookupOf(addresses: readonly string[]): LookupFunction {
  const found = addresses.map((address) => ({ address, family: isIP(address.split("%")[0] ?? "") }));
  return (_host, options, onFound) => {
    const [first] = found;
    if (first === undefined) return onFound(new PinError("there is no address to connect to"), "", 0);
    if (options.all) onFound(null, found);
    else onFound(null, first.address, first.family);
  };
}
