import type { Hooks } from "crossws";
import type { Random } from "../lib/base/random.ts";
import type { Services } from "../lib/services.ts";
import { type Connections, createConnections } from "./connections.ts";
import { createGatewaySettings } from "./middleware/guards.ts";
import { Idempotency } from "./middleware/idempotency.ts";
import { createObserver, Visit, type VisitedParts } from "./visit.ts";
import {
  type BodyReader,
  type ClientWatch,
  GatewayRequestContext,
  parseRequestTarget,
  readWebBody,
  type RequestTarget,
  watchSignal,
} from "./request_context.ts";
import type { ResponseClass, Route } from "./route.ts";
import { createRouteTable } from "./route_table.ts";
import { StrangerPlaces } from "./stranger_places.ts";

/** Requests with unknown tokens that wait at the same time. All of them together cost ten looks a second. */
const UNKNOWN_TOKENS = { max: 256, maxEach: 16 } as const;
/** Tickets that are taken from the database at the same time. */
const TICKETS = { max: 64, maxEach: 8 } as const;

/** Options of `createRouter`. */
export interface RouterOptions {
  readonly services: Services;
  /** The routes, each once */
  readonly routes: readonly Route[];
  /** Default: the global one */
  readonly Response?: ResponseClass;
  /** Path the gateway is mounted under, as `/gateway`, without a trailing slash. Default "" */
  readonly basePath?: string;
  /** How this server reads a body fastest. Default: as a web stream */
  readonly readBody?: BodyReader;
  /** How this server learns soonest that a client has gone. Default: by the request's signal */
  readonly watchClient?: ClientWatch;
}

/** Facts about a request's connection that the server beneath knows and the request does not tell. */
export interface ConnectionInfo {
  /** Address of the peer */
  readonly remoteAddress?: string | undefined;
}

/** The one way into a gateway. */
export interface GatewayRouter {
  /** Answers every request, also a broken one; never throws or rejects */
  readonly fetch: (request: Request, connection?: ConnectionInfo) => Response | Promise<Response>;
  /** Takes a WebSocket handshake through the same checks. Returns hooks of the socket, or hooks that answer with the refusal */
  readonly resolveWebSocket: (request: Request, connection?: ConnectionInfo) => Partial<Hooks>;
  /** The open sockets and event streams, for a shutdown */
  readonly connections: Connections;
}

/** Creates the router of a gateway. `Visit` has the steps that a request goes through, in their order. */
export function createRouter(options: RouterOptions): GatewayRouter {
  const { services, basePath = "", Response: ReplyClass = Response } = options;
  const { readBody = readWebBody, watchClient = watchSignal } = options;
  const parts: VisitedParts = {
    services,
    table: createRouteTable(options.routes),
    socketPaths: new Set(options.routes.filter((route) => route.websocket !== undefined).map((route) => route.path)),
    settingsNow: createGatewaySettings(services.config, services.sharedWindows),
    observer: createObserver(services),
    idempotency: new Idempotency(services),
    strangers: { tokens: new StrangerPlaces(UNKNOWN_TOKENS), tickets: new StrangerPlaces(TICKETS) },
  };
  const connections = createConnections(services);

  function open(request: Request, connection: ConnectionInfo | undefined, canUpgrade: boolean): Visit {
    const target = parseRequestTarget(request.url);
    const context = new GatewayRequestContext(request, {
      services,
      connections,
      Response: ReplyClass,
      requestId: requestIdOf(request, services.random),
      remoteAddress: connection?.remoteAddress,
      target,
      path: pathWithin(basePath, target),
      readBody,
      watchClient,
    });
    return new Visit(parts, request, { context, canUpgrade });
  }

  const answer = (request: Request, connection?: ConnectionInfo) => {
    const reply = open(request, connection, false).answer();
    return request.method === "HEAD" ? withoutBody(reply, ReplyClass) : reply;
  };
  return {
    fetch: answer,
    resolveWebSocket: (request, connection) => open(request, connection, true).acceptSocket(),
    connections,
  };
}

/** Returns the reply to HEAD: that to GET with the length of its body. Without a length, Node closes the connection. */
async function withoutBody(answer: Response | Promise<Response>, ReplyClass: ResponseClass): Promise<Response> {
  const reply = await answer;
  if (reply.body === null) return reply;
  const headers = new Headers(reply.headers);
  if (headers.get("content-type") === "text/event-stream") reply.body.cancel().catch(() => {});
  else headers.set("content-length", String((await reply.arrayBuffer()).byteLength));
  return new ReplyClass(null, { status: reply.status, headers });
}

const SAFE_REQUEST_ID = /^[\w.:-]{1,128}$/;

/** Returns the client's own request id when it has 1-128 safe characters (letters, digits, `_.:-`), else a new one. */
function requestIdOf(request: Request, random: Random): string {
  const given = request.headers.get("x-request-id");
  return given !== null && SAFE_REQUEST_ID.test(given) ? given : random.id("req_");
}

/** Returns the path within the mount. Outside the mount it is "", which is no clean path and so has no route. */
function pathWithin(basePath: string, { path }: RequestTarget): string {
  if (basePath === "") return path;
  if (path === basePath || path === `${basePath}/`) return "/";
  return path.startsWith(`${basePath}/`) ? path.slice(basePath.length) : "";
}
