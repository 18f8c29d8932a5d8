import { type HttpError, refuse } from "../base/errors.ts";
import type { Actor, Scope } from "../base/records/caller.ts";
import type { Write } from "../storage/store.ts";

/** The sender of a request, once its token was checked. `tokenId` is null when pairing is off, `env` for POSTERN_TOKEN, `control` for the CLI. */
export interface Identity {
  readonly tokenId: string | null;
  readonly scopes: readonly Scope[];
  /** Completions are plain: the model gets no tools of the agent. Default false */
  readonly plain?: boolean;
  /** Patterns of the tools that it may call, as `[agent] tools` has them. Default: all */
  readonly tools?: readonly string[];
}

/** Id of the command line's token. Each start makes another token, and none of them is ever revoked. */
export const CONTROL = "control";

/** A token as lists show it: never the token itself. Times are ISO 8601. */
export interface TokenRecord {
  readonly id: string;
  readonly label: string;
  readonly scopes: readonly Scope[];
  readonly created_at: string;
  readonly expires_at: string | null;
  /** The token ends when it was not used for so long; null: only at `expires_at`. */
  readonly idle_ttl_seconds: number | null;
  /** Completions with it go to the model without the agent's own tools. */
  readonly plain: boolean;
  /** Patterns of the tools that it may call; null: all. */
  readonly tools: readonly string[] | null;
  readonly last_used_at: string | null;
}

/** How a token is named, when it ends, and what completions with it are. Default of both times: never. */
export interface TokenTerms {
  readonly label: string;
  readonly ttlSeconds?: number | undefined;
  /** Seconds without a use */
  readonly idleTtlSeconds?: number | undefined;
  /** Completions are plain. Default false */
  readonly plain?: boolean | undefined;
  /** Patterns of the tools that it may call. Default: all */
  readonly tools?: readonly string[] | undefined;
}

/** A token just made: the only moment its text exists outside the client. */
export interface IssuedToken {
  readonly token: string;
  readonly record: TokenRecord;
}

/** A change of who may call. */
export type AccessChange =
  | { readonly kind: "issued"; readonly record: TokenRecord; readonly by: Actor | null }
  | { readonly kind: "revoked"; readonly tokenIds: readonly string[]; readonly by: Actor | null }
  | { readonly kind: "code_made"; readonly by: Actor | null }
  | { readonly kind: "paired"; readonly record: TokenRecord; readonly address: string | null }
  | { readonly kind: "locked"; readonly address: string | null };

/**
 * Writes a change of who may call, together with the record of it.
 * @returns false when a precondition of `writes` did not hold: then nothing was written
 */
export type RecordAccess = (change: AccessChange, writes: readonly Write[]) => Promise<boolean>;

/** Input for a new token: its scopes and terms, who makes it, and the pairing that led to it. */
export interface NewToken extends TokenTerms {
  readonly scopes: readonly Scope[];
  /** Default null */
  readonly by?: Actor | null;
  /** Set by pairing: it is the reason of the token. `address` is the peer's */
  readonly paired?: { readonly address: string | null };
}

/** How certain a gateway is which tokens count. A gateway alone always is. */
export type TokenStanding =
  | { readonly isConfirmed: true }
  /** The database of the cluster is away, or too many requests wait for its answer. `forMs`: milliseconds since it was certain */
  | { readonly isConfirmed: false; readonly forMs: number };

/** Sender of a request as `confirm` takes it: by the text of the token, or by the token's id. */
export type PresentedToken = { readonly token: string } | { readonly tokenId: string | null };

/** How long a request waits for certainty about the tokens. */
export interface TokenPatience {
  /** Most milliseconds to wait, for work that goes on without certainty. Default: until the database answers or counts as away */
  readonly maxMs?: number | undefined;
  /** Ends the wait. Read when a wait begins, since most requests need no signal. Default: nobody leaves */
  readonly signal?: AbortSignal;
}

