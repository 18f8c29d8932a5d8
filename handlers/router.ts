import type { Hooks } from "crossws";
import type { Random } from "../lib/base/random.ts";
import type { Services } from "../lib/gateway.ts";
import { createGatewaySettings, type GatewaySettings } from "./gateway_settings.ts";
import { type AccessOptions, auditRefusal, checkAccess, identify } from "./middleware/access.ts";
import { guardBody, guardUpgrade, isHandshake } from "./middleware/message_guards.ts";
import { addCorsHeaders, addPreflightHeaders, guardHost, guardOrigin } from "./middleware/page_guards.ts";
import { createIdempotency } from "./middleware/idempotency.ts";
import { createObserver } from "./middleware/observe.ts";
import { limitRefusedPage, limitRequest, type RateLimitOptions } from "./middleware/rate_limit.ts";
import {
  type BodyReader,
  type ClientWatch,
  GatewayRequestContext,
  readWebBody,
  watchSignal,
} from "./request_context.ts";
import { parseRequestTarget, type RequestTarget } from "./request_target.ts";
import type { ResponseClass, Route } from "./route.ts";
import { createRouteTable, notFound, type RouteMatch } from "./route_table.ts";
import { socketsOf } from "./websocket/sockets.ts";
import { errorReply } from "./wire/reply.ts";

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

/** What the server beneath knows of a request and the request does not say. */
export interface ConnectionInfo {
  /** Address of the peer */
  readonly remoteAddress?: string | undefined;
}

export interface GatewayRouter {
  /** Answers every request, also a broken one; never throws or rejects */
  readonly fetch: (request: Request, connection?: ConnectionInfo) => Response | Promise<Response>;
  /** A WebSocket handshake through the same checks: hooks when it is accepted, else hooks that answer with the refusal */
  readonly resolveWebSocket: (request: Request, connection?: ConnectionInfo) => Partial<Hooks>;
}

/**
 * The one way in: request id, host guard, origin guard, CORS, body guard, upgrade guard, route, identity, limit,
 * access, idempotency, handler; metrics and the access log see every outcome.
 * Source: docs/design/http.md "Middleware"
 */
export function createRouter(options: RouterOptions): GatewayRouter {
  const { services, basePath = "", Response: ReplyClass = Response } = options;
  const { readBody = readWebBody, watchClient = watchSignal } = options;
  const { random } = services;
  const table = createRouteTable(options.routes);
  const sockets = new Set(options.routes.filter((route) => route.websocket !== undefined).map((route) => route.path));
  const settingsNow = createGatewaySettings(services.config);
  const observer = createObserver(services);
  const idempotency = createIdempotency(services);
  socketsOf(services); // so that the gauge of sockets is there before the first one

  function open(request: Request, connection: ConnectionInfo | undefined): GatewayRequestContext {
    const target = parseRequestTarget(request.url);
    return new GatewayRequestContext(request, {
      services,
      Response: ReplyClass,
      requestId: requestIdOf(request, random),
      remoteAddress: connection?.remoteAddress,
      target,
      path: pathWithin(basePath, target),
      readBody,
      watchClient,
    });
  }

  /** Everything before the handler. @returns undefined for a preflight, which is answered at once */
  function admit(request: Request, context: GatewayRequestContext, seen: Seen): RouteMatch | undefined {
    const settings = settingsNow();
    const { target, path, replyHeaders } = context;
    const handshake = isHandshake(request);
    const { remoteAddress } = context;
    const limits: RateLimitOptions = {
      settings,
      address: remoteAddress,
      now: seen.startedAt,
      refused: observer.rateLimited,
      replyHeaders,
    };
    const allowOrigin = guardPage(request, target, { settings, handshake, limits });
    if (allowOrigin !== undefined) addCorsHeaders(replyHeaders, allowOrigin);
    if (request.method === "OPTIONS") {
      seen.route = "preflight";
      if (allowOrigin !== undefined) addPreflightHeaders(replyHeaders, request);
      const allow = table.allow(path);
      if (allow !== undefined) replyHeaders["allow"] = allow;
      return undefined;
    }
    const isAllowedPage = allowOrigin !== undefined;
    const ticket = handshake ? context.query.get("ticket") : null;
    const credentials: AccessOptions = { services, settings, ticket, remoteAddress };
    let match: RouteMatch;
    try {
      match = findRoute(request, context, { settings, handshake, seen });
    } catch (error) {
      limitRequest(
        request,
        { path, access: undefined, identity: identify(request, credentials), isAllowedPage },
        limits,
      );
      throw error;
    }
    const { route } = match;
    seen.route = route.path;
    context.params = match.params;
    if (route.maxBodyBytes !== undefined) context.maxBodyBytes = route.maxBodyBytes;
    const identity = identify(request, credentials);
    limitRequest(request, { path, access: route.access, identity, isAllowedPage }, limits);
    context.identity = checkAccess(request, route, { identity, ticket });
    return match;
  }

  /** Checks what the headers tell of a body and an upgrade, and finds the route. @throws {HttpError} 4xx, 501 */
  function findRoute(
    request: Request,
    { path }: GatewayRequestContext,
    { settings, handshake, seen }: {
      readonly settings: GatewaySettings;
      readonly handshake: boolean;
      readonly seen: Seen;
    },
  ): RouteMatch {
    guardBody(request, settings.maxRequestBytes);
    const socketRoute = sockets.has(path);
    if (socketRoute) seen.route = path;
    guardUpgrade(request, { handshake, socketRoute, canUpgrade: seen.canUpgrade });
    return table.match(request.method, path);
  }

  function finish(request: Request, context: GatewayRequestContext, reply: Response, seen: Seen): Response {
    context.detach();
    const response = context.built === reply ? reply : merge(reply, context);
    observer.end(request, context, { startedAt: seen.startedAt, route: seen.route, status: response.status });
    return response;
  }

  function answer(request: Request, connection: ConnectionInfo | undefined): Response | Promise<Response> {
    const seen: Seen = { startedAt: observer.begin(), route: "unmatched", canUpgrade: false };
    const context = open(request, connection);
    const fail = (error: unknown) => {
      auditRefusal(services.audit, context, error);
      return finish(request, context, errorReply(context, error), seen);
    };
    try {
      const match = admit(request, context, seen);
      if (match === undefined) return finish(request, context, new ReplyClass(null, { status: 204 }), seen);
      const reply = idempotency.run(request, context, match.route);
      if (!(reply instanceof Promise)) return finish(request, context, reply, seen);
      const conclude = (done: Response) => {
        try {
          return finish(request, context, done, seen);
        } catch (error) {
          return fail(error);
        }
      };
      return reply.then(conclude, fail);
    } catch (error) {
      return fail(error);
    }
  }

  /** As GET, with the length the body would have: without it, Node closes the connection. */
  async function answerHead(request: Request, connection: ConnectionInfo | undefined): Promise<Response> {
    const reply = await answer(request, connection);
    if (reply.body === null) return reply;
    const headers = new Headers(reply.headers);
    if (headers.get("content-type") === "text/event-stream") reply.body.cancel().catch(() => {});
    else headers.set("content-length", String((await reply.arrayBuffer()).byteLength));
    return new ReplyClass(null, { status: reply.status, headers });
  }

  function acceptSocket(request: Request, connection: ConnectionInfo | undefined): Partial<Hooks> {
    const seen: Seen = { startedAt: observer.begin(), route: "unmatched", canUpgrade: true };
    const context = open(request, connection);
    try {
      const match = admit(request, context, seen);
      const hooks = match?.route.websocket?.(context);
      if (hooks === undefined) throw notFound();
      context.detach();
      observer.end(request, context, { startedAt: seen.startedAt, route: seen.route, status: 101 });
      return withReplyHeaders(hooks, context.replyHeaders);
    } catch (error) {
      auditRefusal(services.audit, context, error);
      const refusal = finish(request, context, errorReply(context, error), seen);
      return { upgrade: () => refusal };
    }
  }

  return {
    fetch: (request, connection) => (request.method === "HEAD" ? answerHead : answer)(request, connection),
    resolveWebSocket: acceptSocket,
  };
}

