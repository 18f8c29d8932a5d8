import { refuse } from "../../lib/base/errors.ts";
import { isLoopbackName } from "../../lib/system/net/address.ts";
import type { Config } from "../../lib/config/config.ts";
import { createWindows, type LimitSettings, sameLimits } from "./rate_limit.ts";
import { codingsOf, hostNameOf, type RequestTarget, toAuthority, tooLarge } from "../request_context.ts";
import type { Route } from "../route.ts";

/** Settings that the middleware reads with each request. They are derived once from each configuration. */
export interface GatewaySettings extends LimitSettings {
  readonly loopbackBind: boolean;
  readonly allowedHosts: ReadonlySet<string>;
  readonly corsOrigins: ReadonlySet<string>;
  readonly corsAny: boolean;
  readonly maxRequestBytes: number;
}

/** Returns a function that gives the settings of the newest configuration. A reload that leaves the limits alone keeps their windows. */
export function createGatewaySettings(
  config: () => Config,
  shared?: Parameters<typeof createWindows>[1],
): () => GatewaySettings {
  let snapshot: Config | undefined;
  let current: GatewaySettings;
  return () => {
    const newest = config();
    if (newest === snapshot) return current;
    current = derive(newest, { before: snapshot, old: snapshot === undefined ? undefined : current, shared });
    snapshot = newest;
    return current;
  };
}

function derive({ gateway }: Config, { before, old, shared }: {
  readonly before: Config | undefined;
  readonly old: GatewaySettings | undefined;
  readonly shared: Parameters<typeof createWindows>[1];
}): GatewaySettings {
  const loopbackBind = isLoopbackName(gateway.host.toLowerCase());
  return {
    loopbackBind,
    allowedHosts: new Set([...gateway.allowed_hosts, ...publicHostsOf(gateway)].map((host) => host.toLowerCase())),
    corsOrigins: new Set(gateway.cors_origins.map((origin) => origin.toLowerCase())),
    corsAny: gateway.cors_origins.includes("*"),
    open: !gateway.require_pairing && loopbackBind,
    maxRequestBytes: gateway.max_request_bytes,
    ...(old !== undefined && sameLimits(gateway, before?.gateway)
      ? { windows: old.windows, identities: old.identities }
      : createWindows(gateway, shared)),
  };
}

/** Returns the name of the host that people reach the gateway at from elsewhere; none where none is told. */
function publicHostsOf({ public_url: address }: Config["gateway"]): readonly string[] {
  const host = URL.parse(address)?.hostname ?? "";
  return host === "" ? [] : [host];
}

/**
 * Checks, on a loopback bind, that the `Host` header and the target's authority agree, and that they are loopback or in
 * `allowed_hosts`. Attack: a page whose host name was rebound to 127.0.0.1 (DNS rebinding) still sends its own name.
 * @throws {HttpError} 403 host_forbidden
 */
export function guardHost(request: Request, target: RequestTarget, settings: GatewaySettings): void {
  if (!settings.loopbackBind) return;
  const host = request.headers.get("host");
  // Almost every client writes both alike
  const isSame = host === null || host === target.authority ||
    toAuthority(host, request.url.startsWith("https:")) === target.authority;
  if (!isSame) throw forbidden("the Host header and the request's target name different hosts");
  const name = hostNameOf(target.authority);
  if (isLoopbackName(name) || settings.allowedHosts.has(name) || settings.allowedHosts.has(target.authority)) return;
  throw forbidden("this host name is not the gateway's; add it to allowed_hosts in [gateway] if it is");
}

function forbidden(reason: string) {
  return refuse("host_forbidden", `Cannot serve this host: ${reason}`);
}

/** The outcome of the origin check. */
export interface OriginVerdict {
  /** Value for `Access-Control-Allow-Origin`; undefined: the reply carries no Access-Control header */
  readonly allowOrigin: string | undefined;
}

const NOT_CROSS: OriginVerdict = { allowOrigin: undefined };

/**
 * Checks the origin of a request. A page of another site may send GET and HEAD, without CORS headers in the reply, and OPTIONS.
 * Any other method and every WebSocket handshake need the origin in `cors_origins`.
 * @throws {HttpError} 403 origin_forbidden
 */
