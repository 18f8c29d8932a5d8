import type { Peer } from "crossws";
import type { NodeAdapter } from "crossws/adapters/node";
import type { ServerRequest } from "srvx";
import type { GatewayRouter } from "../../handlers/router.ts";
import { lazily } from "../../lib/base/lazily.ts";
import type { Logger } from "../../lib/base/telemetry/log.ts";

/** Options of `createSocketServer`. */
export interface SocketServerOptions {
  readonly router: GatewayRouter;
  /** Longest frame, in bytes. Deno has no such limit: there the route checks */
  readonly maxMessageBytes: number;
  /** Time between two pings of Deno, in seconds. On Node the route pings */
  readonly heartbeatSecs: number;
  readonly log: Logger;
}

/** WebSocket half of the server: crossws, with the router as the only way to an upgrade. */
export interface SocketServer {
  /** Answers a handshake on Deno. Undefined for every other request */
  upgradeInFetch(request: ServerRequest): Promise<Response> | undefined;
  /** Takes over the connection of a handshake on Node. Undefined on Deno */
  upgradeOnNode: ((request: unknown, socket: unknown, head: unknown) => void) | undefined;
  /** Ends the connections that did not close by themselves */
  terminate(): void;
}

/** Creates the socket server for the runtime that it runs on. Its adapter is loaded at the first handshake. */
export function createSocketServer(options: SocketServerOptions): SocketServer {
  return "Deno" in globalThis ? onDeno(options) : onNode(options);
}

function onNode({ router, maxMessageBytes, log }: SocketServerOptions): SocketServer {
  let peers: NodeAdapter["peers"] | undefined;
  const load = lazily(() =>
    reporting(log, async () => {
      const [{ default: nodeAdapter }, { NodeRequest }] = await Promise.all([
        import("crossws/adapters/node"),
        import("srvx/node"),
      ]);
      const adapter = nodeAdapter({
        resolve: resolverOf(router),
        idleTimeout: 0,
        getNamespace: () => "gateway",
        serverOptions: { maxPayload: maxMessageBytes },
      });
      peers = adapter.peers;
      return { adapter, NodeRequest };
    })
  );
  type Upgrade = Parameters<NodeAdapter["handleUpgrade"]>;
  const upgrade = async (req: Upgrade[0], connection: Upgrade[1], head: Upgrade[2]) => {
    const { adapter, NodeRequest } = await load();
    const webRequest = new NodeRequest(
      { req, upgrade: { socket: connection, head } } as unknown as ConstructorParameters<typeof NodeRequest>[0],
    );
    await adapter.handleUpgrade(req, connection, head, webRequest as Upgrade[3]);
  };
  return {
    terminate: () => terminateAll(peers),
    upgradeInFetch: () => undefined,
    upgradeOnNode(request, socket, head) {
      // The three are the arguments of Node's upgrade event
      const [req, connection, bytes] = [request, socket, head] as unknown as [Upgrade[0], Upgrade[1], Upgrade[2]];
      upgrade(req, connection, bytes).catch(() => connection.destroy());
    },
  };
}

function onDeno({ router, heartbeatSecs, log }: SocketServerOptions): SocketServer {
  const load = lazily(() =>
    reporting(log, async () => {
      const { default: denoAdapter } = await import("crossws/adapters/deno");
      return denoAdapter({ resolve: resolverOf(router), idleTimeout: heartbeatSecs, getNamespace: () => "gateway" });
    })
  );
  const upgrade = async (request: ServerRequest) => {
    const adapter = await load();
    return adapter.handleUpgrade(request, request.runtime?.deno?.info as Parameters<typeof adapter.handleUpgrade>[1]);
  };
  return {
    // Deno cannot end a socket without a closing handshake: the sockets end with the server
    terminate: () => {},
    upgradeOnNode: undefined,
    upgradeInFetch: (request) =>
      request.headers.get("upgrade")?.toLowerCase() === "websocket" ? upgrade(request) : undefined,
  };
}

function resolverOf(router: GatewayRouter) {
  return (request: Request) => router.resolveWebSocket(request, { remoteAddress: (request as ServerRequest).ip });
}

/** Logs a failure to load the adapter: the client cannot be told why its handshake failed. */
async function reporting<T>(log: Logger, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    log.error("Cannot load the WebSocket adapter", { error });
    throw error;
  }
}

function terminateAll(peers: ReadonlyMap<string, ReadonlySet<Peer>> = new Map()): void {
  for (const some of peers.values()) for (const peer of [...some]) peer.terminate();
}
