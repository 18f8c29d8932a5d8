import { connect } from "node:net";
import { hostAndPort } from "./host_and_port.ts";

/**
 * Whether anything takes TCP connections at an origin of this machine; nothing is sent. Cheap beside a request, which loads the
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
