import type { Identity } from "../../lib/access/identity.ts";
import { SCOPES } from "../../lib/base/records/caller.ts";
import type { Services } from "../../lib/gateway.ts";
import { bearerTokenOf } from "../bearer_token.ts";
import { checkScope } from "../door.ts";
import type { GatewaySettings } from "../gateway_settings.ts";
import { isLoopbackAddress } from "../loopback.ts";
import type { Route } from "../route.ts";
import { httpError } from "../wire/error_codes.ts";

/** Who everyone is while `require_pairing = false` opens a loopback gateway. */
const OPEN: Identity = { tokenId: null, scopes: SCOPES };

export interface AccessOptions {
  readonly services: Services;
  readonly settings: GatewaySettings;
  /** Of the query of a WebSocket handshake; null elsewhere */
  readonly ticket: string | null;
  /** Address of the peer; the command line's token counts from this machine only. undefined: the server does not say */
  readonly remoteAddress: string | undefined;
}

/**
 * The identity a route demands; null on routes that demand none.
 *
 * While bearer routes are open, an unknown token is as good as none: OpenAI clients cannot be without a key. They are open to
 * this machine alone: a server that mounts the gateway may listen on every address, where the Host header proves nothing.
 * @throws {HttpError} 401 auth_required or auth_invalid, 403 insufficient_scope
 */
export function checkAccess(request: Request, route: Route, options: AccessOptions): Identity | null {
  if (route.access === "public" || route.access === "pairing_code" || route.access === "node_token") return null;
  const identity = identify(request, options);
  checkScope(route, identity, "use this route");
  return identity;
}

function identify(request: Request, { services, settings, ticket, remoteAddress }: AccessOptions): Identity {
  const token = bearerTokenOf(request.headers.get("authorization"));
  const local = isLoopbackAddress(remoteAddress);
  if (token !== undefined) {
    const identity = services.tokens.verify(token, local ? "loopback" : "other");
    if (identity !== undefined) return identity;
  } else if (ticket !== null) {
    const identity = services.tickets.take(ticket);
    if (identity !== undefined) return identity;
  }
  if (settings.open && (local || remoteAddress === undefined)) return OPEN;
  if (token === undefined && ticket === null) {
    throw httpError("auth_required", 'Cannot use this route without a token: send "Authorization: Bearer pst_..."');
  }
  throw httpError(
    "auth_invalid",
    `Cannot accept this ${token === undefined ? "ticket" : "token"}: it is unknown, used up or expired`,
  );
}
