import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { ConfigError, type HttpError, refuse } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import { type Actor, isTokenScope, type Scope, SCOPES } from "../base/records/caller.ts";
import { type Logger, SILENT } from "../base/telemetry/log.ts";
import { type ReadRecord, scanAll } from "../storage/read_records.ts";
import type { TokenRecord } from "../base/records/token.ts";
import type { Store, Write } from "../storage/store.ts";
import {
  CONTROL,
  type Identity,
  type IssuedToken,
  type NewToken,
  type PresentedToken,
  type RecordAccess,
  type TokenPatience,
  type TokenStanding,
} from "./identity.ts";
import { checkNewToken, KeptToken, secretHash, TOKEN_LIMITS, type TokenBody, TOKENS } from "./stored_token.ts";
import type { TokenSharing, TokenSharingOptions } from "./token_sharing.ts";

/** Store, clock and fixed tokens that the tokens of a gateway work with. */
export interface TokensOptions {
  readonly store: Store;
  /** In a cluster the clock of the database */
  readonly clock: Clock;
  readonly random: Random;
  /** The token of POSTERN_TOKEN: id `env`, scope admin. Undefined or empty: none */
  readonly envToken?: string | undefined;
  /** The token of the control file: id `control`, scope admin, from a loopback peer only */
  readonly controlToken?: string | undefined;
  /** Writes what is issued and revoked. Default: to the store alone */
  readonly record?: RecordAccess;
  /** Runs when a last use could not be written. Default silent */
  readonly log?: Logger;
  /** Opens the sharing with the other gateways that use the store. Default: there are none */
  readonly openSharing?: ((parts: Omit<TokenSharingOptions, "news">) => Promise<TokenSharing>) | undefined;
}

const MAX_PRESENTED_CHARACTERS = 512;

/** A token as `verify` needs it, found by the hash of its text. */
interface Known {
  readonly identity: Identity;
  readonly loopbackOnly: boolean;
  /** undefined for the tokens of the environment and the control file */
  readonly kept: KeptToken | undefined;
}

/**
 * Bearer tokens, `pst_` + 32 random bytes base64url: only SHA-256 hashes are kept, all in memory. `verify` is synchronous and costs
 * microseconds: it runs on every request.
 *
 * Expired tokens are forgotten when a gateway starts. A last use is written at most once a minute. Where other gateways use the store, their changes are
 * read (`TokenSharing`); else this gateway owns the tokens.
 */
export class Tokens {
  readonly #options: TokensOptions;
  readonly #record: RecordAccess;
  readonly #byHash = new Map<string, Known>();
  readonly #byId = new Map<string, KeptToken>();
  /** Ids of the tokens that no store keeps; null where pairing is off */
  readonly #fixedIds = new Set<string | null>([null, CONTROL]);
  readonly #listeners: ((tokenId: string) => void | Promise<void>)[] = [];
  /** Ids of tokens whose record cannot be read: verify refuses them */
  #damaged: string[] = [];
  /** The tokens of the other gateways. Undefined at a gateway alone */
  #sharing: TokenSharing | undefined = undefined;
  /** Reads of records of tokens that have ended unused, since they may have been used at another gateway */
  readonly #uses = new Map<string, { readonly at: number; readonly read: Promise<void> }>();
  /** Number of changes of this gateway, by which a reading of all tokens knows those that came after its begin */
  #changes = 0;
  /** Number of the change by which this gateway removed a token, until the next reading */
  readonly #removedBy = new Map<string, number>();
  /** Tokens that are being made */
  #issuing = 0;
  /** How often all tokens were revoked */
  #purges = 0;

  constructor(options: TokensOptions) {
    this.#options = options;
    this.#record = options.record ?? ((_change, writes) => options.store.batch(writes));
  }

  /** Reads the tokens of a store, forgets the expired ones, and adds the fixed ones. @throws {ConfigError} */
  static async open(options: TokensOptions): Promise<Tokens> {
    const tokens = new Tokens(options);
    await tokens.#load();
    return tokens;
  }

