import { SHUTTING_DOWN } from "../lib/base/cancel.ts";
import { type Caller, hasScope, type Scope, SCOPES } from "../lib/base/records/caller.ts";
import { type Identity, SILENCE_MS, unconfirmed } from "../lib/access/identity.ts";
import { HttpError, refuse } from "../lib/base/errors.ts";
import type { Config } from "../lib/config/config.ts";
import type { Services } from "../lib/services.ts";
import type { Audit } from "../lib/guard/audit/audit.ts";
import { isLoopbackName } from "../lib/system/net/address.ts";

/**
 * Credentials that a way into the gateway asks for. `public`: none. `pairing_code`: the handler checks the code. `node_token`: the
 * route checks the token of node control. Otherwise the scope that a bearer token needs.
 */
export type DoorAccess = "public" | "pairing_code" | "node_token" | Scope;

/**
 * Kinds of work that go on while it is not certain which tokens count, since the database of the cluster is down: for
 * `[cluster] stale_auth_secs`, with the tokens that the gateway knows. A door that names none of them is closed until it is certain again. So
 * tools, runs, approvals and administration are refused.
 * Source: docs/design/cluster.md "Tokens"
 */
export const STEADY_WORK = {
  completion: "A completion without the agent's tools and without a record",
  models: "The lists of models",
  echo: "An answer that proves that the gateway is there",
  link: "Requests of the other gateways of the cluster, whose token no database keeps",
  connection: "What a client says about its open connection or its own run at work there",
} as const;

/** Kind of work that goes on while it is not certain which tokens count. */
export type SteadyWork = keyof typeof STEADY_WORK;

/** A way into the gateway. Routes and WebSocket frames declare in this form which credentials a caller needs. */
export interface Door {
  /** Required: forgetting it does not compile */
  readonly access: DoorAccess;
  /**
   * The thing that a request through this door goes on with. A caller that did not begin it needs the scope `runs` beside `access`.
   * Default: none.
   */
  readonly continues?: "run" | "conversation";
  /** Kind of work that goes on while the database of a cluster is down. Default: none, so that the door is closed then */
  readonly steady?: SteadyWork;
}

/**
 * Checks the scopes of a caller at a door.
 * @param action what the caller wants to do, for the message: "use this route"
 * @throws {HttpError} 403 insufficient_scope
 */
export function checkScope({ access }: Door, caller: Pick<Caller, "scopes">, action: string): void {
  if (isPermitted({ access }, caller)) return;
  throw refuse("insufficient_scope", `Cannot ${action}: the token lacks the scope "${access}"`);
}

/** Tells whether the scopes of a caller are enough for a door. */
export function isPermitted({ access }: Door, { scopes }: Pick<Caller, "scopes">): boolean {
  return access === "public" || access === "pairing_code" || access === "node_token" || hasScope(scopes, access);
}

/** Returns the caller of a request, as records name it. */
export function callerOf(context: { readonly identity: Identity | null }, via: Caller["via"]): Caller {
  return { via, tokenId: context.identity?.tokenId ?? null, scopes: context.identity?.scopes ?? [] };
}

/** Services that tell whether the token of a known sender counts. */
export interface StandingParts {
  readonly tokens: Pick<Services["tokens"], "confirm" | "isFixed" | "isLive" | "isUncertain" | "standing">;
  readonly config: () => Pick<Config, "cluster">;
}

/** Identity of every request while `require_pairing = false` opens a loopback gateway. */
const OPEN: Identity = { tokenId: null, scopes: SCOPES };

/** Facts that a request's identity is found by. */
export interface AccessOptions {
  readonly services: Services;
  readonly settings: {
    /** Bearer routes are open: `require_pairing = false` on a loopback bind */
    readonly open: boolean;
  };
  /** Takes the ticket of a WebSocket handshake. Undefined for any other request */
  readonly takeTicket: (() => Identity | undefined) | undefined;
  /** Address of the peer; the command line's token counts from this machine only. undefined: the server does not say, which lets nobody in */
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
  { services, settings, takeTicket, remoteAddress }: AccessOptions,
): Identity | undefined {
  const { token, isAmbiguous } = sentTokenOf(request);
  if (isAmbiguous) return undefined;
  const local = isLoopbackAddress(remoteAddress);
  const identity = token !== undefined
    ? services.tokens.verify(token, local ? "loopback" : "other") ?? identifyGateway(services, token)
    : takeTicket?.();
  if (identity !== undefined) return identity;
  return settings.open && local ? OPEN : undefined;
}

/** Identity of the other gateways of a cluster. */
const GATEWAY: Identity = { tokenId: "cluster", scopes: ["cluster"] };

/** Returns the identity of the token of the cluster. It has its own scope alone, whatever else is open. */
function identifyGateway({ cluster }: Services, token: string): Identity | undefined {
  return cluster.links.accepts(token) ? GATEWAY : undefined;
}

/**
 * Returns the identity a route demands; null on routes that demand none.
 * @throws {HttpError} 401 auth_required or auth_invalid, 403 insufficient_scope, 503 storage_unavailable
 */
export function checkAccess(
  request: Request,
  door: Door,
  { identity, ticket, hidesPeer, services }: {
    readonly services: StandingParts;
    readonly identity: Identity | undefined;
    readonly ticket: string | null;
    /** Pairing is off, but the server around the gateway does not say where the request comes from */
    readonly hidesPeer: boolean;
  },
): Identity | null {
  if (!asksForToken(door)) return null;
  if (identity === undefined) throw hidesPeer ? unknownPeer() : unidentified(request, ticket, services);
  checkScope(door, identity, "use this route");
  checkCertainty(door, identity, services);
  return identity;
}

