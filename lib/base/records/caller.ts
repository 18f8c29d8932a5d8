/** Scopes of a token (docs/design/access.md "Scopes"). `admin` holds all. */
export const SCOPES = ["chat", "runs", "tools", "approve", "admin"] as const;
/** Verb that a token can be given. */
export type TokenScope = (typeof SCOPES)[number];
/** Verb that a caller may use. `cluster` belongs to the token of a cluster alone: no other token has it or gets it, not even with `admin`. */
export type Scope = TokenScope | "cluster";

/** Identity and door that a run or a tool call came by. */
export interface Caller {
  /**
   * `http`, `websocket`, `mcp` (an agent that is a client of MCP), `cli`, `program` (the one that mounts the gateway), `agent` (the model),
   * `subagent`, `cron`, `sop`, `channel`, `node` (a gateway, on the node), `link` (an answer link, whose id stands in place of the token's)
   */
  readonly via:
    | "http"
    | "websocket"
    | "mcp"
    | "cli"
    | "program"
    | "agent"
    | "subagent"
    | "cron"
    | "sop"
    | "channel"
    | "node"
    | "link";
  /** Id of the token, null without one (pairing off, or the terminal) */
  readonly tokenId: string | null;
  readonly scopes: readonly Scope[];
}

/** Person or program that changes something. */
export type Actor = Pick<Caller, "via" | "tokenId">;

/** Returns an actor in the form of records and of the audit. */
export function storedActor(
  { via, tokenId }: Actor,
): { readonly via: Caller["via"]; readonly token_id: string | null } {
  return { via, token_id: tokenId };
}

/** Tells whether two callers came with one token. Callers without a token are nobody in particular, so never the same. */
export function isSameToken(a: Pick<Caller, "tokenId">, b: Pick<Caller, "tokenId">): boolean {
  return a.tokenId !== null && a.tokenId === b.tokenId;
}

/** Tells whether these scopes include `scope`. What gateways ask each other has passed the checks of one of them, so `admin` may not ask it. */
export function hasScope(scopes: readonly Scope[], scope: Scope): boolean {
  return scopes.includes(scope) || (scope !== "cluster" && scopes.includes("admin"));
}

/** Tells whether a token can be given this scope. */
export function isTokenScope(scope: Scope): scope is TokenScope {
  return scope !== "cluster";
}

/** Returns the scopes that both sets grant. `admin` grants every scope. */
export function commonScopes(a: readonly Scope[], b: readonly Scope[]): readonly Scope[] {
  return SCOPES.filter((scope) => hasScope(a, scope) && hasScope(b, scope));
}

/**
 * Tells whether a caller may act on a thing that somebody began: its own token began the thing, or it has the scope `runs`.
 * @param owner who began it; undefined where nobody knows
 * Source: docs/design/access.md "Scopes"
 */
export function mayReach(
  caller: Pick<Caller, "tokenId" | "scopes">,
  owner: Pick<Caller, "tokenId"> | undefined,
): boolean {
  return hasScope(caller.scopes, "runs") || (owner !== undefined && isSameToken(owner, caller));
}
