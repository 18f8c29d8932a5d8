import type { Socket } from "node:net";
import { cancelError } from "../../base/cancel.ts";

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