/**
 * Checks that the token of a request still counts after a wait, as for the body: it may have been revoked meanwhile.
 * @throws {HttpError} 401 auth_invalid
 */
export function checkStillCounts(identity: Identity | null, { tokens }: Pick<StandingParts, "tokens">): void {
  if (identity === null || identity === GATEWAY || tokens.isLive(identity.tokenId)) return;
  throw refuse(
    "auth_invalid",
    "Cannot go on with this request: its token was revoked or has expired since the request began",
  );
}

/**
 * Makes certain in the middle of a request that its token counts, before work that more than its door asks for is certain.
 * @throws {HttpError} 401 auth_invalid, 503 storage_unavailable
 */
export async function confirmCaller(
  { identity, services }: {
    readonly identity: Identity | null;
    readonly services: StandingParts;
  },
  door: Door,
): Promise<void> {
  const tokenId = identity?.tokenId ?? null;
  await services.tokens.confirm({ tokenId });
  checkStillCounts(identity, services);
  checkCertainty(door, { tokenId }, services);
}

/** Time that work which goes on without certainty waits for a slow database. Milliseconds */
const STEADY_WAIT_MS = 1_000;

/** Returns how many milliseconds a request waits for certainty about the tokens. Undefined: until the database answers or counts as down. */
export function patienceOf({ steady }: { readonly steady?: SteadyWork }, { cluster }: Config): number | undefined {
  return steady !== undefined && cluster.stale_auth_secs * 1_000 > SILENCE_MS ? STEADY_WAIT_MS : undefined;
}

/**
 * Checks that it is certain which tokens count, or that the work behind a door goes on without that. Every door asks here: routes, frames of
 * WebSockets and methods of MCP, with any token, the command line's too.
 * @throws {HttpError} 503 storage_unavailable
 */
export function checkCertainty(
  { steady }: { readonly access: unknown; readonly steady?: SteadyWork },
  { tokenId }: { readonly tokenId: string | null },
  { tokens, config }: StandingParts,
): void {
  const standing = tokens.standing();
  if (standing.isConfirmed) return;
  if (steady === undefined) throw unconfirmed();
  // Nobody can revoke a token that no database keeps
  if (steady === "link" || tokens.isFixed(tokenId) || standing.forMs <= config().cluster.stale_auth_secs * 1_000) {
    return;
  }
  throw unconfirmed();
}

/** Tells whether a door asks for a bearer token. */
export function asksForToken({ access }: Door): boolean {
  return access !== "public" && access !== "pairing_code" && access !== "node_token";
}

function unknownPeer(): HttpError {
  return refuse(
    "auth_required",
    "Cannot use this route without a token: pairing is off for this machine alone, and the server around the gateway passes no remoteAddress",
  );
}

function unidentified(request: Request, ticket: string | null, { tokens }: Pick<StandingParts, "tokens">): HttpError {
  const { token, isAmbiguous } = sentTokenOf(request);
  if (isAmbiguous) {
    return refuse(
      "auth_invalid",
      'Cannot tell which token counts: "Authorization" and "x-api-key" have different ones; send one of the headers alone',
    );
  }
  if (token !== undefined && tokens.isUncertain(token)) return unconfirmed();
  if (token === undefined && ticket === null) {
    return refuse("auth_required", 'Cannot use this route without a token: send "Authorization: Bearer pst_..."');
  }
  return refuse(
    "auth_invalid",
    `Cannot accept this ${token === undefined ? "ticket" : "token"}: it is unknown, used up or expired`,
  );
}

/**
 * Refuses what would outlive a shutdown that has begun, or is over.
 * @param action what is refused, as the middle of a sentence: "serve MCP"
 * @throws {HttpError} 503 shutting_down
 */
export function refuseWhileDraining(services: Pick<Services, "isDraining" | "stateReason">, action: string): void {
  if (!services.isDraining()) return;
  throw refuse("shutting_down", `Cannot ${action}: ${services.stateReason() ?? SHUTTING_DOWN}`);
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
export function auditRefusal(
  audit: Audit,
  { remoteAddress }: { readonly remoteAddress: string | undefined },
  error: unknown,
): void {
  if (error instanceof HttpError && REFUSALS.has(error.code)) audit.accessFailed(remoteAddress, error.code);
}

const BEARER = /^Bearer +([\x21-\x7e]+) *$/i;

const API_KEY = /^[\x21-\x7e]+$/;

/** The token that a request was sent with. */
export interface SentToken {
  /** undefined: there is none */
  readonly token: string | undefined;
  /** Two headers have different tokens: none of them counts, since another program may have read the other one */
  readonly isAmbiguous: boolean;
}

/** Returns the token of a request: that of `Authorization: Bearer`, or of `x-api-key`, by which clients of Anthropic send their key. */
export function sentTokenOf({ headers }: Pick<Request, "headers">): SentToken {
  const bearer = bearerTokenOf(headers.get("authorization"));
  const key = API_KEY.exec(headers.get("x-api-key") ?? "")?.[0];
  if (bearer !== undefined && key !== undefined && bearer !== key) return { token: undefined, isAmbiguous: true };
  return { token: bearer ?? key, isAmbiguous: false };
}

/** Returns the token of an `Authorization: Bearer` header; undefined without the header and for another scheme. Source: RFC 6750 section 2.1 */
export function bearerTokenOf(authorization: string | null | undefined): string | undefined {
  return BEARER.exec(authorization ?? "")?.[1];
}

/** Tells whether a peer's address is a loopback address of this machine. IPv4 written as IPv6 (`::ffff:127.0.0.1`) counts too. */
export function isLoopbackAddress(address: string | undefined): boolean {
  return address !== undefined && isLoopbackName(address.replace(/^::ffff:/i, ""));
}