export function guardOrigin(
  request: Request,
  target: RequestTarget,
  settings: GatewaySettings,
  handshake: boolean,
): OriginVerdict {
  const { headers, method } = request;
  const origin = headers.get("origin");
  if (origin !== null) {
    const allowOrigin = settings.corsAny ? "*" : settings.corsOrigins.has(origin.toLowerCase()) ? origin : undefined;
    if (allowOrigin !== undefined) return { allowOrigin };
    if (isOwn(origin, target) && headers.get("sec-fetch-site") !== "cross-site") return NOT_CROSS;
  } else if (headers.get("sec-fetch-site") !== "cross-site") return NOT_CROSS;
  if (method === "OPTIONS" || ((method === "GET" || method === "HEAD") && !handshake)) return NOT_CROSS;
  throw refuse(
    "origin_forbidden",
    "Cannot serve this page's request: its origin is not in cors_origins of [gateway]",
  );
}

function isOwn(origin: string, target: RequestTarget): boolean {
  const start = origin.indexOf("://");
  return start > 0 && toAuthority(origin.slice(start + 3), origin.startsWith("https:")) === target.authority;
}

/** Adds the headers that let the page of an allowed origin read the reply. */
export function addCorsHeaders(headers: Record<string, string>, allowOrigin: string): void {
  headers["access-control-allow-origin"] = allowOrigin;
  headers["access-control-expose-headers"] = EXPOSED;
}

/** Adds the headers that answer a CORS preflight. Written by hand: itty-router's `cors()` turns 401, 404, 429 and 500 into 200 and sends no `Vary`. */
export function addPreflightHeaders(headers: Record<string, string>, request: Request): void {
  headers["access-control-allow-methods"] = "GET, HEAD, POST, DELETE, OPTIONS";
  headers["access-control-allow-headers"] = allowedHeaders(request.headers.get("access-control-request-headers") ?? "");
  headers["access-control-max-age"] = "600";
  if (request.headers.get("access-control-request-private-network") === "true") {
    headers["access-control-allow-private-network"] = "true";
  }
}

const ALLOWED =
  "Authorization, Content-Type, Content-Encoding, X-Pairing-Code, Idempotency-Key, Last-Event-ID, X-Request-Id, X-Postern-Tools, Traceparent, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, OpenAI-Organization, OpenAI-Project, OpenAI-Beta, X-Api-Key, Anthropic-Version, Anthropic-Beta, Anthropic-Dangerous-Direct-Browser-Access";
const EXPOSED =
  "x-request-id, request-id, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, retry-after, idempotency-replayed, x-postern-ignored, x-postern-changed, x-postern-fallback, x-postern-trimmed, x-postern-run, x-should-retry, mcp-session-id, mcp-protocol-version";
const MAX_EXTRA = 20;

/** The official OpenAI client describes its platform in x-stainless-* headers, a set that grows with its versions. */
function allowedHeaders(requested: string): string {
  const extra = requested.toLowerCase().split(",").map((name) => name.trim()).filter((name) =>
    /^x-stainless-[a-z-]{1,40}$/.test(name)
  );
  return [ALLOWED, ...extra.slice(0, MAX_EXTRA)].join(", ");
}

/**
 * Refuses by its headers a request whose body cannot be taken, before a byte of the body is read and before `100 Continue`.
 * Bodies without a length are counted as they are read.
 * @throws {HttpError} 417 expectation_failed, 501 not_implemented for a transfer coding, 415 unsupported_media_type for an
 *   unknown content coding, 413 payload_too_large, 400 invalid_request for a length that is no number. Source: RFC 9110 sections 8.4 and 10.1.1,
 *   RFC 9112 section 6.1
 */
export function guardBody(request: Request, maxBytes: number): void {
  const { headers } = request;
  const expect = headers.get("expect");
  if (expect !== null && !CONTINUE.test(expect)) {
    throw refuse(
      "expectation_failed",
      'Cannot meet the expectation of the header Expect: "100-continue" is the only one that is known here',
    );
  }
  const codings = codingsOf(request);
  if (codings.length > MAX_CODINGS || !codings.every((coding) => CODINGS.includes(coding))) {
    throw unknownCoding(CODINGS);
  }
  const length = headers.get("content-length");
  if (length === null) return checkTransfer(headers.get("transfer-encoding"));
  if (request.method === "GET" || request.method === "HEAD") return; // bodies of GET and HEAD are never read
  const bytes = Number(length);
  if (!/^\d+$/.test(length)) {
    throw refuse("invalid_request", "Cannot accept the request body: its Content-Length is no number");
  }
  if (bytes > maxBytes) throw tooLarge(maxBytes);
}

