import { hash } from "node:crypto";
import type { Hooks } from "crossws";
import type { Identity } from "../lib/access/identity.ts";
import type { Services } from "../lib/services.ts";
import {
  addCorsHeaders,
  addPreflightHeaders,
  type GatewaySettings,
  guardBody,
  guardHost,
  guardOrigin,
  guardQuery,
  guardUpgrade,
  isHandshake,
} from "./middleware/guards.ts";
import { asksForToken, auditRefusal, checkAccess, type DoorAccess, identify, patienceOf, sentTokenOf } from "./door.ts";
import type { Idempotency } from "./middleware/idempotency.ts";
import {
  limitRefusedPage,
  limitRequest,
  limitStranger,
  PROBES,
  type RateLimitOptions,
} from "./middleware/rate_limit.ts";
import { notFound } from "./missing_path.ts";
import { type GatewayRequestContext, ownBodyBytes } from "./request_context.ts";
import type { ResponseClass, Route, RouteMatch } from "./route.ts";
import type { RouteTable, RouteVisitor } from "./route_table.ts";
import type { StrangerPlaces } from "./stranger_places.ts";
import { errorReply } from "./wire/reply.ts";
import type { Clock } from "../lib/base/clock.ts";
import { refuse } from "../lib/base/errors.ts";
import type { Logger } from "../lib/base/telemetry/log.ts";
import { type Counter, DURATION_BUCKETS_SECONDS, type Metrics } from "../lib/base/telemetry/metrics.ts";

/** The parts of one gateway that each of its requests passes. */
export interface VisitedParts {
  readonly services: Services;
  readonly table: RouteTable;
  /** Paths of the routes that are WebSockets */
  readonly socketPaths: ReadonlySet<string>;
  /** Returns the settings that count now */
  readonly settingsNow: () => GatewaySettings;
  readonly observer: Observer;
  readonly idempotency: Idempotency;
  /** Places of requests whose credentials are looked for in the database of a cluster. */
  readonly strangers: Readonly<Record<"tokens" | "tickets", StrangerPlaces>>;
}

/** Counts, times and logs every request of a gateway. */
export interface Observer {
  /** Refusals of the rate limit */
  readonly rateLimited: Counter;
  /** Counts a request as in flight. @returns its start in monotonic milliseconds, for `end` */
  begin(): number;
  /** @param route template of the route, `unmatched` without one, never the raw path */
  end(
    request: Request,
    context: GatewayRequestContext,
    outcome: { readonly startedAt: number; readonly route: string; readonly status: number },
  ): void;
}

/**
 * A request on its way through the gateway. Each step throws the HttpError that refuses the request.
 *
 * Order: host, origin, CORS, body headers, upgrade, route, identity, rate limit, access, query, idempotency, handler. Metrics and the access
 * log see every outcome.
 * Source: docs/design/http.md "Middleware"
 */
export class Visit implements RouteVisitor {
  readonly #parts: VisitedParts;
  readonly #request: Request;
  readonly #context: GatewayRequestContext;
  /** Milliseconds, monotonic */
  readonly #startedAt: number;
  readonly #settings: GatewaySettings;
  readonly #handshake: boolean;
  /** Ticket of a handshake; null without one, and for any other request */
  readonly #ticket: string | null;
  /** The server beneath can hand the connection over to a WebSocket */
  readonly #canUpgrade: boolean;
  /** Name of the route in metrics and the access log */
  #route = "unmatched";
  #isAllowedPage = false;
  /** Identity of the ticket that was taken from the database of a cluster */
  #ticketed: Identity | undefined = undefined;

  constructor(
    parts: VisitedParts,
    request: Request,
    { context, canUpgrade }: { readonly context: GatewayRequestContext; readonly canUpgrade: boolean },
  ) {
    this.#parts = parts;
    this.#request = request;
    this.#context = context;
    this.#startedAt = parts.observer.begin();
    this.#settings = parts.settingsNow();
    this.#handshake = isHandshake(request);
    this.#ticket = this.#handshake ? context.query.get("ticket") : null;
    this.#canUpgrade = canUpgrade;
  }

