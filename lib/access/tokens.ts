import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { ConfigError, HttpError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import { type Scope, SCOPES } from "../base/records/caller.ts";
import { type Logger, SILENT } from "../base/telemetry/log.ts";
import { readable, scanAll } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import type { AccessActor, Identity, RecordAccess, TokenRecord, Tokens } from "./identity.ts";
import { parseTokenBody, secretHash, type TokenBody } from "./token_body.ts";

/** Bounds of tokens. */
export const TOKEN_LIMITS = {
  tokens: 1_000,
  labelCharacters: 128,
  /** Ten years */
  ttlSeconds: 315_360_000,
} as const;

/** Store, clock and fixed tokens that the tokens of a gateway work with. */
export interface CreateTokensOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  /** The token of POSTERN_TOKEN: id `env`, scope admin. Undefined or empty: none */
  readonly envToken?: string | undefined;
  /** The token of the control file: id `control`, scope admin, from a loopback peer only */
  readonly controlToken?: string | undefined;
  /** Writes what is issued and revoked. Default: to the store alone */
  readonly record?: RecordAccess;
  /** Told when a last use could not be written. Default silent */
  readonly log?: Logger;
}

/** By token id. */
export const TOKENS = "tokens";
/** Id of the command line's token. Each start makes another token, and none of them is ever revoked */
const CONTROL = "control";
const MAX_PRESENTED_CHARACTERS = 512;
const LAST_USED_EVERY_MS = 60_000;
/** Times that a use is written within an idle time, so that a crash forgets little of it */
const WRITES_PER_IDLE_TIME = 4;

/** A token as `verify` needs it, found by the hash of its text. */
interface Known {
  readonly identity: Identity;
  readonly loopbackOnly: boolean;
  /** undefined for the tokens of the environment and the control file */
  readonly kept: Kept | undefined;
}

interface Kept {
  /** As it was made or loaded: the last use since then is `lastUsed` */
  readonly body: TokenBody;
  version: number;
  /** Milliseconds since the epoch; Infinity: never */
  readonly expiresAt: number;
  /** Milliseconds without a use after which it ends; Infinity: never */
  readonly idleMs: number;
  /** Milliseconds since the epoch of the last use that was sent to the store */
  lastUsedWritten: number;
  /** Milliseconds since the epoch; undefined: not since the start */
  lastUsed: number | undefined;
}

/**
 * Bearer tokens over a store, all held in memory by their hash. Tokens are `pst_` + 32 random bytes base64url.
 *
 * One gateway owns a store's tokens; expired ones are forgotten when it starts. A last use is written at most once a minute.
 */
