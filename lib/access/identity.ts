import { type HttpError, refuse } from "../base/errors.ts";
import type { Actor, Scope } from "../base/records/caller.ts";
import type { TokenRecord } from "../base/records/token.ts";
import type { Write } from "../storage/store.ts";

/** The sender of a request, once its token was checked. `tokenId` is null when pairing is off, `env` for POSTERN_TOKEN, `control` for the CLI. */
export interface Identity {
  /** Id of the token, which the audit and records of runs name; null when pairing is off */
  readonly tokenId: string | null;
  /** Verbs that the sender may use: `chat`, `runs`, `tools`, `approve`, or `admin`, which holds all */
  readonly scopes: readonly Scope[];
  /** Completions are plain: the model gets no tools of the agent. Default false */
  readonly plain?: boolean;
  /** Patterns of the tools that it may call, as `[agent] tools` has them. Default: all */
  readonly tools?: readonly string[];
}

/** Id of the command line's token. Each start makes another token, and none of them is ever revoked. */
export const CONTROL = "control";

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
  /** Pairing that is the reason of the token; absent without one. `address` is the peer's */
  readonly paired?: { readonly address: string | null };
}

/** How certain a gateway is which tokens count. A gateway alone always is. */
export type TokenStanding =
  | { readonly isConfirmed: true }
  /** The database of the cluster is down, or too many requests wait for its answer. `forMs`: milliseconds since it was certain */
  | { readonly isConfirmed: false; readonly forMs: number };

/** Sender of a request as `confirm` takes it: by the text of the token, or by the token's id. */
export type PresentedToken = { readonly token: string } | { readonly tokenId: string | null };

/** How long a request waits for certainty about the tokens. */
export interface TokenPatience {
  /** Most milliseconds to wait, for work that goes on without certainty. Default: until the database answers or counts as down */
  readonly maxMs?: number | undefined;
  /** Ends the wait. Read when a wait begins, since most requests need no signal. Default: nobody leaves */
  readonly signal?: AbortSignal;
}

/** Time without an answer after which the database of a cluster counts as down. Until then requests wait for a slow one. Milliseconds */
export const SILENCE_MS = 5_000;

/** Returns the error for a caller who asks for what needs certainty about the tokens while the database of the cluster is down. */
export function unconfirmed(): HttpError {
  return refuse(
    "storage_unavailable",
    "Cannot tell which tokens count: the database of the cluster does not answer; try again",
  );
}
