import { hash } from "node:crypto";
import * as v from "valibot";
import { storedObject } from "../base/records/stored_object.ts";
import { type HttpError, refuse } from "../base/errors.ts";
import { type Scope, SCOPES } from "../base/records/caller.ts";
import { Collection } from "../storage/read_records.ts";
import type { TokenRecord } from "../base/records/token.ts";
import type { Identity, NewToken } from "./identity.ts";

/** Bounds of tokens. */
export const TOKEN_LIMITS = {
  tokens: 1_000,
  labelCharacters: 128,
  /** Ten years */
  ttlSeconds: 315_360_000,
  toolPatterns: 64,
} as const;

const bodySchema = storedObject({
  v: v.literal(1),
  id: v.string(),
  /** SHA-256 of the token, base64url */
  hash: v.string(),
  label: v.string(),
  scopes: v.array(v.picklist(SCOPES)),
  created_at: v.string(),
  expires_at: v.nullable(v.string()),
  /** Seconds without a use after which the token counts no more. Absent: no such end, also in records of older versions */
  idle_ttl_seconds: v.optional(v.number()),
  /** Completions with it go to the model without the agent's own tools. Absent: they have them */
  plain: v.optional(v.literal(true)),
  /** Patterns of the tools that may be called with it. Absent: all */
  tools: v.optional(v.array(v.string())),
  last_used_at: v.nullable(v.string()),
});

/** A token as it is persisted. Times are ISO 8601. */
export type TokenBody = v.InferOutput<typeof bodySchema>;

/** Collection of the tokens, by id. */
export const TOKENS = new Collection("tokens", bodySchema);

const LAST_USED_EVERY_MS = 60_000;
/** Times that a use is written within an idle time, so that a crash forgets little of it */
const WRITES_PER_IDLE_TIME = 4;

/** A stored token in memory, with its last use. All times are in milliseconds since the epoch. */
export class KeptToken {
  /** As it was made or loaded: without its uses since then */
  readonly body: TokenBody;
  readonly identity: Identity;
  /** Infinity: never */
  readonly #expiresAt: number;
  /** Milliseconds without a use after which it ends; Infinity: never */
  readonly #idleMs: number;
  /** Number of the change by which the gateway learned of it */
  readonly change: number;
  /** Version of its record in the store */
  #version: number;
  /** Time of the last use that was sent to the store */
  #lastUsedWritten: number;
  /** undefined: not since the start */
  #lastUsed: number | undefined;

  constructor(body: TokenBody, { version, change }: { readonly version: number; readonly change: number }) {
    this.body = body;
    this.change = change;
    const { tools } = body;
    this.identity = {
      tokenId: body.id,
      scopes: body.scopes,
      ...(body.plain ? { plain: true } : {}),
      ...(tools === undefined ? {} : { tools }),
    };
    this.#version = version;
    this.#expiresAt = body.expires_at === null ? Infinity : Date.parse(body.expires_at);
    this.#idleMs = body.idle_ttl_seconds === undefined ? Infinity : body.idle_ttl_seconds * 1000;
    this.#lastUsedWritten = body.last_used_at === null ? -Infinity : Date.parse(body.last_used_at);
  }

  get version(): number {
    return this.#version;
  }

  /** Tells whether it has ended. A token that was never used counts as used when it was made. */
  isOver(now: number): boolean {
    return this.#expiresAt <= now || this.isUnused(now);
  }