export async function createTokens(options: CreateTokensOptions): Promise<Tokens> {
  const { store, clock, random, log = SILENT } = options;
  const record: RecordAccess = options.record ?? ((_change, writes) => store.batch(writes));
  const byHash = new Map<string, Known>();
  const byId = new Map<string, Kept>();
  const fixedIds = new Set<string | null>([null, CONTROL]);
  const listeners: ((tokenId: string) => void | Promise<void>)[] = [];
  let issuing = 0;
  /** How often all tokens were revoked */
  let purges = 0;

  function remember(body: TokenBody, version: number): Kept {
    const kept = toKept(body, version);
    byId.set(body.id, kept);
    byHash.set(body.hash, {
      identity: { tokenId: body.id, scopes: body.scopes, ...(body.plain ? { plain: true } : {}) },
      loopbackOnly: false,
      kept,
    });
    return kept;
  }

  function rememberFixed(id: string, token: string | undefined, loopbackOnly: boolean): void {
    if (token === undefined || token === "") return;
    if (token.length > MAX_PRESENTED_CHARACTERS) {
      const reason = `it is longer than ${MAX_PRESENTED_CHARACTERS} characters, and no request could present it`;
      throw new ConfigError("config_environment", `Cannot use POSTERN_TOKEN: ${reason}; use a shorter one`);
    }
    fixedIds.add(id);
    const identity: Identity = { tokenId: id, scopes: ["admin"] };
    byHash.set(secretHash(token), { identity, loopbackOnly, kept: undefined });
  }

  /**
   * Removes tokens: `verify` refuses them at once, and lists show them until the store has removed them too.
   * @param by undefined for tokens that have expired
   */
  async function forget(tokens: readonly Kept[], by?: AccessActor): Promise<void> {
    for (const { body } of tokens) byHash.delete(body.hash);
    const told = tokens.flatMap(({ body }) => listeners.map((tell) => tell(body.id)));
    if (tokens.length > 0) {
      const deletes = tokens.map(({ body }): Write => ({ op: "delete", collection: TOKENS, key: body.id }));
      if (by === undefined) await store.batch(deletes);
      else await record({ kind: "revoked", tokenIds: tokens.map(({ body }) => body.id), by }, deletes);
    }
    for (const { body } of tokens) byId.delete(body.id);
    await Promise.all(told);
  }

  const expired = () => {
    const now = clock.now();
    return [...byId.values()].filter((kept) => isOver(kept, now));
  };

  function noteUse(kept: Kept, now: number): void {
    kept.lastUsed = now;
    const everyMs = Math.min(LAST_USED_EVERY_MS, kept.idleMs / WRITES_PER_IDLE_TIME);
    if (now - kept.lastUsedWritten >= everyMs) writeLastUsed(kept, now);
  }

  function isLive(tokenId: string | null): boolean {
    const kept = tokenId === null ? undefined : byId.get(tokenId);
    if (kept === undefined) return fixedIds.has(tokenId);
    return byHash.has(kept.body.hash) && !isOver(kept, clock.now());
  }

  /** Writes the use without being waited for; a token revoked meanwhile has no such version and stays gone. */
  function writeLastUsed(kept: Kept, now: number): void {
    kept.lastUsedWritten = now;
    const body: TokenBody = { ...kept.body, last_used_at: new Date(now).toISOString() };
    store.putIfVersion(TOKENS, body.id, kept.version, body).then(
      (written) => {
        if (written) kept.version++;
      },
      (error: unknown) => log.warn("Cannot record the use of a token", { token_id: body.id, error }),
    );
  }

  // verify refuses a token whose record cannot be read
  const damaged: string[] = [];
  for await (const stored of scanAll(store, TOKENS, { order: "created" })) {
    const [found] = readable(store, TOKENS, [stored], parseTokenBody);
    if (found === undefined) damaged.push(stored.key);
    else remember(found.value, found.version);
  }
  await forget(expired());
  rememberFixed("env", options.envToken, false);
  rememberFixed(CONTROL, options.controlToken, true);

  return {
    verify(token, peer = "other") {
      if (token.length > MAX_PRESENTED_CHARACTERS) return undefined;
      const known = byHash.get(secretHash(token));
      if (known === undefined || (known.loopbackOnly && peer !== "loopback")) return undefined;
      const { kept } = known;
      if (kept === undefined) return known.identity;
      const now = clock.now();
      if (isOver(kept, now)) return undefined;
      noteUse(kept, now);
      return known.identity;
    },

    async issue({ scopes, label, ttlSeconds, idleTtlSeconds, plain, by = null, paired }) {
      check(scopes, label);
      checkSeconds("ttl_seconds", ttlSeconds);
      checkSeconds("idle_ttl_seconds", idleTtlSeconds);
      if (byId.size + issuing >= TOKEN_LIMITS.tokens) await forget(expired());
      if (byId.size + issuing >= TOKEN_LIMITS.tokens) {
        throw new HttpError(
          "conflict",
          `Cannot create a token: there are ${TOKEN_LIMITS.tokens} already; revoke one first`,
          { status: 409, type: "invalid_request_error" },
        );
      }
      issuing++;
      try {
        const token = `pst_${Buffer.from(random.bytes(32)).toString("base64url")}`;
        const now = clock.now();
        const body: TokenBody = {
          v: 1,
          id: random.id("tok_"),
          hash: secretHash(token),
          label,
          scopes: [...new Set(scopes)],
          created_at: new Date(now).toISOString(),
          expires_at: ttlSeconds === undefined ? null : new Date(now + ttlSeconds * 1000).toISOString(),
          ...(idleTtlSeconds === undefined ? {} : { idle_ttl_seconds: idleTtlSeconds }),
          ...(plain ? { plain } : {}),
          last_used_at: null,
        };
        const purgesBefore = purges;
        const shown = toRecord(toKept(body, 1));
        const change = paired === undefined
          ? { kind: "issued", record: shown, by } as const
          : { kind: "paired", record: shown, address: paired.address } as const;
        if (!await record(change, [{ op: "insert", collection: TOKENS, key: body.id, body }])) {
          throw new Error(`Cannot create token "${body.id}": the id exists`);
        }
        if (purges !== purgesBefore) {
          // Whoever makes tokens with a stolen one must not outlive the purge
          await record(
            { kind: "revoked", tokenIds: [body.id], by: null },
            [{ op: "delete", collection: TOKENS, key: body.id }],
          );
          throw new HttpError("conflict", "Cannot create a token: all tokens were revoked in this moment", {
            status: 409,
            type: "invalid_request_error",
          });
        }
        return { token, record: toRecord(remember(body, 1)) };
      } finally {
        issuing--;
      }
    },

    isLive,

    scopesOf(tokenId) {
      if (!isLive(tokenId)) return undefined;
      if (tokenId === null) return SCOPES;
      return byId.get(tokenId)?.body.scopes ?? ["admin"];
    },

    use(tokenId) {
      if (!isLive(tokenId)) return false;
      const kept = tokenId === null ? undefined : byId.get(tokenId);
      if (kept !== undefined) noteUse(kept, clock.now());
      return true;
    },

    onRevoke: (listener) => void listeners.push(listener),

    list: async () => [...byId.values()].reverse().map(toRecord),

    async revoke(id, by = null) {
      const kept = byId.get(id);
      if (kept === undefined) return false;
      await forget([kept], by);
      return true;
    },

    async revokeAll(by = null) {
      purges++;
      const all = [...byId.values()];
      await forget(all, by);
      // Tokens whose records could not be read go too
      for (const id of damaged.splice(0)) await store.takeOnce(TOKENS, id);
      return all.length;
    },

    count: async () => byId.size - expired().length,
  };
}

