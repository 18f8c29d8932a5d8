import type { Identity } from "../../lib/access/identity.ts";
import { HttpError } from "../../lib/base/errors.ts";
import { SCOPES } from "../../lib/base/records/caller.ts";
import type { Services } from "../../lib/gateway.ts";
import type { Audit } from "../../lib/guard/audit/audit.ts";
import { isLoopbackName } from "../../lib/system/net/address.ts";
import { checkScope, type Door } from "../door.ts";
import type { GatewaySettings } from "../gateway_settings.ts";
import type { RequestContext } from "../route.ts";
import { httpError } from "../wire/http_errors.ts";

/** Identity of every request while `require_pairing = false` opens a loopback gateway. */
const OPEN: Identity = { tokenId: null, scopes: SCOPES };

/** Facts that a request's identity is found by. */
export interface AccessOptions {
  readonly services: Services;
  readonly settings: GatewaySettings;
  /** Query parameter `ticket` of a WebSocket handshake; null for any other request */
  readonly ticket: string | null;
  /** Address of the peer; the command line's token counts from this machine only. undefined: the server does not say */
  readonly remoteAddress: string | undefined;
}

/**
 * Returns the identity of a request; undefined without credentials that count.
 *
 * While bearer routes are open, an unknown token is as good as none: OpenAI clients cannot be without a key. They are open to
 * this machine alone: a server that mounts the gateway may listen on every address, where the Host header proves nothing.
 */
export function identify(
  request: Request,
  { services, settings, ticket, remoteAddress }: AccessOptions,
): Identity | undefined {
  const token = bearerTokenOf(request.headers.get("authorization"));
  const local = isLoopbackAddress(remoteAddress);
  const identity = token !== undefined
    ? services.tokens.verify(token, local ? "loopback" : "other")
    : ticket === null
    ? undefined
    : services.tickets.take(ticket);
  if (identity !== undefined) return identity;
  return settings.open && (local || remoteAddress === undefined) ? OPEN : undefined;
}

/**
 * Returns the identity a route demands; null on routes that demand none.
 * @throws {HttpError} 401 auth_required or auth_invalid, 403 insufficient_scope
 */
export function checkAccess(
  request: Request,
  door: Door,
  { identity, ticket }: { readonly identity: Identity | undefined; readonly ticket: string | null },
): Identity | null {
  if (!asksForToken(door)) return null;
  if (identity === undefined) throw unidentified(request, ticket);
  checkScope(door, identity, "use this route");
  return identity;
}

/** Tells whether a door asks for a bearer token. */
function asksForToken({ access }: Door): boolean {
  return access !== "public" && access !== "pairing_code" && access !== "node_token";
}

function unidentified(request: Request, ticket: string | null): HttpError {
  const token = bearerTokenOf(request.headers.get("authorization"));
  if (token === undefined && ticket === null) {
    return httpError("auth_required", 'Cannot use this route without a token: send "Authorization: Bearer pst_..."');
  }
  return httpError(
    "auth_invalid",
    `Cannot accept this ${token === undefined ? "ticket" : "token"}: it is unknown, used up or expired`,
  );
}

/** Codes of refused credentials. */
const REFUSALS: ReadonlySet<string> = new Set([
  "auth_required",
  "auth_invalid",
  "pairing_code_required",
  "pairing_code_invalid",
  "pairing_locked",
  "insufficient_scope",
]);

/** Writes refused credentials to the audit. Any other error is left out. */
export function auditRefusal(audit: Audit, { remoteAddress }: RequestContext, error: unknown): void {
  if (error instanceof HttpError && REFUSALS.has(error.code)) audit.accessFailed(remoteAddress, error.code);
}

const BEARER = /^Bearer +([\x21-\x7e]+) *$/i;

/** Returns the token of an `Authorization: Bearer` header; undefined without the header and for another scheme. Source: RFC 6750 section 2.1 */
export function bearerTokenOf(authorization: string | null | undefined): string | undefined {
  return BEARER.exec(authorization ?? "")?.[1];
}

/** Tells whether a peer's address is a loopback address of this machine. IPv4 written as IPv6 (`::ffff:127.0.0.1`) counts too. */
export function isLoopbackAddress(address: string | undefined): boolean {
  return address !== undefined && isLoopbackName(address.replace(/^::ffff:/i, ""));
}