  get #limits(): RateLimitOptions {
    const { remoteAddress: address, replyHeaders } = this.#context;
    const refused = this.#parts.observer.rateLimited;
    return { settings: this.#settings, address, now: this.#startedAt, refused, replyHeaders };
  }

  /** Answers the request. A route without path parameters whose handler needs no promise is answered without one. */
  answer(): Response | Promise<Response> {
    try {
      const reply = this.#handle();
      if (!(reply instanceof Promise)) return this.#finish(reply);
      return reply.then((done) => this.#conclude(done), (error) => this.fail(error));
    } catch (error) {
      return this.fail(error);
    }
  }

  /** Takes a WebSocket handshake. Returns the hooks of the socket, or hooks that answer with the refusal. */
  acceptSocket(): Partial<Hooks> {
    try {
      const match = this.#findSocket();
      this.#route = match.route.path;
      const certain = this.#makeCertain(match);
      return certain === undefined ? this.#openSocket(match) : this.#openSocketLater(match, certain);
    } catch (error) {
      return this.refuseSocket(error);
    }
  }

  /** Returns hooks that answer a handshake with a refusal. */
  refuseSocket(error: unknown): Partial<Hooks> {
    const refusal = this.fail(error);
    return { upgrade: () => refusal };
  }

  /** Goes on with the route that takes the request: admission, then the handler under its idempotency key. */
  enter(match: RouteMatch): Response | Promise<Response> {
    this.#route = match.route.path;
    const certain = this.#makeCertain(match);
    return certain === undefined ? this.#enter(match) : certain.then(() => this.#enter(match));
  }

  /** Refuses a request that reaches no route. The refusal takes a slot of the sender's rate limit: 429 goes before `error`. */
  refuse(error: unknown): never {
    this.#limit(undefined, this.#identify());
    throw error;
  }

  /** Takes the slot of the sender, where requests are limited. @throws {HttpError} 429 rate_limited */
  #limit(access: DoorAccess | undefined, identity: Identity | undefined): void {
    if (this.#settings.windows === undefined && this.#settings.identities === undefined) return;
    const { path } = this.#context;
    limitRequest(this.#request, { path, access, identity, isAllowedPage: this.#isAllowedPage }, this.#limits);
  }

  #enter(match: RouteMatch): Response | Promise<Response> {
    this.#admit(match);
    const { route } = match;
    const key = route.method === "POST" ? this.#request.headers.get("idempotency-key") : null;
    if (key === null) return route.handler(this.#request, this.#context);
    return this.#parts.idempotency.run(this.#request, this.#context, { route, key });
  }

  #openSocket(match: RouteMatch): Partial<Hooks> {
    const context = this.#context;
    this.#admit(match);
    const hooks = match.route.websocket?.(this.#request, context);
    if (hooks === undefined) throw notFound();
    context.detach();
    this.#observe(101);
    return withReplyHeaders(hooks, context.replyHeaders);
  }

  /** Returns the hooks of a socket that is let in, or refused, once it is certain which tokens count. */
  #openSocketLater(match: RouteMatch, certain: Promise<void>): Partial<Hooks> {
    // A connection that ends before its upgrade waits for nothing
    certain.catch(() => {});
    return lateHooks(() => certain.then(() => this.#openSocket(match)).catch((error) => this.refuseSocket(error)));
  }

  /**
   * Makes certain which tokens count, and takes a ticket of the cluster. Undefined when it is certain, at a door for everybody, and for a
   * request that is refused whatever the tokens are.
   * @throws {HttpError} 429 rate_limited, 503 storage_unavailable
   */
  #makeCertain({ route }: RouteMatch): Promise<void> | undefined {
    const { services, strangers } = this.#parts;
    const { tokens } = services;
    if (!tokens.isShared || !asksForToken(route)) return undefined;
    const { token, isAmbiguous } = sentTokenOf(this.#request);
    if (isAmbiguous) return undefined;
    const ticket = this.#ticket;
    if (token === undefined && ticket !== null) {
      return this.#waitAsStranger(route, strangers.tickets, () => this.#takeTicket(ticket));
    }
    const context = this.#context;
    const patience = {
      maxMs: patienceOf(route, services.config()),
      get signal() {
        return context.signal;
      },
    };
    const confirm = () => tokens.confirm(token === undefined ? undefined : { token }, patience);
    const isKnown = token !== undefined && !tokens.isUnknown(token);
    if (isKnown || this.#identify() !== undefined) return confirm();
    return token === undefined ? undefined : this.#waitAsStranger(route, strangers.tokens, confirm);
  }

  /** Waits for the database as one of a bounded number of requests whose credentials are unknown. @throws {HttpError} 429, 503 */
  #waitAsStranger(
    { access }: Route,
    places: StrangerPlaces,
    wait: () => Promise<void> | undefined,
  ): Promise<void> | undefined {
    limitStranger(this.#limits);
    const leave = places.take(this.#context.remoteAddress);
    if (leave === undefined) {
      this.#limit(access, undefined);
      throw refuse(
        "storage_unavailable",
        "Cannot look for the token or ticket: too many unknown ones are being looked for; try again",
      );
    }
    const waiting = wait();
    if (waiting === undefined) leave();
    return waiting?.finally(leave);
  }

  async #takeTicket(ticket: string): Promise<void> {
    const { tokens, tickets } = this.#parts.services;
    await tokens.confirm();
    this.#ticketed = await tickets.takeAnywhere(ticket);
  }

  #handle(): Response | Promise<Response> {
    const { method } = this.#request;
    const { path, Response: ReplyClass } = this.#context;
    this.#guardPage();
    if (method === "OPTIONS") {
      this.#describeOptions();
      return new ReplyClass(null, { status: 204 });
    }
    const { table } = this.#parts;
    const match = table.find(method, path);
    this.#guardMessage(match);
    return match === undefined ? table.route(method, path, this) : this.enter(match);
  }

  /** Paths of sockets have no parameters, so that a handshake needs no promise. */
  #findSocket(): RouteMatch {
    const { method } = this.#request;
    const { path } = this.#context;
    this.#guardPage();
    if (method === "OPTIONS") {
      this.#describeOptions();
      throw notFound();
    }
    const { table } = this.#parts;
    const match = table.find(method, path);
    this.#guardMessage(match);
    return match ?? this.refuse(table.refusal(path));
  }

  /** Checks host and origin. @throws {HttpError} 403 host_forbidden, 403 origin_forbidden, 429 rate_limited */
  #guardPage(): void {
    const { target, replyHeaders } = this.#context;
    let allowOrigin: string | undefined;
    try {
      guardHost(this.#request, target, this.#settings);
      allowOrigin = guardOrigin(this.#request, target, this.#settings, this.#handshake).allowOrigin;
    } catch (error) {
      limitRefusedPage(this.#limits);
      throw error;
    }
    if (allowOrigin === undefined) return;
    this.#isAllowedPage = true;
    addCorsHeaders(replyHeaders, allowOrigin);
  }

  #describeOptions(): void {
    const { path, replyHeaders } = this.#context;
    this.#route = "preflight";
    if (this.#isAllowedPage) addPreflightHeaders(replyHeaders, this.#request);
    const allow = this.#parts.table.allow(path);
    if (allow !== undefined) replyHeaders["allow"] = allow;
  }

  /**
   * Checks what the headers tell of a body and of an upgrade.
   * @param match the route of the path; undefined for a path with parameters, and for one that no route has
   * @throws {HttpError} 4xx, 501
   */
  #guardMessage(match: RouteMatch | undefined): void {
    const { path } = this.#context;
    try {
      const own = match?.route.rawBody && ownBodyBytes(match.route, this.#parts.services.config());
      guardBody(this.#request, own ?? this.#settings.maxRequestBytes);
      const socketRoute = this.#parts.socketPaths.has(path);
      if (socketRoute) this.#route = path;
      const handshake = this.#handshake;
      if (handshake || socketRoute) {
        guardUpgrade(this.#request, { handshake, path, socketRoute, canUpgrade: this.#canUpgrade });
      }
    } catch (error) {
      this.refuse(error);
    }
  }

  /** Finds out who sends the request, takes the slot of the sender and checks the access of the route, then its query. @throws {HttpError} 400, 401, 403, 429 */
  #admit(match: RouteMatch): void {
    const context = this.#context;
    const { route } = match;
    const identity = this.#identify();
    if (route.access !== "pairing_code" || !this.#hasLongCode()) this.#limit(route.access, identity);
    const admitted = checkAccess(this.#request, route, {
      identity,
      ticket: this.#ticket,
      services: this.#parts.services,
      hidesPeer: this.#settings.open && context.remoteAddress === undefined,
    });
    context.admit(match, admitted);
    if (context.target.search !== "") guardQuery(context.query, route);
  }

  /** Tells whether the request pairs with the code that its sender read at the terminal. */
  #hasLongCode(): boolean {
    return this.#parts.services.pairing.isLongCode(this.#request.headers.get("x-pairing-code"));
  }

  #identify(): Identity | undefined {
    const { services } = this.#parts;
    const ticket = this.#ticket;
    const takeTicket = ticket === null
      ? undefined
      : () => services.tokens.isShared ? this.#ticketed : services.tickets.take(ticket);
    return identify(this.#request, {
      services,
      settings: this.#settings,
      takeTicket,
      remoteAddress: this.#context.remoteAddress,
    });
  }

  #conclude(reply: Response): Response {
    try {
      return this.#finish(reply);
    } catch (error) {
      return this.fail(error);
    }
  }

  /** Answers with the refusal of an error. */
  fail(error: unknown): Response {
    auditRefusal(this.#parts.services.audit, this.#context, error);
    return this.#finish(errorReply(this.#context, error));
  }

  #finish(reply: Response): Response {
    this.#context.detach();
    const response = this.#context.built === reply ? reply : merge(reply, this.#context);
    this.#observe(response.status);
    return response;
  }

  #observe(status: number): void {
    this.#parts.observer.end(this.#request, this.#context, { startedAt: this.#startedAt, route: this.#route, status });
  }
}