  /** Tells whether it has ended because nobody used it, as far as this gateway knows. */
  isUnused(now: number): boolean {
    if (this.#idleMs === Infinity) return false;
    return (this.#lastUsed ?? Date.parse(this.body.last_used_at ?? this.body.created_at)) + this.#idleMs <= now;
  }

  /** Takes over a record that another gateway has written: its version, and its use where that is later. */
  adopt({ last_used_at }: TokenBody, version: number): void {
    this.#version = version;
    const used = last_used_at === null ? -Infinity : Date.parse(last_used_at);
    this.#lastUsedWritten = Math.max(this.#lastUsedWritten, used);
    if (used > (this.#lastUsed ?? -Infinity)) this.#lastUsed = used;
  }

  /** Notes a use. @returns the body to write, when a use is to be written now */
  use(now: number): TokenBody | undefined {
    this.#lastUsed = now;
    const everyMs = Math.min(LAST_USED_EVERY_MS, this.#idleMs / WRITES_PER_IDLE_TIME);
    if (now - this.#lastUsedWritten < everyMs) return undefined;
    this.#lastUsedWritten = now;
    return { ...this.body, last_used_at: new Date(now).toISOString() };
  }

  /** Notes that a use was written. */
  written(): void {
    this.#version++;
  }

  /** Returns the token as lists show it. */
  toRecord(): TokenRecord {
    const {
      id,
      label,
      scopes,
      created_at,
      expires_at,
      idle_ttl_seconds = null,
      plain = false,
      tools = null,
      last_used_at,
    } = this.body;
    const lastUsed = this.#lastUsed === undefined ? last_used_at : new Date(this.#lastUsed).toISOString();
    return { id, label, scopes, created_at, expires_at, idle_ttl_seconds, plain, tools, last_used_at: lastUsed };
  }
}

/**
 * Returns the SHA-256 of a secret, 43 characters of base64url, which is kept in place of the secret.
 *
 * Records are found by this hash, so the time a look-up takes says nothing about the secret. For values of 40 random bits or
 * more; never for a password.
 */
export function secretHash(secret: string): string {
  return hash("sha256", secret, "base64url");
}

/** @throws {HttpError} 400 invalid_request naming the field */
export function checkNewToken({ scopes, label, ttlSeconds, idleTtlSeconds, tools }: NewToken): void {
  checkScopes(scopes);
  if (tools !== undefined) checkTools(tools, scopes);
  if (label.length > TOKEN_LIMITS.labelCharacters) {
    throw invalid("label", `it must be at most ${TOKEN_LIMITS.labelCharacters} characters`);
  }
  checkSeconds("ttl_seconds", ttlSeconds);
  checkSeconds("idle_ttl_seconds", idleTtlSeconds);
}

function checkScopes(scopes: readonly Scope[]): void {
  if (scopes.length === 0 || scopes.some((scope) => !SCOPES.some((known) => known === scope))) {
    throw invalid("scopes", `it must name at least one of ${SCOPES.join(", ")} and nothing else`);
  }
}

/** A name, or the beginning of names and `*`. */
const TOOL_PATTERN = /^(?:\*|[a-zA-Z][a-zA-Z0-9_-]{0,127}\*?)$/;

function checkTools(tools: readonly string[], scopes: readonly Scope[]): void {
  if (tools.length === 0 || tools.length > TOKEN_LIMITS.toolPatterns || !tools.every((one) => TOOL_PATTERN.test(one))) {
    throw invalid("tools", `it must be 1-${TOKEN_LIMITS.toolPatterns} names of tools, or beginnings as "read_*"`);
  }
  // Runs have the tools of the agent, whoever asks for them
  const isBounded = scopes.includes("tools") && scopes.every((scope) => scope === "tools" || scope === "approve");
  if (!isBounded) throw invalid("tools", "it bounds the scope tools alone: give no other scope beside it than approve");
}

function checkSeconds(field: string, seconds: number | undefined): void {
  if (seconds === undefined) return;
  if (!Number.isInteger(seconds) || seconds < 1 || seconds > TOKEN_LIMITS.ttlSeconds) {
    throw invalid(field, `it must be a whole number of 1-${TOKEN_LIMITS.ttlSeconds}`);
  }
}

function invalid(param: string, reason: string): HttpError {
  return refuse("invalid_request", `Cannot create a token with this "${param}": ${reason}`, { param });
}
