import type { Hooks } from "crossws";
import { lazily } from "../lib/base/lazily.ts";
import type { Services } from "../lib/services.ts";
import { type Connections, createConnections } from "./connections.ts";
import { createGatewaySettings } from "./middleware/guards.ts";
import { Idempotency } from "./middleware/idempotency.ts";
import { createObserver, lateHooks, Visit, type VisitedParts, withoutBody } from "./visit.ts";
import {
  type BodyExpander,
  type BodyReader,
  type ClientWatch,
  GatewayRequestContext,
  parseRequestTarget,
  readWebBody,
  requestIdOf,
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

/** Expands compressed bodies. What does so is loaded with the first of them. */
export const expandLate: BodyExpander = async (codings, maxBytes) =>
  (await import("./middleware/expand_body.ts")).expandBody(codings, maxBytes);

/** Options of `createRouter`. */
export interface RouterOptions {
  readonly services: Services;
  /** The routes, each once. With `loadRoutes`: those without path parameters that answer before the others are loaded */
  readonly routes: readonly Route[];
  /** Loads all routes, those of `routes` among them, at the first request that is for none of these. Default: there are no more */
  readonly loadRoutes?: () => Promise<readonly Route[]>;
  /** Default: the global one */
  readonly Response?: ResponseClass;
  /** Path the gateway is mounted under, such as `/gateway`, without a trailing slash. Default "" */
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
  const { readBody = readWebBody, watchClient = watchSignal, loadRoutes } = options;
  let isWhole = loadRoutes === undefined;
  const connections = createConnections(services, () => import("./mcp/mcp_endpoint.ts"));
  const { mcp, sockets, followers } = connections;
  const routeParts = { ...services, mcp, sockets, followers, kit: services };
  let parts: VisitedParts = {
    services,
    ...tableOf(options.routes),
    settingsNow: createGatewaySettings(services.config, services.sharedWindows),
    observer: createObserver(services),
    idempotency: new Idempotency(services),
    strangers: { tokens: new StrangerPlaces(UNKNOWN_TOKENS), tickets: new StrangerPlaces(TICKETS) },
  };
  const makeWhole = lazily(async () => {
    if (loadRoutes !== undefined) parts = { ...parts, ...tableOf(await loadRoutes()) };
    isWhole = true;
  });

  function open(request: Request, connection: ConnectionInfo | undefined, canUpgrade: boolean): Visit {
    const target = parseRequestTarget(request.url);
    const context = new GatewayRequestContext(request, {
      parts: routeParts,
      services: routeParts,
      Response: ReplyClass,
      requestId: requestIdOf(request, services.random),
      remoteAddress: connection?.remoteAddress,
      target,
      path: basePath === "" ? target.path : pathWithin(basePath, target),
      readBody,
      expandBody: expandLate,
      watchClient,
    });
    return new Visit(parts, request, { context, canUpgrade });
  }

  /** Tells whether the routes must be loaded before anybody knows what a request is for. */
  const isTooEarly = ({ method, url }: Request) =>
    parts.table.find(method, pathWithin(basePath, parseRequestTarget(url))) === undefined;
  /** Goes on with a request once all routes are there, or with the reason why they are not. */
  const later = <T>(
    visit: () => Visit,
    { go, fail }: {
      readonly go: (visit: Visit) => T | Promise<T>;
      readonly fail: (visit: Visit, error: unknown) => T;
    },
  ): Promise<T> => makeWhole().then(() => go(visit()), (error) => fail(visit(), error));

  const answer = (request: Request, connection?: ConnectionInfo) => {
    const reply = !isWhole && isTooEarly(request)
      ? later<Response>(() => open(request, connection, false), {
        go: (opened) => opened.answer(),
        fail: (opened, error) => opened.fail(error),
      })
      : open(request, connection, false).answer();
    return request.method === "HEAD" ? withoutBody(reply, ReplyClass) : reply;
  };
  const resolveWebSocket = (request: Request, connection?: ConnectionInfo) => {
    const visit = () => open(request, connection, true);
    if (isWhole || !isTooEarly(request)) return visit().acceptSocket();
    return lateHooks(() =>
      later(visit, {
        go: (opened) => opened.acceptSocket(),
        fail: (opened, error) => opened.refuseSocket(error),
      })
    );
  };
  return { fetch: answer, resolveWebSocket, connections };
}

function tableOf(routes: readonly Route[]): Pick<VisitedParts, "table" | "socketPaths"> {
  const sockets = routes.filter((route) => route.websocket !== undefined);
  return { table: createRouteTable(routes), socketPaths: new Set(sockets.map(({ path }) => path)) };
}

/** Returns the path within the mount. Outside the mount it is "", which is no clean path and so has no route. */
function pathWithin(basePath: string, { path }: RequestTarget): string {
  if (basePath === "") return path;
  if (path === basePath || path === `${basePath}/`) return "/";
  return path.startsWith(`${basePath}/`) ? path.slice(basePath.length) : "";
}