/** Adds the headers of the request's replies to a reply that a handler built by itself. */
function merge(reply: Response, context: GatewayRequestContext): Response {
  const headers = new Headers(reply.headers);
  for (const [name, value] of Object.entries(context.replyHeaders)) headers.set(name, value);
  return new context.Response(reply.body, { status: reply.status, statusText: reply.statusText, headers });
}

/** Returns the reply to HEAD: that to GET with the length of its body. Without a length, Node closes the connection. */
export async function withoutBody(answer: Response | Promise<Response>, ReplyClass: ResponseClass): Promise<Response> {
  const reply = await answer;
  if (reply.body === null) return reply;
  const headers = new Headers(reply.headers);
  if (headers.get("content-type") === "text/event-stream") reply.body.cancel().catch(() => {});
  else headers.set("content-length", String((await reply.arrayBuffer()).byteLength));
  return new ReplyClass(null, { status: reply.status, headers });
}

/** Returns the hooks of a socket that are made when its handshake begins. @param make never rejects */
export function lateHooks(make: () => Promise<Partial<Hooks>>): Partial<Hooks> {
  let hooks: Partial<Hooks> = {};
  const later = <Name extends keyof Hooks>(name: Name) => (...given: Parameters<Hooks[Name]>) =>
    // The hook of this name takes these arguments
    (hooks[name] as ((...given: Parameters<Hooks[Name]>) => ReturnType<Hooks[Name]>) | undefined)?.(...given);
  return {
    upgrade: async (request) => {
      hooks = await make();
      return await hooks.upgrade?.(request);
    },
    open: later("open"),
    message: later("message"),
    close: later("close"),
    error: later("error"),
    pong: later("pong"),
    ping: later("ping"),
    drain: later("drain"),
  };
}