const CONTINUE = /^(?:100-continue)?$/i;
/** Codings of a body that are undone, where the runtime can. */
export const CODINGS: readonly string[] = ["gzip", "deflate", "zstd"];
/** Most codings of one body: each costs memory before its first byte. */
const MAX_CODINGS = 2;

/** Returns the refusal of a body that is compressed in another way, with those that are taken. Source: RFC 9110 section 15.5.16 */
export function unknownCoding(known: readonly string[]) {
  return refuse(
    "unsupported_media_type",
    `Cannot read the request body: send it without Content-Encoding, or compressed at most ${MAX_CODINGS} times, each with one of ` +
      known.join(", "),
    { headers: { "accept-encoding": known.join(", ") } },
  );
}

/** The server beneath decodes `chunked`. The handler would take the bytes of any other coding for the body itself. */
function checkTransfer(coding: string | null): void {
  if (coding === null || /^chunked$/i.test(coding)) return;
  throw refuse("not_implemented", UNKNOWN_TRANSFER_CODING);
}

/** Message of a 501. Node's own parser refuses some transfer codings before the gateway sees them, with the same message. */
export const UNKNOWN_TRANSFER_CODING =
  'Cannot read the request body: "chunked" is the only Transfer-Encoding that is known here';

/** Tells whether a request is a WebSocket handshake. */
export function isHandshake(request: Request): boolean {
  const upgrade = request.headers.get("upgrade");
  return upgrade !== null && upgrade.toLowerCase() === "websocket";
}

/** Facts that decide whether a request may become a WebSocket. */
export interface UpgradeGuardOptions {
  readonly handshake: boolean;
  readonly path: string;
  /** The path is a WebSocket route's */
  readonly socketRoute: boolean;
  /** The server beneath can hand the connection over; a plain fetch-based mount cannot */
  readonly canUpgrade: boolean;
}

/**
 * Checks that a handshake goes to a socket route, and that a GET of a socket route is a handshake.
 * @throws {HttpError} 400 invalid_request for a handshake elsewhere, 426 upgrade_required for a plain GET of a socket route, and for a
 *   handshake at the route of Responses, which is plain HTTP here
 */
export function guardUpgrade(request: Request, options: UpgradeGuardOptions): void {
  const { handshake, path, socketRoute, canUpgrade } = options;
  if (handshake && !socketRoute) {
    // Codex goes on over HTTP after this status alone
    if (path === "/v1/responses") {
      throw refuse("upgrade_required", "Cannot open a WebSocket here: send each request of Responses by POST");
    }
    throw refuse("invalid_request", "Cannot open a WebSocket here: /ws/chat and /ws/node are the routes for it");
  }
  const reads = request.method === "GET" || request.method === "HEAD";
  if (!socketRoute || !reads || (handshake && canUpgrade)) return;
  throw refuse(
    "upgrade_required",
    "Cannot answer a plain request here: this route is a WebSocket, so send an upgrade request",
    {
      headers: { upgrade: "websocket" },
    },
  );
}

/** Query parameter that clients of Azure's API add to each request */
const API_VERSION = "api-version";
const MAX_SHOWN_LENGTH = 64;

/**
 * Checks that a route knows every parameter of a query: one that is dropped in silence answers another question than was asked.
 * @throws {HttpError} 400 invalid_request with the name in `param`
 */
export function guardQuery(asked: URLSearchParams, { query = {}, access }: Pick<Route, "query" | "access">): void {
  // Browsers and monitors add some of their own
  if (access === "public") return;
  const unknown = [...asked.keys()].find((name) => name !== API_VERSION && !Object.hasOwn(query, name));
  if (unknown === undefined) return;
  const param = unknown.slice(0, MAX_SHOWN_LENGTH);
  const known = Object.keys(query);
  const way = known.length === 0 ? "it takes none" : `it takes ${known.join(", ")}`;
  const message = `Cannot accept the query parameter "${param}": this route does not know it; ${way}`;
  throw refuse("invalid_request", message, { param });
}
