import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { ConfigError, HttpError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import { type Actor, type Scope, SCOPES } from "../base/records/caller.ts";
import { type Logger, SILENT } from "../base/telemetry/log.ts";
import { readable, scanAll } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import type { Identity, IssuedToken, NewToken, RecordAccess, TokenRecord, Tokens } from "./identity.ts";
import { checkNewToken, KeptToken, parseTokenBody, secretHash, TOKEN_LIMITS, type TokenBody } from "./stored_token.ts";

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

/** A token as `verify` needs it, found by the hash of its text. */
interface Known {
  readonly identity: Identity;
  readonly loopbackOnly: boolean;
  /** undefined for the tokens of the environment and the control file */
  readonly kept: KeptToken | undefined;
}

/**
 * Opens the bearer tokens of a store, all held in memory by their hash. Tokens are `pst_` + 32 random bytes base64url.
 *
 * One gateway owns a store's tokens; expired ones are forgotten when it starts. A last use is written at most once a minute.
 */
export async function createTokens(options: CreateTokensOptions): Promise<Tokens> {
  const tokens = new StoredTokens(options);
  await tokens.load();
  return tokens;
}

class StoredTokens implements Tokens {
  readonly #options: CreateTokensOptions;
  readonly #record: RecordAccess;
  readonly #byHash = new Map<string, Known>();
  readonly #byId = new Map<string, KeptToken>();
  /** Ids of the tokens that no store keeps; null where pairing is off */
  readonly #fixedIds = new Set<string | null>([null, CONTROL]);
  readonly #listeners: ((tokenId: string) => void | Promise<void>)[] = [];
  /** Ids of tokens whose record cannot be read: verify refuses them */
  readonly #damaged: string[] = [];
  /** Tokens that are being made */
  #issuing = 0;
  /** How often all tokens were revoked */
  #purges = 0;

  constructor(options: CreateTokensOptions) {
    this.#options = options;
    this.#record = options.record ?? ((_change, writes) => options.store.batch(writes));
  }

  /** Reads the tokens of the store, forgets the expired ones, and adds the fixed ones. @throws {ConfigError} */
  async load(): Promise<void> {
    const { store, envToken, controlToken } = this.#options;
    for await (const stored of scanAll(store, TOKENS, { order: "created" })) {
      const [found] = readable(store, TOKENS, [stored], parseTokenBody);
      if (found === undefined) this.#damaged.push(stored.key);
      else this.#remember(found.value, found.version);
    }
    await this.#forget(this.#expired());
    this.#rememberFixed("env", envToken, false);
    this.#rememberFixed(CONTROL, controlToken, true);
  }

  verify(token: string, peer: "loopback" | "other" = "other"): Identity | undefined {
    if (token.length > MAX_PRESENTED_CHARACTERS) return undefined;
    const known = this.#byHash.get(secretHash(token));
    if (known === undefined || (known.loopbackOnly && peer !== "loopback")) return undefined;
    const { kept } = known;
    if (kept === undefined) return known.identity;
    const now = this.#options.clock.now();
    if (kept.isOver(now)) return undefined;
    this.#noteUse(kept, now);
    return known.identity;
  }

  async issue(order: NewToken): Promise<IssuedToken> {
    checkNewToken(order);
    if (this.#isFull()) await this.#forget(this.#expired());
    if (this.#isFull()) {
      throw conflict(`there are ${TOKEN_LIMITS.tokens} already; revoke one first`);
    }
    this.#issuing++;
    try {
      return await this.#make(order);
    } finally {
      this.#issuing--;
    }
  }

  isLive(tokenId: string | null): boolean {
    const kept = this.#keptOf(tokenId);
    if (kept === undefined) return this.#fixedIds.has(tokenId);
    return this.#byHash.has(kept.body.hash) && !kept.isOver(this.#options.clock.now());
  }

  scopesOf(tokenId: string | null): readonly Scope[] | undefined {
    if (!this.isLive(tokenId)) return undefined;
    if (tokenId === null) return SCOPES;
    return this.#byId.get(tokenId)?.body.scopes ?? ["admin"];
  }

  use(tokenId: string | null): boolean {
    if (!this.isLive(tokenId)) return false;
    const kept = this.#keptOf(tokenId);
    if (kept !== undefined) this.#noteUse(kept, this.#options.clock.now());
    return true;
  }

  onRevoke(listener: (tokenId: string) => void | Promise<void>): void {
    this.#listeners.push(listener);
  }

  async list(): Promise<readonly TokenRecord[]> {
    return [...this.#byId.values()].reverse().map((kept) => kept.toRecord());
  }

  async revoke(id: string, by: Actor | null = null): Promise<boolean> {
    const kept = this.#byId.get(id);
    if (kept === undefined) return false;
    await this.#forget([kept], by);
    return true;
  }

  async revokeAll(by: Actor | null = null): Promise<number> {
    this.#purges++;
    const all = [...this.#byId.values()];
    await this.#forget(all, by);
    // Tokens whose records could not be read go too
    for (const id of this.#damaged.splice(0)) await this.#options.store.takeOnce(TOKENS, id);
    return all.length;
  }

  async count(): Promise<number> {
    return this.#byId.size - this.#expired().length;
  }

  #keptOf(tokenId: string | null): KeptToken | undefined {
    return tokenId === null ? undefined : this.#byId.get(tokenId);
  }

  #isFull(): boolean {
    return this.#byId.size + this.#issuing >= TOKEN_LIMITS.tokens;
  }

  #expired(): readonly KeptToken[] {
    const now = this.#options.clock.now();
    return [...this.#byId.values()].filter((kept) => kept.isOver(now));
  }

  #remember(body: TokenBody, version: number): KeptToken {
    const kept = new KeptToken(body, version);
    this.#byId.set(body.id, kept);
    this.#byHash.set(body.hash, { identity: kept.identity, loopbackOnly: false, kept });
    return kept;
  }

  #rememberFixed(id: string, token: string | undefined, loopbackOnly: boolean): void {
    if (token === undefined || token === "") return;
    if (token.length > MAX_PRESENTED_CHARACTERS) {
      const reason = `it is longer than ${MAX_PRESENTED_CHARACTERS} characters, and no request could present it`;
      throw new ConfigError("config_environment", `Cannot use POSTERN_TOKEN: ${reason}; use a shorter one`);
    }
    this.#fixedIds.add(id);
    const identity: Identity = { tokenId: id, scopes: ["admin"] };
    this.#byHash.set(secretHash(token), { identity, loopbackOnly, kept: undefined });
  }

  /** Makes a token and writes it. @throws {HttpError} 409 conflict when all tokens were revoked meanwhile */
  async #make(order: NewToken): Promise<IssuedToken> {
    const { by = null, paired } = order;
    const token = `pst_${Buffer.from(this.#options.random.bytes(32)).toString("base64url")}`;
    const body = this.#toBody(order, secretHash(token));
    const purgesBefore = this.#purges;
    const record = new KeptToken(body, 1).toRecord();
    const change = paired === undefined
      ? { kind: "issued", record, by } as const
      : { kind: "paired", record, address: paired.address } as const;
    if (!await this.#record(change, [{ op: "insert", collection: TOKENS, key: body.id, body }])) {
      throw new Error(`Cannot create token "${body.id}": the id exists`);
    }
    if (this.#purges !== purgesBefore) {
      // Whoever makes tokens with a stolen one must not outlive the purge
      await this.#record({ kind: "revoked", tokenIds: [body.id], by: null }, [toDelete(body)]);
      throw conflict("all tokens were revoked in this moment");
    }
    return { token, record: this.#remember(body, 1).toRecord() };
  }

  #toBody({ scopes, label, ttlSeconds, idleTtlSeconds, plain }: NewToken, hash: string): TokenBody {
    const { clock, random } = this.#options;
    const now = clock.now();
    return {
      v: 1,
      id: random.id("tok_"),
      hash,
      label,
      scopes: [...new Set(scopes)],
      created_at: new Date(now).toISOString(),
      expires_at: ttlSeconds === undefined ? null : new Date(now + ttlSeconds * 1000).toISOString(),
      ...(idleTtlSeconds === undefined ? {} : { idle_ttl_seconds: idleTtlSeconds }),
      ...(plain ? { plain } : {}),
      last_used_at: null,
    };
  }

  /**
   * Removes tokens: `verify` refuses them at once, and lists show them until the store has removed them too.
   * @param by undefined for tokens that have expired
   */
  async #forget(tokens: readonly KeptToken[], by?: Actor | null): Promise<void> {
    for (const { body } of tokens) this.#byHash.delete(body.hash);
    const told = tokens.flatMap(({ body }) => this.#listeners.map((tell) => tell(body.id)));
    if (tokens.length > 0) {
      const deletes = tokens.map(({ body }) => toDelete(body));
      if (by === undefined) await this.#options.store.batch(deletes);
      else await this.#record({ kind: "revoked", tokenIds: tokens.map(({ body }) => body.id), by }, deletes);
    }
    for (const { body } of tokens) this.#byId.delete(body.id);
    await Promise.all(told);
  }

  /** Notes a use. Nobody waits for its record; a token revoked meanwhile has no such version and stays gone. */
  #noteUse(kept: KeptToken, now: number): void {
    const body = kept.use(now);
    if (body === undefined) return;
    const { store, log = SILENT } = this.#options;
    store.putIfVersion(TOKENS, body.id, kept.version, body).then(
      (written) => {
        if (written) kept.written();
      },
      (error: unknown) => log.warn("Cannot record the use of a token", { token_id: body.id, error }),
    );
  }
}

function toDelete({ id }: TokenBody): Write {
  return { op: "delete", collection: TOKENS, key: id };
}

function conflict(reason: string): HttpError {
  return new HttpError("conflict", `Cannot create a token: ${reason}`, { status: 409, type: "invalid_request_error" });
}