/** What is learnt of a request on its way, for metrics and the access log. */
interface Seen {
  readonly startedAt: number;
  readonly canUpgrade: boolean;
  route: string;
}

/** Checks host and origin. @returns value for `Access-Control-Allow-Origin`, if any. @throws {HttpError} 403, 429 */
function guardPage(
  request: Request,
  target: RequestTarget,
  { settings, handshake, limits }: {
    readonly settings: GatewaySettings;
    readonly handshake: boolean;
    readonly limits: RateLimitOptions;
  },
): string | undefined {
  try {
    guardHost(request, target, settings);
    return guardOrigin(request, target, settings, handshake).allowOrigin;
  } catch (error) {
    limitRefusedPage(limits);
    throw error;
  }
}

const SAFE_REQUEST_ID = /^[\w.:-]{1,128}$/;

/** The client's own request id when it has 1-128 safe characters (letters, digits, `_.:-`), else a new one. */
function requestIdOf(request: Request, random: Random): string {
  const given = request.headers.get("x-request-id");
  return given !== null && SAFE_REQUEST_ID.test(given) ? given : random.id("req_");
}

function pathWithin(basePath: string, { path }: RequestTarget): string {
  if (basePath === "") return path;
  if (path === basePath || path === `${basePath}/`) return "/";
  // A path outside the mount is not clean, so that no route has it
  return path.startsWith(`${basePath}/`) ? path.slice(basePath.length) : "";
}

/** For replies that a handler built by itself. */
function merge(reply: Response, context: GatewayRequestContext): Response {
  const headers = new Headers(reply.headers);
  for (const [name, value] of Object.entries(context.replyHeaders)) headers.set(name, value);
  return new context.Response(reply.body, { status: reply.status, statusText: reply.statusText, headers });
}

function withReplyHeaders(hooks: Partial<Hooks>, replyHeaders: Record<string, string>): Partial<Hooks> {
  const upgrade = hooks.upgrade;
  return {
    ...hooks,
    async upgrade(request) {
      const given = await upgrade?.(request);
      if (given instanceof Response) return given;
      const headers = new Headers(replyHeaders);
      for (const [name, value] of new Headers(given?.headers)) headers.set(name, value);
      return { ...given, headers };
    },
  };
}
