import type { ServerRequest } from "srvx";
import { createNodeSockets } from "../../handlers/node/node_sockets.ts";
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
  /** Answers a handshake on Deno; gives nothing for every other request. Undefined on Node */
  readonly upgradeInFetch: ((request: ServerRequest) => Promise<Response> | undefined) | undefined;
  /** Takes over the connection of a handshake on Node. Undefined on Deno */
  readonly upgradeOnNode: ((request: unknown, socket: unknown, head: unknown) => void) | undefined;
  /** Ends the connections that did not close by themselves */
  terminate(): void;
}

/** Creates the socket server for the runtime that it runs on. Its adapter is loaded at the first handshake. */
export function createSocketServer(options: SocketServerOptions): SocketServer {
  return "Deno" in globalThis ? onDeno(options) : onNode(options);
}

function onNode({ router, maxMessageBytes, log }: SocketServerOptions): SocketServer {
  const { upgrade, terminate } = createNodeSockets({
    resolve: router.resolveWebSocket,
    maxMessageBytes,
    onLoadError: (error) => log.error(CANNOT_LOAD, { error }),
  });
  return { terminate, upgradeInFetch: undefined, upgradeOnNode: upgrade };
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
    // The adapter wants what srvx hands on of Deno.serve; the types of the two do not know each other
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
  // A request of srvx knows its address
  return (request: Request) => router.resolveWebSocket(request, { remoteAddress: (request as ServerRequest).ip });
}

/** Logs a failure to load the adapter: the client cannot be told why its handshake failed. */
async function reporting<T>(log: Logger, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    log.error(CANNOT_LOAD, { error });
    throw error;
  }
}

const CANNOT_LOAD = "Cannot load the WebSocket adapter";
