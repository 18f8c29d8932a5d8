import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";

/** A proxy as one is in front of gateways: each request and each WebSocket goes to the next of them that takes connections. */
export interface SmallProxy {
  /** Without a slash at the end */
  readonly url: string;
  /** Number of requests and WebSockets that each gateway got, in the order of the gateways */
  readonly counts: readonly number[];
  close(): Promise<void>;
}

/** Starts a proxy for gateways. @param gateways addresses without a slash at the end */
export async function startSmallProxy(gateways: readonly string[]): Promise<SmallProxy> {
  const proxy = new RoundRobin(gateways.map((address) => Number(new URL(address).port)));
  const server = createServer((incoming, reply) => void proxy.forward(incoming, reply));
  server.on("upgrade", (incoming: IncomingMessage, socket: Duplex, head: Uint8Array) => {
    void proxy.upgrade(incoming, { socket, head });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { readonly port: number }; // it listens on TCP
  return {
    url: `http://127.0.0.1:${port}`,
    counts: proxy.counts,
    async close() {
      proxy.end();
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

class RoundRobin {
  readonly #ports: readonly number[];
  readonly #sockets = new Set<Duplex>();
  readonly counts: number[];
  #next = 0;

  constructor(ports: readonly number[]) {
    this.#ports = ports;
    this.counts = ports.map(() => 0);
  }

  async forward(incoming: IncomingMessage, reply: ServerResponse): Promise<void> {
    const port = await this.#pick();
    const { method, url: path, headers } = incoming;
    const outgoing = request({ host: "127.0.0.1", port, method, path, headers }, (answer) => {
      reply.writeHead(answer.statusCode ?? 502, answer.headers);
      reply.flushHeaders();
      answer.pipe(reply);
    });
    outgoing.on("error", () => reply.destroy());
    reply.on("close", () => outgoing.destroy());
    incoming.pipe(outgoing);
  }

  async upgrade(incoming: IncomingMessage, { socket, head }: { readonly socket: Duplex; readonly head: Uint8Array }) {
    const other = connect(await this.#pick(), "127.0.0.1");
    const { method, url, rawHeaders } = incoming;
    const lines = rawHeaders.flatMap((name, at) => at % 2 === 0 ? [`${name}: ${rawHeaders[at + 1]}`] : []);
    other.write([`${method} ${url} HTTP/1.1`, ...lines, "", ""].join("\r\n"));
    other.write(head);
    for (const [from, to] of [[socket, other], [other, socket]] as const) {
      this.#sockets.add(from);
      from.on("error", () => to.destroy());
      from.on("close", () => to.destroy());
      from.pipe(to);
    }
  }

  end(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Returns the port of the next gateway that takes connections. */
  async #pick(): Promise<number> {
    for (let tries = 0;; tries++) {
      const at = this.#next++ % this.#ports.length;
      const port = this.#ports[at] ?? 0;
      if (tries < this.#ports.length && !await takesConnections(port)) continue;
      this.counts[at] = (this.counts[at] ?? 0) + 1;
      return port;
    }
  }
}

async function takesConnections(port: number): Promise<boolean> {
  const socket: Socket = connect(port, "127.0.0.1");
  const isThere = await new Promise<boolean>((resolve) => {
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
  });
  socket.destroy();
  return isThere;
}