/** Returns the hooks of a socket whose handshake is answered with these headers too. */
export function withReplyHeaders(hooks: Partial<Hooks>, replyHeaders: Record<string, string>): Partial<Hooks> {
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

const METHODS = new Set(["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"]);
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

/** Header by which a page that is open says that it looks again by itself, which no person asked for. */
const LOOK_HEADER = "x-postern-look";
/** Milliseconds after which a sender that keeps looking at an address has its next line at info */
const LOOK_MS = 3_600_000;
/** Senders and addresses that are known at a time: of those over the bound each look is logged at info */
const MAX_LOOKS = 1_000;

/**
 * Creates the observer that feeds metrics and the access log. Probes and repeated looks of a page are logged at debug, other requests at info.
 * Source: docs/design/observability.md "Metrics"
 */
export function createObserver(
  options: { readonly metrics: Metrics; readonly clock: Clock; readonly log: Logger },
): Observer {
  const { metrics, clock, log } = options;
  const requests = metrics.counter("postern_http_requests_total", "HTTP requests answered.", [
    "method",
    "route",
    "status",
  ]);
  const durations = metrics.histogram(
    "postern_http_request_duration_seconds",
    "Time until the reply was handed over.",
    {
      labels: ["route"],
      buckets: DURATION_BUCKETS_SECONDS,
    },
  );
  const inFlight = metrics.gauge("postern_http_requests_in_flight", "HTTP requests being answered.").with();
  /** Time of the last line at info, by address and sender */
  const looks = new Map<string, number>();

  /**
   * Tells of a GET whether its sender looks again where its last look is in the log. Attack: anybody can send the header, so it hides neither a refusal, nor a
   * request that changes something, nor the first look of a sender at an address.
   */
  const isRepeatedLook = (
    { headers, url }: Request,
    { identity, remoteAddress }: GatewayRequestContext,
    { startedAt, status }: { readonly startedAt: number; readonly status: number },
  ): boolean => {
    if (status >= 400 || headers.get(LOOK_HEADER) === null) return false;
    const key = `${hash("sha256", url)} ${identity?.tokenId ?? ""} ${remoteAddress ?? ""}`;
    const seenAt = looks.get(key);
    if (seenAt !== undefined && startedAt - seenAt < LOOK_MS) return true;
    if (seenAt === undefined && looks.size >= MAX_LOOKS) {
      for (const [old, at] of looks) if (startedAt - at >= LOOK_MS) looks.delete(old);
      if (looks.size >= MAX_LOOKS) return false;
    }
    looks.set(key, startedAt);
    return false;
  };
  return {
    rateLimited: metrics.counter("postern_rate_limited_total", "Requests refused by a rate limit.").with(),
    begin() {
      inFlight.add(1);
      return clock.monotonic();
    },
    end(request, context, outcome) {
      const { startedAt, route, status } = outcome;
      const durationMs = clock.monotonic() - startedAt;
      const method = METHODS.has(request.method) ? request.method : "other";
      inFlight.add(-1);
      requests.with(method, route, String(status)).add();
      durations.with(route).observe(durationMs / 1000);
      // A client that reads the log must not fill it with lines about its own requests
      const isQuiet = PROBES.has(route) || route === "/v1/logs" ||
        (request.method === "GET" && isRepeatedLook(request, context, outcome));
      const level = isQuiet ? "debug" : "info";
      if (!log.shows(level)) return;
      const { "x-postern-run": runId } = context.replyHeaders;
      const traceparent = request.headers.get("traceparent");
      log[level]("Request", {
        request_id: context.requestId,
        method,
        route,
        status,
        duration_ms: Math.round(durationMs * 1000) / 1000,
        token_id: context.identity?.tokenId ?? null,
        remote_address: context.remoteAddress ?? null,
        ...(runId === undefined ? {} : { run_id: runId }),
        ...(traceparent !== null && TRACEPARENT.test(traceparent) ? { traceparent } : {}),
      });
    },
  };
}
