import type { Peer } from "crossws";
import type { ServerRequest } from "srvx";
import type { GatewayRouter } from "../handlers/router.ts";

export interface SocketServerOptions {
  readonly router: GatewayRouter;
  /** Longest frame, in bytes. Deno has no such limit: the route checks there */
  readonly maxMessageBytes: number;
  /** Deno's own ping, in seconds; on Node the route pings */
  readonly heartbeatSecs: number;
}

/** The WebSocket half of the server: crossws with the router as the only way to an upgrade. */
export interface SocketServer {
  /** Deno: the answer to a handshake; undefined for every other request */
  upgradeInFetch(request: ServerRequest): Promise<Response> | undefined;
  /** Node: takes the connection of a handshake over */
  upgradeOnNode: ((request: unknown, socket: unknown, head: unknown) => void) | undefined;
  /** Ends what did not close */
  terminate(): void;
}

/** Loads the adapter of the runtime it runs on. */
export async function createSocketServer(options: SocketServerOptions): Promise<SocketServer> {
  const { router } = options;
  const resolve = (request: Request) =>
    router.resolveWebSocket(request, { remoteAddress: (request as ServerRequest).ip });
  return "Deno" in globalThis ? await onDeno(resolve, options) : await onNode(resolve, options);
}

type Resolve = (request: Request) => ReturnType<GatewayRouter["resolveWebSocket"]>;
type Peers = ReadonlyMap<string, ReadonlySet<Peer>>;

async function onNode(resolve: Resolve, { maxMessageBytes }: SocketServerOptions): Promise<SocketServer> {
  const [{ default: nodeAdapter }, { NodeRequest }] = await Promise.all([
    import("crossws/adapters/node"),
    import("srvx/node"),
  ]);
  const adapter = nodeAdapter({
    resolve,
    idleTimeout: 0,
    getNamespace: () => "gateway",
    serverOptions: { maxPayload: maxMessageBytes },
  });
  type Upgrade = Parameters<typeof adapter.handleUpgrade>;
  return {
    terminate: () => terminateAll(adapter.peers),
    upgradeInFetch: () => undefined,
    upgradeOnNode(request, socket, head) {
      // They come from Node's own upgrade event
      const [req, connection, bytes] = [request, socket, head] as unknown as [Upgrade[0], Upgrade[1], Upgrade[2]];
      const webRequest = new NodeRequest(
        { req, upgrade: { socket: connection, head: bytes } } as unknown as ConstructorParameters<
          typeof NodeRequest
        >[0],
      );
      adapter.handleUpgrade(req, connection, bytes, webRequest as Upgrade[3]).catch(() => connection.destroy());
    },
  };
}

async function onDeno(resolve: Resolve, { heartbeatSecs }: SocketServerOptions): Promise<SocketServer> {
  const { default: denoAdapter } = await import("crossws/adapters/deno");
  const adapter = denoAdapter({ resolve, idleTimeout: heartbeatSecs, getNamespace: () => "gateway" });
  return {
    // Deno's sockets cannot be ended without a handshake; they go with their listener
    terminate: () => {},
    upgradeOnNode: undefined,
    upgradeInFetch(request) {
      if (request.headers.get("upgrade")?.toLowerCase() !== "websocket") return undefined;
      return adapter.handleUpgrade(request, request.runtime?.deno?.info as Parameters<typeof adapter.handleUpgrade>[1]);
    },
  };
}

function terminateAll(peers: Peers): void {
  for (const some of peers.values()) for (const peer of [...some]) peer.terminate();
}
