import type { Identity } from "../lib/access/identity.ts";
import { systemClock } from "../lib/base/clock.ts";
import { lazily } from "../lib/base/lazily.ts";
import { createSystemRandom } from "../lib/base/random.ts";
import { createLogger, type Logger, type LogSink } from "../lib/base/telemetry/log.ts";
import { createMetrics } from "../lib/base/telemetry/metrics.ts";
import { defaultConfig } from "../lib/config/config.ts";
import { checkAccess } from "./door.ts";
import { guardBody, guardQuery } from "./middleware/guards.ts";
import {
  GatewayRequestContext,
  ownBodyBytes,
  parseRequestTarget,
  readWebBody,
  requestIdOf,
  watchSignal,
} from "./request_context.ts";
import type { RequestServices, Route, RouteMatch, RouteParts } from "./route.ts";
import type { SocketHooks } from "./node/node_handler.ts";
import { createRouteTable } from "./route_table.ts";
import { expandLate } from "./router.ts";
import { lateHooks, withoutBody, withReplyHeaders } from "./visit.ts";
import { createSockets, type SocketServices } from "./websocket/sockets.ts";
import { errorReply } from "./wire/reply.ts";

/** Sender of a request, as the program that calls a handler knows it. */
export interface Sender {
  /** Token and scopes. Default: nobody that is known, who gets what is public */
  readonly identity?: Identity | null | undefined;
  /** Address of the peer. Default: not known */
  readonly address?: string | undefined;
}

/** A part of a handler. The handler uses some of its members; those that it does not use may be left out. */
export type Part<Service> = Service extends readonly unknown[] ? Service
  : Service extends () => infer Given ? () => Given extends Promise<infer Late> ? Promise<Part<Late>> : Part<Given>
  : Service extends (...given: never[]) => unknown ? Service
  : Service extends object ? { readonly [Name in keyof Service]?: Part<Service[Name]> }
  : Service;

/**
 * Parts that a handler makes for itself where it is given none.
 * @internal
 */
type OwnPart = "kit" | "sockets";

/** Parts of a handler by their names, at most five of them. */
export type HandlerParts<Need extends keyof RouteParts> =
  & { readonly [Name in Exclude<Need, OwnPart>]: Part<RouteParts[Name]> }
  & {
    /** Says who sends a request. Default: nobody that is known. An error that it throws refuses the request */
    readonly identify?: (request: Request) => Sender | Promise<Sender>;
    /** Default: the clock of the system, and a log whose errors go to the console */
    readonly kit?: Partial<RouteParts["kit"]>;
  }
  & ("sockets" extends Need ? { readonly sockets?: Part<RouteParts["sockets"]> } : unknown);

/** A handler of HTTP without its parts. */
export type HandlerOf<Need extends keyof RouteParts> = (
  parts: HandlerParts<Need>,
) => (request: Request) => Promise<Response>;
/** A handler of a WebSocket without its parts. It takes a handshake, and gives the hooks for an adapter of crossws. */
export type SocketHandlerOf<Need extends keyof RouteParts> = (
  parts: HandlerParts<Need>,
) => (handshake: Request) => SocketHooks;

/** A route that names the parts of its handler. */
type HandledRoute<Need extends keyof RouteParts> = Route & {
  handle(parts: Pick<RouteParts, Need>, ...input: never[]): unknown;
};
type SocketRoute<Need extends keyof RouteParts> = Route & {
  accept(parts: Pick<RouteParts, Need>, ...handshake: never[]): unknown;
};

/**
 * Makes the handler of a route that is called without the gateway's router: it reads the request, and checks scope, query and body by itself.
 * Hosts, origins, rate limits and repeats under an Idempotency-Key are the router's.
 */
export function makeHandler<Need extends keyof RouteParts>(route: HandledRoute<Need>): HandlerOf<Need> {
  return (parts) => {
    const visit = prepare(route, parts);
    return (request) => {
      const reply = visit(request, (context) => route.handler(request, context), (refusal) => refusal);
      return request.method === "HEAD" ? withoutBody(reply, Response) : reply;
    };
  };
}

/** Makes the handler of a socket in the same way. */
export function makeSocketHandler<Need extends keyof RouteParts>(route: SocketRoute<Need>): SocketHandlerOf<Need> {
  return (parts) => {
    const visit = prepare(route, parts);
    return (request) =>
      lateHooks(() =>
        visit(
          request,
          (context) => withReplyHeaders(route.websocket?.(request, context) ?? {}, context.replyHeaders),
          (refusal) => ({ upgrade: () => refusal }),
        )
      );
  };
}

/** Returns the way of a request to its handler. @throws {TypeError} a part is missing */
function prepare<Need extends keyof RouteParts>(route: Route, parts: HandlerParts<Need>) {
  const { identify = (): Sender => ({}) } = parts;
  const kit = { clock: systemClock, log: consoleLog(), ...parts.kit };
  const random = createSystemRandom();
  const services: RequestServices = { ...ALONE, ...kit };
  const given = { sockets: createSockets({ ...ALONE, metrics: createMetrics() }), ...parts, kit };
  const missing = route.needs?.find((name) => !(name in given));
  if (missing !== undefined) {
    throw new TypeError(`Cannot make the handler of ${route.method} ${route.path}: give it the part "${missing}"`);
  }
  const table = createRouteTable([route]);
  return async <T>(
    request: Request,
    work: (context: GatewayRequestContext) => T | Promise<T>,
    refuse: (refusal: Response) => T,
  ): Promise<T> => {
    const target = parseRequestTarget(request.url);
    const requestId = requestIdOf(request, random);
    const open = ({ address }: Sender) =>
      new GatewayRequestContext(request, {
        // Each part has what its handler uses of it, which is all that is asked
        ...{ parts: given as unknown as RouteParts, services, Response, requestId, remoteAddress: address },
        ...{ target, path: target.path, readBody: readWebBody, expandBody: expandLate, watchClient: watchSignal },
      });
    let context = open({});
    const enter = (match: RouteMatch, identity: Identity | undefined) => {
      context.admit(match, checkAccess(request, route, { services, identity, ticket: null, hidesPeer: false }));
      if (target.search !== "") guardQuery(context.query, route);
      return work(context);
    };
    try {
      guardBody(request, ownBodyBytes(route, services.config()) ?? services.config().gateway.max_request_bytes);
      const sender = await identify(request);
      context = open(sender);
      const identity = sender.identity ?? undefined;
      const match = table.find(request.method, target.path);
      if (match !== undefined) return await enter(match, identity);
      return await table.route(request.method, target.path, {
        enter: (found) => enter(found, identity),
        refuse(error) {
          throw error;
        },
      });
    } catch (error) {
      return refuse(errorReply(context, error));
    } finally {
      context.detach();
    }
  };
}

/** Returns a log whose errors go to the console. */
function consoleLog(): Logger {
  const sink: LogSink = ({ message, fields }) => console.error(message, fields);
  return createLogger({ level: "error", now: systemClock.now, sink, redact: (text) => text });
}

/** Services of a handler without a gateway around it: whom `identify` names counts, and nothing drains. */
const ALONE: Omit<RequestServices & SocketServices, "clock" | "log" | "metrics"> = {
  config: lazily(defaultConfig),
  programName: "postern",
  isDraining: () => false,
  stateReason: () => undefined,
  followers: { add: () => () => {} },
  tokens: {
    isShared: false,
    confirm: () => undefined,
    isFixed: () => true,
    isLive: () => true,
    isUncertain: () => false,
    standing: () => ({ isConfirmed: true }),
    use: () => true,
    onRevoke: () => {},
  },
};
