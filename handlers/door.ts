import { type Caller, hasScope, type Scope } from "../lib/base/records/caller.ts";
import type { RequestContext } from "./route.ts";
import { httpError } from "./wire/http_errors.ts";

/**
 * Credentials that a way into the gateway asks for. `public`: none. `pairing_code`: the handler checks the code. `node_token`: the
 * route checks the token of node control. Otherwise the scope that a bearer token needs.
 */
export type DoorAccess = "public" | "pairing_code" | "node_token" | Scope;

/** A way into the gateway. Routes and WebSocket frames declare in this form which credentials a caller needs. */
export interface Door {
  /** Required: forgetting it does not compile */
  readonly access: DoorAccess;
  /**
   * The thing that a request through this door goes on with. A caller that did not begin it needs the scope `runs` beside `access`.
   * Default: none.
   */
  readonly continues?: "run" | "conversation";
}

/**
 * Checks the scopes of a caller at a door.
 * @param action what the caller wants to do, for the message: "use this route"
 * @throws {HttpError} 403 insufficient_scope
 */
export function checkScope({ access }: Door, { scopes }: Pick<Caller, "scopes">, action: string): void {
  if (access === "public" || access === "pairing_code" || access === "node_token" || hasScope(scopes, access)) return;
  throw httpError("insufficient_scope", `Cannot ${action}: the token lacks the scope "${access}"`);
}

/** Returns the caller of a request, as records name it. */
export function callerOf(context: Pick<RequestContext, "identity">, via: Caller["via"]): Caller {
  return { via, tokenId: context.identity?.tokenId ?? null, scopes: context.identity?.scopes ?? [] };
}
