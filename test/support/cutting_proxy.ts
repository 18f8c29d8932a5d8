import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** How a proxy cuts a connection at a message that it was told to cut at. */
export type Cut =
  /** Drops the message: the server never sees it */
  | "before"
  /** Passes the message on and cuts at once: the server may still be at work */
  | "at_once"
  /** Cuts when the server replies: the work is done, and the client never hears of it */
  | "after"
  /** Cuts, and passes the message on later, on the connection that the server still has: by then the client has asked for it */
  | "late";

/** A proxy before a server that cuts connections. */
export interface CuttingProxy {
  readonly port: number;
  /** Number of cuts so far */
  cuts(): number;
  /** True: forwards nothing in either direction, and cuts nothing, as a broken network does */
  freeze(isFrozen: boolean): void;
  /** Cuts every connection, and refuses new ones until it is called with false. */
  refuse(isRefused: boolean): void;
  /** Forwards connections that are made from now on to another server, as the address of a service does after a failover. */
  forward(port: number): void;
  close(): Promise<void>;
}

/** Milliseconds after which a `late` message reaches the server. */
const LATE_MS = 60;

/**
 * Starts a proxy on a free port of 127.0.0.1.
 * @param port of the server, on 127.0.0.1
 * @param judge gets each piece that a client sends, and names the cut to make at it
 */
export async function startCuttingProxy(
  port: number,
  judge: (sent: string) => Cut | undefined = () => undefined,
): Promise<CuttingProxy> {
  const sockets = new Set<Socket>();
  let cuts = 0;
  let isFrozen = false;
  let isRefused = false;
  let target = port;
  const server = createServer((client) => {
    if (isRefused) return void client.destroy();
    const upstream = connect(target, "127.0.0.1");
    let isCut = false;
    const both = [client, upstream];
    for (const socket of both) {
      sockets.add(socket);
      socket.on("error", () => {});
      if (isFrozen) socket.pause();
    }
    client.on("close", () => {
      sockets.delete(client);
      if (!isCut) upstream.destroy();
    });
    upstream.on("close", () => {
      sockets.delete(upstream);
      client.destroy();
    });
    upstream.on("data", (data) => {
      if (!isCut) return void client.write(data);
      client.destroy();
      upstream.end();
    });
    client.on("data", (data) => {
      const cut = isCut ? undefined : judge(data.toString("latin1"));
      if (cut === undefined) return void upstream.write(data);
      cuts++;
      isCut = true;
      if (cut === "before") both.forEach((socket) => socket.destroy());
      else if (cut === "after") upstream.write(data);
      else if (cut === "at_once") upstream.write(data, () => both.forEach((socket) => socket.destroy()));
      else {
        client.destroy();
        setTimeout(() => upstream.write(data, () => upstream.end()), LATE_MS).unref();
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port, // it listens on a port
    cuts: () => cuts,
    freeze(frozen) {
      isFrozen = frozen;
      for (const socket of sockets) isFrozen ? socket.pause() : socket.resume();
    },
    refuse(refused) {
      isRefused = refused;
      if (refused) { for (const socket of sockets) socket.destroy(); }
    },
    forward: (next) => void (target = next),
    async close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, "close");
    },
  };
}
