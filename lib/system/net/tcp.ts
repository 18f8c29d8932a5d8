import { connect, createServer, type Socket } from "node:net";
import { cancelError } from "../../base/cancel.ts";
import { hostAndPort } from "./address.ts";

/** A TCP connection that is read piece by piece; what is not read waits at the other side. */
export interface TcpConnection {
  /**
   * The next bytes, at most what the system has at hand; undefined once the other side has ended. One read at a time.
   * @throws {CancelError} when the signal aborts: the connection stays open; the system's error when it broke
   */
  read(signal: AbortSignal): Promise<Uint8Array | undefined>;
  /** Never waits: what the other side does not take is kept, and a connection that broke shows when it is read */
  write(bytes: Uint8Array): void;
  /** Ends it at once. Repeating it does nothing */
  close(): void;
}

/** Address of a TCP server. `host` is a name or an address, IPv6 without brackets. */
export interface TcpAddress {
  readonly host: string;
  readonly port: number;
}

/**
 * Opens a connection.
 * @throws {CancelError} when the signal aborts first; the system's error, as ECONNREFUSED
 */
export async function connectTcp({ host, port }: TcpAddress, signal: AbortSignal): Promise<TcpConnection> {
  if (signal.aborted) throw cancelError(signal);
  const socket = connect({ host, port, noDelay: true });
  await untilConnected(socket, signal);
  return toConnection(socket);
}

/**
 * Waits until a socket that somebody else connects is connected. A socket that cannot be, or whose signal aborts first, is destroyed.
 * @param signal has no meaning for the socket once it is connected
 * @throws {CancelError} when the signal aborts first; the system's error, as ECONNREFUSED
 */
export function untilConnected(socket: Socket, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const fail = (error: Error) => {
    signal.removeEventListener("abort", abort);
    socket.destroy();
    reject(error);
  };
  const abort = () => fail(cancelError(signal));
  signal.addEventListener("abort", abort, { once: true });
  socket.once("error", fail);
  socket.once("connect", () => {
    signal.removeEventListener("abort", abort);
    socket.off("error", fail);
    resolve();
  });
  return promise;
}

function toConnection(socket: Socket): TcpConnection {
  let over = false;
  let failure: Error | undefined;
  let wake = () => {};
  const end = (error?: Error) => {
    over = true;
    failure ??= error;
    wake();
  };
  socket.on("readable", () => wake());
  socket.on("error", end);
  for (const event of ["end", "close"]) socket.on(event, () => end());
  return {
    async read(signal) {
      for (;;) {
        if (signal.aborted) throw cancelError(signal);
        const bytes: Uint8Array | null = socket.read();
        if (bytes !== null) return bytes;
        if (failure !== undefined) throw failure;
        if (over) return undefined;
        await new Promise<void>((resolve) => {
          wake = resolve;
          signal.addEventListener("abort", wake, { once: true });
        }).finally(() => signal.removeEventListener("abort", wake));
      }
    },
    write: (bytes) => void (over || socket.write(bytes)),
    close: () => void socket.destroy(),
  };
}

/**
 * Tells whether anything takes TCP connections at an origin of this machine; nothing is sent. Cheap beside a request, which loads the
 * HTTP client.
 * @param origin as `http://127.0.0.1:11434`
 * @returns false when it is refused or the signal aborts
 */
export function isListening(origin: string, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(hostAndPort(new URL(origin)));
  const answer = (listening: boolean) => {
    signal.removeEventListener("abort", refuse);
    socket.destroy();
    resolve(listening);
  };
  const refuse = () => answer(false);
  signal.addEventListener("abort", refuse, { once: true });
  socket.once("connect", () => answer(true));
  socket.on("error", refuse);
  return promise;
}

/**
 * Opens a port of this machine and closes it at once, to see whether a server could have it. Nobody is answered.
 * @param host an address or `localhost`, without brackets
 * @returns undefined where it can be had, else the system's code, as EADDRINUSE
 */
export function tryListen(host: string, port: number): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  const server = createServer((socket) => socket.destroy());
  server.once("error", (error: { code?: string }) => resolve(error.code ?? "EUNKNOWN"));
  server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  return promise;
}