function toKept(body: TokenBody, version: number): Kept {
  const lastUsedWritten = body.last_used_at === null ? -Infinity : Date.parse(body.last_used_at);
  const expiresAt = body.expires_at === null ? Infinity : Date.parse(body.expires_at);
  const idleMs = body.idle_ttl_seconds === undefined ? Infinity : body.idle_ttl_seconds * 1000;
  return { body, version, expiresAt, idleMs, lastUsedWritten, lastUsed: undefined };
}

/** A token that was never used counts as used when it was made. */
function isOver({ body, expiresAt, idleMs, lastUsed }: Kept, now: number): boolean {
  if (expiresAt <= now) return true;
  return idleMs !== Infinity && (lastUsed ?? Date.parse(body.last_used_at ?? body.created_at)) + idleMs <= now;
}

function toRecord(kept: Kept): TokenRecord {
  const { id, label, scopes, created_at, expires_at, idle_ttl_seconds = null, plain = false, last_used_at } = kept.body;
  const lastUsed = kept.lastUsed === undefined ? last_used_at : new Date(kept.lastUsed).toISOString();
  return { id, label, scopes, created_at, expires_at, idle_ttl_seconds, plain, last_used_at: lastUsed };
}

function check(scopes: readonly Scope[], label: string): void {
  if (scopes.length === 0 || scopes.some((scope) => !SCOPES.includes(scope))) {
    throw invalid("scopes", `it must name at least one of ${SCOPES.join(", ")} and nothing else`);
  }
  if (label.length > TOKEN_LIMITS.labelCharacters) {
    throw invalid("label", `it must be at most ${TOKEN_LIMITS.labelCharacters} characters`);
  }
}

function checkSeconds(field: string, seconds: number | undefined): void {
  if (seconds === undefined) return;
  if (!Number.isInteger(seconds) || seconds < 1 || seconds > TOKEN_LIMITS.ttlSeconds) {
    throw invalid(field, `it must be a whole number of 1-${TOKEN_LIMITS.ttlSeconds}`);
  }
}

function invalid(param: string, reason: string): HttpError {
  return new HttpError("invalid_request", `Cannot create a token with this "${param}": ${reason}`, {
    status: 400,
    type: "invalid_request_error",
    param,
  });
}
