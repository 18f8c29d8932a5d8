import { createServer } from "node:net";

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