  async #load(): Promise<void> {
    const { store, clock, random, openSharing, log = SILENT, envToken, controlToken } = this.#options;
    this.#sharing = await openSharing?.({
      ...{ store, clock, random, log },
      read: () => this.#read({ order: "key" }),
    });
    if (this.#sharing === undefined) (await this.#read({ order: "created" }))();
    else await this.#sharing.start();
    await this.#forgetExpired();
    this.#rememberFixed("env", envToken, false);
    this.#rememberFixed(CONTROL, controlToken, true);
  }

  /** Ends the looks at the tokens of the other gateways. */
  close(): void {
    this.#sharing?.stop();
  }

  /**
   * Makes certain that what the other gateways of a cluster have changed counts here too. Call it before `verify`, `use` and `scopesOf`.
   * @returns undefined when it is certain now, as at a gateway alone, or cannot be, as `standing` then says. Rejects for no other reason than
   * `signal`
   * @throws {CancelError} when `signal` aborts first
   */
  confirm(by?: PresentedToken, patience?: TokenPatience): Promise<void> | undefined {
    const sharing = this.#sharing;
    if (sharing === undefined) return undefined;
    if (by === undefined) return sharing.confirm(patience);
    const known = "token" in by ? this.#byHash.get(secretHash(by.token)) : this.#knownById(by.tokenId);
    if (known === undefined) return this.#couldBeStored(by) ? sharing.confirmNew(patience) : undefined;
    const { kept } = known;
    if (kept?.isUnused(this.#options.clock.now()) && sharing.standing().isConfirmed) return this.#readUse(kept);
    return sharing.confirm(patience);
  }

  /** Tells whether other gateways use the same tokens: `confirm` may then return a promise. */
  get isShared(): boolean {
    return this.#sharing !== undefined;
  }

  /** Tells whether an identity has a token that no store keeps, or none because pairing is off. Nobody can revoke it */
  isFixed(tokenId: string | null): boolean {
    return this.#fixedIds.has(tokenId);
  }

  /** Returns how certain it is which tokens count, after `confirm`. */
  standing(): TokenStanding {
    return this.#sharing?.standing() ?? CONFIRMED;
  }

  /** Tells whether a text could be a token that another gateway has made in the last moment, since this one does not know it. */
  isUnknown(token: string): boolean {
    return this.#couldBeStored({ token }) && !this.#byHash.has(secretHash(token));
  }

  /**
   * Tells whether a text could be a token that another gateway has made in the last moment, since this one does not know the token and cannot
   * look now. Certainty about the tokens that it knows is no answer to that.
   */
  isUncertain(token: string): boolean {
    const mayLook = this.#sharing?.mayWait() ?? true;
    return !mayLook && this.isUnknown(token);
  }

  /**
   * Makes a change of who may call while nobody else in the cluster makes one: when another gateway revoked the token of `by` at the same moment,
   * nothing is written.
   * @param write makes the change together with the writes that it is given. @returns false when a precondition did not hold
   * @returns false when a precondition of `write` did not hold at a gateway alone
   * @throws {HttpError} 409 conflict when the token of `by` counts no more; 503 storage_unavailable
   */
  async changeBy(by: Actor | null, write: (also: readonly Write[]) => Promise<boolean>): Promise<boolean> {
    const sharing = this.#sharing;
    if (sharing === undefined) return await write([]);
    await sharing.change(write, () => {
      if (by !== null && !this.isLive(by.tokenId)) throw notAnyMore();
    });
    return true;
  }

  /**
   * @param peer `loopback` when the request came from this machine: the control token counts from nowhere else. Default `other`
   * @returns undefined for an unknown, expired or malformed token
   */
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

  /** @throws {HttpError} 400 invalid_request naming the field; 409 conflict when there are 1,000 tokens, or all are revoked meanwhile */
  async issue(order: NewToken): Promise<IssuedToken> {
    checkNewToken(order);
    if (this.#isFull()) await this.#forgetExpired();
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

  /**
   * Tells whether a checked identity still counts, now or when its work goes on: false once its token was revoked or has expired.
   * Null (pairing is off) counts. `control` counts too while no such token exists: it stands for the person at this machine
   */
  isLive(tokenId: string | null): boolean {
    const kept = this.#keptOf(tokenId);
    if (kept === undefined) return this.#fixedIds.has(tokenId);
    return this.#byHash.has(kept.body.hash) && !kept.isOver(this.#options.clock.now());
  }

  /** Returns the scopes that a checked identity has now, for work that goes on without it. undefined where it does not count, as `isLive` */
  scopesOf(tokenId: string | null): readonly Scope[] | undefined {
    if (!this.isLive(tokenId)) return undefined;
    if (tokenId === null) return SCOPES;
    return this.#byId.get(tokenId)?.body.scopes ?? ["admin"];
  }

  /** Notes a use of a token that came in before, as each frame of a socket is one. @returns whether it still counts, as `isLive` */
  use(tokenId: string | null): boolean {
    if (!this.isLive(tokenId)) return false;
    const kept = this.#keptOf(tokenId);
    if (kept !== undefined) this.#noteUse(kept, this.#options.clock.now());
    return true;
  }

  /** Receives the id of each token that is revoked, or forgotten after it expired, and waited for. For as long as the tokens live */
  onRevoke(listener: (tokenId: string) => void | Promise<void>): void {
    this.#listeners.push(listener);
  }

  async list(): Promise<readonly TokenRecord[]> {
    return [...this.#byId.values()].reverse().map((kept) => kept.toRecord());
  }

  /** @param by default null. @returns false for an unknown id */
  async revoke(id: string, by: Actor | null = null): Promise<boolean> {
    if (!this.#byId.has(id)) await this.#sharing?.requireNew();
    const kept = this.#byId.get(id);
    if (kept === undefined) return false;
    await this.#forget([kept], by);
    return true;
  }

  /** Revokes all stored tokens, and those that are being made. @param by default null. @returns how many were stored */
  async revokeAll(by: Actor | null = null): Promise<number> {
    this.#purges++;
    const all = [...this.#byId.values()];
    if (this.#sharing !== undefined) return await this.#purge(this.#sharing, by);
    await this.#forget(all, by);
    // Tokens whose records could not be read go too
    for (const id of this.#damaged.splice(0)) await this.#options.store.takeOnce(TOKENS.name, id);
    return all.length;
  }

  /** Stored tokens that have not expired, not counting those of the environment and the control file */
  async count(): Promise<number> {
    return this.#byId.size - this.#expired().length;
  }

  #couldBeStored(by: PresentedToken): boolean {
    return "token" in by ? TOKEN_TEXT.test(by.token) : by.tokenId !== null && TOKEN_ID.test(by.tokenId);
  }

  #knownById(tokenId: string | null): Pick<Known, "kept"> | undefined {
    const kept = this.#keptOf(tokenId);
    return kept === undefined && !this.isFixed(tokenId) ? undefined : { kept };
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

  /** Reads all tokens of the store. @returns a function that takes them over */
  async #read(options: { readonly order: "created" | "key" }): Promise<() => void> {
    const { store } = this.#options;
    const changesBefore = this.#changes;
    const found = new Map<string, ReadRecord<TokenBody>>();
    const damaged: string[] = [];
    for await (const stored of scanAll(store, TOKENS.name, options)) {
      const token = TOKENS.parsed(store, stored);
      if (token === undefined) damaged.push(stored.key);
      else found.set(stored.key, token);
    }
    return () => this.#takeOver(found, { damaged, changesBefore });
  }

  /** Makes the tokens in memory those that were found, except for changes of this gateway since the begin of the reading. */
  #takeOver(
    found: ReadonlyMap<string, ReadRecord<TokenBody>>,
    { damaged, changesBefore }: { readonly damaged: string[]; readonly changesBefore: number },
  ): void {
    this.#damaged = damaged;
    for (const [id, { value, version }] of found) {
      const kept = this.#byId.get(id);
      if (kept !== undefined) kept.adopt(value, version);
      else if ((this.#removedBy.get(id) ?? -1) < changesBefore) this.#remember(value, version);
    }
    for (const [id, kept] of this.#byId) {
      if (found.has(id) || kept.change >= changesBefore) continue;
      this.#byId.delete(id);
      void this.#refuse([kept]);
    }
    for (const [id, change] of this.#removedBy) if (change < changesBefore) this.#removedBy.delete(id);
  }

  /** Reads when a token was last used at any gateway, at most once a second. Never rejects. */
  #readUse(kept: KeptToken): Promise<void> {
    const { store, clock } = this.#options;
    const { id } = kept.body;
    const before = this.#uses.get(id);
    if (before !== undefined && clock.monotonic() - before.at < USE_READ_MS) return before.read;
    const read = TOKENS.tryRead(store, id).then((found) => {
      if (found !== undefined) kept.adopt(found.value, found.version);
    }).catch(() => {}).then(() => this.#sharing?.confirm());
    if (this.#uses.size > TOKEN_LIMITS.tokens) this.#uses.clear();
    this.#uses.set(id, { at: clock.monotonic(), read });
    return read;
  }

  #remember(body: TokenBody, version: number): KeptToken {
    const kept = new KeptToken(body, { version, change: this.#changes++ });
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
    const record = new KeptToken(body, { version: 1, change: 0 }).toRecord();
    const change = paired === undefined
      ? { kind: "issued", record, by } as const
      : { kind: "paired", record, address: paired.address } as const;
    if (!await this.changeBy(by, (also) => this.#record(change, [TOKENS.insert(body.id, body), ...also]))) {
      throw new Error(`Cannot create token "${body.id}": the id exists`);
    }
    if (this.#purges !== purgesBefore) {
      // Whoever makes tokens with a stolen one must not outlive the purge
      await this.#record({ kind: "revoked", tokenIds: [body.id], by: null }, [
        TOKENS.remove(body.id),
        ...this.#changed(),
      ]);
      throw conflict("all tokens were revoked in this moment");
    }
    return { token, record: this.#remember(body, 1).toRecord() };
  }

  #toBody({ scopes, label, ttlSeconds, idleTtlSeconds, plain, tools }: NewToken, hash: string): TokenBody {
    const now = this.#options.clock.now();
    return {
      v: 1,
      id: this.#options.random.id("tok_"),
      hash,
      label,
      scopes: [...new Set(scopes)].filter(isTokenScope),
      created_at: new Date(now).toISOString(),
      expires_at: ttlSeconds === undefined ? null : new Date(now + ttlSeconds * 1000).toISOString(),
      ...(idleTtlSeconds === undefined ? {} : { idle_ttl_seconds: idleTtlSeconds }),
      ...(plain ? { plain } : {}),
      ...(tools === undefined ? {} : { tools: [...tools] }),
      last_used_at: null,
    };
  }

  /**
   * Removes tokens. A gateway alone refuses them at once, whatever becomes of the write. In a cluster the write decides for all gateways, so
   * that they agree about a token whose revocation failed. Lists show tokens until the store has removed them.
   */
  async #forget(tokens: readonly KeptToken[], by: Actor | null): Promise<void> {
    const refusedBefore = this.#sharing === undefined ? this.#refuse(tokens) : undefined;
    if (tokens.length > 0) {
      const deletes = [...tokens.map(({ body }) => TOKENS.remove(body.id)), ...this.#changed()];
      await this.#record({ kind: "revoked", tokenIds: tokens.map(({ body }) => body.id), by }, deletes);
    }
    const refused = refusedBefore ?? this.#refuse(tokens);
    this.#remove(tokens);
    this.#sharing?.tell();
    await refused;
  }

  /** Removes tokens that have ended. One that another gateway has seen used meanwhile stays. */
  async #forgetExpired(): Promise<void> {
    const tokens = this.#expired();
    if (tokens.length === 0) return;
    if (this.#sharing === undefined) {
      const refused = this.#refuse(tokens);
      await this.#options.store.batch(tokens.map(({ body }) => TOKENS.remove(body.id)));
      this.#remove(tokens);
      return await refused;
    }
    for (const kept of tokens) {
      const { body: { id }, version } = kept;
      const writes = [TOKENS.check(id, version), TOKENS.remove(id), ...this.#changed()];
      if (!await this.#options.store.batch(writes)) continue;
      const refused = this.#refuse([kept]);
      this.#remove([kept]);
      await refused;
    }
    this.#sharing.tell();
  }

  /** Removes all tokens of a cluster, also those that this gateway does not know. @returns how many there were */
  async #purge(sharing: TokenSharing, by: Actor | null): Promise<number> {
    const ids: string[] = [];
    await sharing.purge(async (also) => {
      for await (const id of TOKENS.keys(this.#options.store, { order: "key" })) ids.push(id);
      await this.#record({ kind: "revoked", tokenIds: ids, by }, [...ids.map((id) => TOKENS.remove(id)), ...also]);
    });
    const removed = ids.flatMap((id) => this.#byId.get(id) ?? []);
    const refused = this.#refuse(removed);
    this.#remove(removed);
    // A look removes the tokens that this gateway learned of meanwhile
    await sharing.requireNew();
    await refused;
    return ids.length;
  }

  #remove(tokens: readonly KeptToken[]): void {
    for (const { body: { id } } of tokens) {
      this.#byId.delete(id);
      if (this.#sharing !== undefined) this.#removedBy.set(id, this.#changes++);
    }
  }

  /** Makes `verify` refuse tokens, and tells the listeners. */
  async #refuse(tokens: readonly KeptToken[]): Promise<void> {
    for (const { body } of tokens) this.#byHash.delete(body.hash);
    await Promise.all(tokens.flatMap(({ body }) => this.#listeners.map((tell) => tell(body.id))));
  }

  /** Returns what goes with each write of a change. */
  #changed(): readonly Write[] {
    return this.#sharing === undefined ? [] : [this.#sharing.changed()];
  }

  /** Notes a use. Nobody waits for its record; a token revoked meanwhile has no such version and stays gone. */
  #noteUse(kept: KeptToken, now: number): void {
    const body = kept.use(now);
    if (body === undefined) return;
    const { store, log = SILENT } = this.#options;
    store.batch([TOKENS.putOver(body.id, kept.version, body)]).then(
      (written) => {
        if (written) kept.written();
        // Another gateway has written a use: its record has the version for the next one
        else if (this.#sharing !== undefined) void this.#readUse(kept);
      },
      (error: unknown) => log.warn("Cannot record the use of a token", { token_id: body.id, error }),
    );
  }
}

const CONFIRMED: TokenStanding = { isConfirmed: true };
/** Form of the tokens that are made here. */
const TOKEN_TEXT = /^pst_[\w-]{43}$/;
const TOKEN_ID = /^tok_/;
/** Least time between two reads of when a token was last used. Milliseconds */
const USE_READ_MS = 1_000;

function notAnyMore(): HttpError {
  return refuse("conflict", "Cannot change who may call: the token of this request was revoked in this moment");
}

function conflict(reason: string): HttpError {
  return refuse("conflict", `Cannot create a token: ${reason}`);
}