/** Bearer tokens: only SHA-256 hashes are kept. `verify` is synchronous and costs microseconds: it runs on every request. */
export interface Tokens {
  /**
   * @param peer `loopback` when the request came from this machine: the control token counts from nowhere else. Default `other`
   * @returns undefined for an unknown, expired or malformed token
   */
  verify(token: string, peer?: "loopback" | "other"): Identity | undefined;
  /** @throws {HttpError} 400 invalid_request naming the field; 409 conflict when there are 1,000 tokens, or all are revoked meanwhile */
  issue(options: NewToken): Promise<IssuedToken>;
  list(): Promise<readonly TokenRecord[]>;
  /**
   * Tells whether a checked identity still counts, now or when its work goes on: false once its token was revoked or has expired.
   * Null (pairing is off) counts. `control` counts too while no such token exists: it stands for the person at this machine
   */
  isLive(tokenId: string | null): boolean;
  /** Returns the scopes that a checked identity has now, for work that goes on without it. undefined where it does not count, as `isLive` */
  scopesOf(tokenId: string | null): readonly Scope[] | undefined;
  /** Notes a use of a token that came in before, as each frame of a socket is one. @returns whether it still counts, as `isLive` */
  use(tokenId: string | null): boolean;
  /** Told the id of each token that is revoked, or forgotten after it expired, and waited for. For as long as the tokens live */
  onRevoke(listener: (tokenId: string) => void | Promise<void>): void;
  /** @param by default null. @returns false for an unknown id */
  revoke(id: string, by?: Actor | null): Promise<boolean>;
  /** Revokes all stored tokens, and those that are being made. @param by default null. @returns how many were stored */
  revokeAll(by?: Actor | null): Promise<number>;
  /**
   * Makes certain that what the other gateways of a cluster have changed counts here too. Call it before `verify`, `use` and `scopesOf`.
   * @returns undefined when it is certain now, as at a gateway alone, or cannot be, as `standing` then says. Rejects for no other reason than
   * `signal`
   * @throws {CancelError} when `signal` aborts first
   */
  confirm(by?: PresentedToken, patience?: TokenPatience): Promise<void> | undefined;
  /** Returns how certain it is which tokens count, after `confirm`. */
  standing(): TokenStanding;
  /** Tells whether a text could be a token that another gateway has made in the last moment, since this one does not know it. */
  isUnknown(token: string): boolean;
  /**
   * Tells whether a text could be a token that another gateway has made in the last moment, since this one does not know the token and cannot
   * look now. Certainty about the tokens that it knows is no answer to that.
   */
  isUncertain(token: string): boolean;
  /**
   * Makes a change of who may call while nobody else in the cluster makes one: when another gateway revoked the token of `by` at the same moment,
   * nothing is written.
   * @param write makes the change together with the writes that it is given. @returns false when a precondition did not hold
   * @returns false when a precondition of `write` did not hold at a gateway alone
   * @throws {HttpError} 409 conflict when the token of `by` counts no more; 503 storage_unavailable
   */
  changeBy(by: Actor | null, write: (also: readonly Write[]) => Promise<boolean>): Promise<boolean>;
  /** Tells whether other gateways use the same tokens: `confirm` may then return a promise. */
  readonly isShared: boolean;
  /** Tells whether an identity has a token that no store keeps, or none because pairing is off. Nobody can revoke it */
  isFixed(tokenId: string | null): boolean;
  /** Ends the looks at the tokens of the other gateways. */
  close(): void;
  /** Stored tokens that have not expired, not counting those of the environment and the control file */
  count(): Promise<number>;
}

/** Time without an answer after which the database of a cluster counts as away. Until then requests wait for a slow one. Milliseconds */
export const SILENCE_MS = 5_000;

/** Returns the error for a caller who asks for what needs certainty about the tokens while the database of the cluster is away. */
export function unconfirmed(): HttpError {
  return refuse(
    "storage_unavailable",
    "Cannot tell which tokens count: the database of the cluster does not answer; try again",
  );
}
