import { isLoopbackName } from "../../lib/system/net/address.ts";
import type { GatewaySettings } from "../gateway_settings.ts";
import { hostNameOf, type RequestTarget, toAuthority } from "../request_target.ts";
import { httpError } from "../wire/http_errors.ts";

/**
 * Checks, on a loopback bind, that the `Host` header and the target's authority agree, and that they are loopback or in
 * `allowed_hosts`. Attack: a page whose host name was rebound to 127.0.0.1 (DNS rebinding) still sends its own name.
 * @throws {HttpError} 403 host_forbidden
 */
export function guardHost(request: Request, target: RequestTarget, settings: GatewaySettings): void {
  if (!settings.loopbackBind) return;
  const host = request.headers.get("host");
  if (host !== null && toAuthority(host, request.url.startsWith("https:")) !== target.authority) {
    throw forbidden("the Host header and the request's target name different hosts");
  }
  const name = hostNameOf(target.authority);
  if (isLoopbackName(name) || settings.allowedHosts.has(name) || settings.allowedHosts.has(target.authority)) return;
  throw forbidden("this host name is not the gateway's; add it to allowed_hosts in [gateway] if it is");
}

function forbidden(reason: string) {
  return httpError("host_forbidden", `Cannot serve this host: ${reason}`);
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
  throw httpError(
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
  "Authorization, Content-Type, X-Pairing-Code, Idempotency-Key, Last-Event-ID, X-Request-Id, X-Postern-Tools, Traceparent, OpenAI-Organization, OpenAI-Project, OpenAI-Beta";
const EXPOSED =
  "x-request-id, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, retry-after, idempotency-replayed, x-postern-ignored, x-postern-fallback, x-postern-trimmed, x-should-retry";
const MAX_EXTRA = 20;

/** The official OpenAI client describes its platform in x-stainless-* headers, a set that grows with its versions. */
function allowedHeaders(requested: string): string {
  const extra = requested.toLowerCase().split(",").map((name) => name.trim()).filter((name) =>
    /^x-stainless-[a-z-]{1,40}$/.test(name)
  );
  return [ALLOWED, ...extra.slice(0, MAX_EXTRA)].join(", ");
}
