import { request as sendPlain } from "node:http";
import { request as sendOverTls } from "node:https";
import { isIP, type Socket } from "node:net";
import { connect as startTls } from "node:tls";
import { basicCredentials, hostAndPort } from "./address.ts";
import { PinError } from "./network_error.ts";

/** Two ends of a tunnel through a proxy. */
export interface TunnelOptions {
  /** As `http://user:password@proxy.example:3128` */
  readonly proxy: string;
  /** Where it leads: an address, so that the proxy has nothing to look up, or a name where it shall look that up */
  readonly address: string;
  readonly port: number;
  /** The name whose certificate is expected at the other end; undefined for a tunnel without TLS inside */
  readonly tlsName: string | undefined;
  readonly signal: AbortSignal;
}

/**
 * Opens a connection through a proxy to an address of our own choice, with TLS inside where a name is given.
 * @throws {PinError}; what the network or TLS throws
 * Source: RFC 9110 section 9.3.6 (CONNECT)
 */
export async function openTunnel({ proxy, address, port, tlsName, signal }: TunnelOptions): Promise<Socket> {
  const socket = await connectThrough(
    new URL(proxy),
    `${isIP(address) === 6 ? `[${address}]` : address}:${port}`,
    signal,
  );
  if (tlsName === undefined) return socket;
  return await new Promise((resolve, reject) => {
    const secure = startTls({ socket, ...(isIP(tlsName) === 0 ? { servername: tlsName } : { host: tlsName }) });
    const abort = () => secure.destroy(new PinError("it was given up"));
    signal.addEventListener("abort", abort, { once: true });
    const settle = (end: () => void) => {
      signal.removeEventListener("abort", abort);
      end();
    };
    secure.once("error", (error) => settle(() => reject(error)));
    secure.once("secureConnect", () => settle(() => resolve(secure)));
  });
}

function connectThrough(proxy: URL, target: string, signal: AbortSignal): Promise<Socket> {
  const credentials = basicCredentials(proxy);
  return new Promise((resolve, reject) => {
    const isTls = proxy.protocol === "https:";
    const outgoing = (isTls ? sendOverTls : sendPlain)({
      ...hostAndPort(proxy),
      method: "CONNECT",
      path: target,
      headers: { host: target, ...(credentials === undefined ? {} : { "proxy-authorization": credentials }) },
      agent: false,
      signal,
    });
    const refuse = (status: number | undefined) => {
      outgoing.destroy();
      reject(new PinError(`the proxy refuses the connection (${status ?? "no status"})`));
    };
    outgoing.once("error", reject);
    outgoing.once("response", (incoming) => refuse(incoming.statusCode));
    outgoing.once("connect", (incoming, socket) => {
      if (incoming.statusCode !== 200) return refuse(incoming.statusCode);
      resolve(socket as Socket); // a connection to the proxy is one over TCP
    });
    outgoing.end();
  });
}
