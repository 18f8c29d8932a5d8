import { FastResponse, serve, type Server, type ServerRequest } from "srvx";
import type { Connections } from "../../handlers/connections.ts";
import { createNodeBodyReader, watchNodeClient } from "../../handlers/node/node_body.ts";
import { createRouter, type GatewayRouter } from "../../handlers/router.ts";
import { HEALTH_ROUTES } from "../../handlers/routes/health.ts";
import type { ResponseClass, Route } from "../../handlers/route.ts";
import { withTimeout } from "../../lib/base/clock.ts";
import { CodedError, systemCodeOf } from "../../lib/base/errors.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { watchNodeConnections } from "./node_connections.ts";
import { hardenNodeServer, nodeServerOptions } from "./node_server.ts";
import { createSocketServer, type SocketServer } from "./socket_server.ts";

/** Options of `serveGateway`. */
export interface ServeOptions {
  readonly services: GatewayServices;
  /** `localhost`, an IPv4 or an IPv6 address, with or without brackets */
  readonly host: string;
  /** Port to listen on. 0: any free port */
  readonly port: number;
  /** Time for the headers of a request to arrive, in ms (Node). Default 30,000 */
  readonly headersTimeoutMs?: number;
  /** Runs at the beginning of each request. Must be cheap and must not throw */
  readonly onRequest?: () => void;
}

/** A gateway with an open port. */
export interface RunningServer {
  readonly host: string;
  /** Port that is really listened on */
  readonly port: number;
  /** Address for a browser, with a slash at the end */
  readonly url: string;
  /** Open sockets and event streams */
  readonly connections: Connections;
  /**
   * Ends the server (docs/design/http.md "Drain"): accepts no new connections, closes idle ones, lets work with a waiting client finish for
   * `graceMs`, cancels the rest, and then closes every connection. The services stay open.
   */
  drain(graceMs: number): Promise<void>;
}

/** Error of an address that cannot be listened on. `code` is the code of the system, such as EADDRINUSE. */
export class ListenError extends CodedError {
  override readonly name = "ListenError";
}

const HEADERS_TIMEOUT_MS = 30_000;
const IDLE_SWEEP_MS = 20;
/** Time after the grace for the last frames of the WebSockets, in ms. */
const FLUSH_LIMIT_MS = 500;
/** Time after the grace to send the last replies, in ms. Deno's close() may never end. */
const CLOSE_LIMIT_MS = 2_000;

/** Loads all routes of the gateway. */
export async function loadRoutes(): Promise<readonly Route[]> {
  const { ROUTES } = await import("../../handlers/routes.ts");
  return ROUTES;
}

/**
 * Opens the gateway's port, on Node and Deno. No other function opens a port.
 * @throws {ListenError} the address cannot be listened on; with address and port
 */
export async function serveGateway(options: ServeOptions): Promise<RunningServer> {
  const { services } = options;
  const host = options.host.replace(/^\[(.*)\]$/, "$1");
  const { gateway } = services.config();
  const router = createRouter({
    services,
    routes: HEALTH_ROUTES,
    loadRoutes,
    Response: FastResponse as unknown as ResponseClass, // a Response that skips work which only a browser needs
    readBody: createNodeBodyReader(),
    watchClient: watchNodeClient,
  });
  const sockets = createSocketServer({
    router,
    maxMessageBytes: gateway.websocket.max_message_bytes,
    heartbeatSecs: gateway.websocket.heartbeat_secs,
    log: services.log,
  });
  const stop = new AbortController();
  const server = serve({
    hostname: host,
    port: options.port,
    manual: true,
    silent: true,
    gracefulShutdown: false,
    fetch: fetchOf(router, sockets, options.onRequest ?? (() => {})),
    node: nodeServerOptions({
      headersTimeoutMs: options.headersTimeoutMs ?? HEADERS_TIMEOUT_MS,
      requestTimeoutMs: gateway.request_timeout_secs * 1000,
    }) as object, // the types of srvx leave these options out
    deno: { signal: stop.signal },
  });
  const { connections } = router;
  const watched = watchNodeConnections(server, services.clock);
  hardenNodeServer(server, { sockets, connections: watched, newRequestId: () => services.random.id("req_") });
  await listen(server, host, options.port);
  const url = new URL(server.url ?? "");
  services.listensOn(Number(url.port));
  return {
    host,
    port: Number(url.port),
    url: url.href,
    connections,
    drain: (graceMs) =>
      drain({ services, connections, server, sockets, graceMs, stop, closeSilent: watched.closeSilent }),
  };
}

function fetchOf(router: GatewayRouter, sockets: SocketServer, onRequest: () => void) {
  return (request: ServerRequest): Response | Promise<Response> => {
    onRequest();
    return sockets.upgradeInFetch?.(request) ?? router.fetch(request, { remoteAddress: request.ip });
  };
}

async function listen(server: Server, host: string, port: number): Promise<void> {
  try {
    await server.serve();
  } catch (error) {
    const shown = `${host.includes(":") ? `[${host}]` : host}:${port}`;
    const code = systemCodeOf(error) ?? "EUNKNOWN";
    throw new ListenError(code, `Cannot listen on ${shown}: ${REASONS[code] ?? "the system refuses it"}`, {
      cause: error,
    });
  }
}

const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: "the port is in use; stop the other program, or choose another with --port",
  EACCES: "this user may not use the port; choose one above 1023 with --port",
  EADDRNOTAVAIL: "the machine has no such address; choose another with --host",
  ENOTFOUND: "the host name is unknown; choose another with --host",
};

interface DrainOptions {
  readonly services: GatewayServices;
  readonly connections: Connections;
  readonly server: Server;
  readonly sockets: SocketServer;
  readonly graceMs: number;
  readonly stop: AbortController;
  readonly closeSilent: () => void;
}

async function drain(
  { services, connections, server, sockets, graceMs, stop, closeSilent }: DrainOptions,
): Promise<void> {
  const { clock } = services;
  services.beginDrain();
  let isClosed = false;
  const close = () => server.close().catch(() => {}).then(() => void (isClosed = true));
  const node = server.node?.server;
  // Deno's close() ends every WebSocket at once, so there the port stays open until the work has ended. New work is refused
  const closing = node === undefined ? undefined : close();
  const idleSweep = clock.every(IDLE_SWEEP_MS, () => {
    closeSilent();
    if (node !== undefined && "closeIdleConnections" in node) node.closeIdleConnections();
  });
  connections.closeIdle();
  await services.drain(graceMs);
  // A WebSocket closes by itself once the last event of its run is written
  const flushed = clock.monotonic() + FLUSH_LIMIT_MS;
  while (connections.sockets.count() > 0 && clock.monotonic() < flushed) await clock.sleep(IDLE_SWEEP_MS);
  await connections.closeAll();
  await withTimeout(closing ?? close(), { ms: CLOSE_LIMIT_MS, clock });
  idleSweep.clear();
  sockets.terminate();
  if (node !== undefined && "closeAllConnections" in node) node.closeAllConnections();
  // Deno throws when a closed server is aborted
  if (!isClosed) stop.abort();
}
