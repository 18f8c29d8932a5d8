import type { GatewaySettings } from "../gateway_settings.ts";
import { type RequestTarget, toAuthority } from "../request_target.ts";
import { httpError } from "../wire/error_codes.ts";

/** Where a request comes from, as the browser says. */
export interface OriginVerdict {
  /** Value for `Access-Control-Allow-Origin`; undefined: the reply carries no Access-Control header */
  readonly allowOrigin: string | undefined;
}

const NOT_CROSS: OriginVerdict = { allowOrigin: undefined };

/**
 * A page of another site may read public pages (GET and HEAD, without CORS headers) and ask (OPTIONS); anything else, and every
 * WebSocket handshake, needs its origin in `cors_origins`.
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
