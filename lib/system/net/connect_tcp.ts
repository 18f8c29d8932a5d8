import { connect, type Socket } from "node:net";
import { cancelError } from "../../base/cancel.ts";

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

/** @param host a name or an address, IPv6 without brackets */
export interface TcpAddress {
  readonly host: string;
  readonly port: number;
}

/**
 * Opens a connection.
 * @throws {CancelError} when the signal aborts first; the system's error, as ECONNREFUSED
 */
export function connectTcp({ host, port }: TcpAddress, signal: AbortSignal): Promise<TcpConnection> {
  if (signal.aborted) return Promise.reject(cancelError(signal));
  const { promise, resolve, reject } = Promise.withResolvers<TcpConnection>();
  const socket = connect({ host, port, noDelay: true });
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
    resolve(toConnection(socket));
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
