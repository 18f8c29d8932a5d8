import * as v from "valibot";
import { type Clock, type Timer, withTimeout } from "../base/clock.ts";
import { unlessAborted } from "../base/cancel.ts";
import { type HttpError, refuse } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import { nextTick } from "../base/tick.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { Collection, createPatience } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import { SILENCE_MS, type TokenPatience, type TokenStanding, unconfirmed } from "./identity.ts";

/** Ways of a gateway to the others of its cluster, as far as tokens need them. */
export interface TokenNews {
  /** Tells all gateways that tokens have changed. */
  tell(): void;
  /** Calls a function when a gateway says that tokens have changed. @returns a function that ends this */
  onChange(listener: () => void): () => void;
}

/** Options of `TokenSharing`. */
export interface TokenSharingOptions {
  readonly store: Store;
  /** Clock of the cluster, whose `now` is the database's */
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly news: TokenNews;
  /** Reads all tokens. @returns a function that takes them over, at once and without an error */
  readonly read: () => Promise<() => void>;
}

const ALL = "all";
const PURGE = "purge";

const changeSchema = v.object({
  v: v.literal(1),
  /** Time in ms since the epoch, by the database's clock, until which no token is made. Absent in `all` */
  until: v.optional(v.number()),
  /** Id of the newest change. Absent in `purge`, and in what older versions wrote */
  change: v.optional(v.string()),
});
/**
 * Collection of two records. The version of `all` counts the changes of all tokens, and its body names the newest of them: a failover may lose
 * the commit of a version, which another change then makes again. `purge` says that all tokens are being revoked.
 */
export const TOKEN_CHANGES = new Collection("token_changes", changeSchema, {
  replaced: "says what its newest change was",
});

/** The records of `token_changes` as a look found them. */
interface FoundChanges {
  readonly all: number;
  /** Id of the newest change. */
  readonly change: string | undefined;
  readonly purge: number;
  /** Time until which no token is made, in ms since the epoch. */
  readonly purgedUntil: number;
}

/** Milliseconds for which a look at the version makes certain which tokens count. */
export const CONFIRMED_MS = 1_000;
/** Time after which a look that is not answered is followed by the next one. Its answer counts when it comes. Milliseconds */
const NEXT_MS = 1_000;
/** Least number of looks without an answer before the database counts as down. */
const SILENT_LOOKS = 4;
/** Most requests that wait for a look. Others are refused until the look is answered. */
const MAX_WAITING = 1_000;
/** Interval of the looks by themselves. A look that takes up to 600 ms lets no request wait. Milliseconds */
const LOOK_MS = 400;
/** Time that a start waits for a database that does not answer in time. Milliseconds */
const START_MS = 30_000;
/** Least time between the begins of two looks that requests ask for. Milliseconds */
const GAP_MS = 100;
/** Tries of a change while other gateways change tokens too. */
const MAX_TRIES = 20;
/** Time for revoking all tokens, after which a gateway that died over it holds up nobody. Milliseconds */
const PURGE_MS = 10_000;

/**
 * Keeps the tokens in memory equal to those of the cluster: knows when it was last certain which tokens count, and reads them again when
 * another gateway has changed one.
 *
 * A record has the version of all tokens, and each change writes the record in its batch. A look reads the record alone, for all requests at the
 * same time. A slow database is waited for. While the database is down, no request causes a look: the looks by themselves go on.
 */
export class TokenSharing {
  readonly #options: TokenSharingOptions;
  /** Changes that the tokens in memory have. */
  #known: FoundChanges = { all: -1, change: undefined, purge: -1, purgedUntil: 0 };
  /** Time at which the last look that succeeded was begun, in monotonic ms. */
  #confirmedAt = -Infinity;
  #begunAt = -Infinity;
  /** Number of the newest look. */
  #looks = 0;
  /** Number of the newest look that succeeded. The answers of earlier ones change nothing any more. */
  #succeeded = 0;
  /** Number of the newest look when tokens were last taken over: it and those before may have found what is older. */
  #takenBy = 0;
  /** Begin of the first look without an answer, in monotonic ms. Undefined when the last one was answered. */
  #silentSince: number | undefined = undefined;
  #databaseIsDown = false;
  /** Requests that wait. */
  #waiting = 0;
  /** The newest look, until it is answered or the next one may begin. It never rejects. */
  #current: Promise<void> | undefined = undefined;
  /** The look that begins after the current one, for everybody who came since. */
  #next: Promise<void> | undefined = undefined;
  /** The look for requests that came since, which keeps the gap to the one before. */
  #later: Promise<void> | undefined = undefined;
  readonly #stopped = new AbortController();
  #timer: Timer | undefined = undefined;
  #unlisten: (() => void) | undefined = undefined;

  constructor(options: TokenSharingOptions) {
    this.#options = options;
  }

  /** Reads the tokens, and goes on looking until `stop`. Waits up to 30 seconds for the database. @throws {HttpError} 503 storage_unavailable */
  async start(): Promise<void> {
    const { clock, news } = this.#options;
    this.#unlisten = news.onChange(() => void (this.#databaseIsDown || this.#lookNext()));
    const { signal } = this.#stopped;
    await createPatience({ clock, signal, pauseMs: LOOK_MS, giveUpMs: START_MS })(() => this.requireNew());
    this.#timer = clock.every(LOOK_MS, () => void this.#look());
  }

  stop(): void {
    this.#stopped.abort();
    this.#timer?.clear();
    this.#unlisten?.();
  }

  /** Returns how certain it is which tokens count. A look that a request has just waited for counts for the request. */
  standing(): TokenStanding {
    const forMs = this.#options.clock.monotonic() - this.#confirmedAt;
    const isConfirmed = forMs < CONFIRMED_MS || this.mayWait();
    return isConfirmed ? CONFIRMED : { isConfirmed, forMs };
  }

  /** Tells whether one more request may wait for a look: the database is not down, and not too many wait. */
  mayWait(): boolean {
    return !this.#databaseIsDown && this.#waiting < MAX_WAITING;
  }

  /**
   * Waits for a look that began within the last second, or begins now. Undefined when it is certain, and when nobody may wait: the
   * database is down, or too many wait already.
   * @throws {CancelError} when the signal of `patience` aborts first
   */
  confirm(patience?: TokenPatience): Promise<void> | undefined {
    const since = this.#options.clock.monotonic() - CONFIRMED_MS;
    if (this.#confirmedAt > since || !this.mayWait()) return undefined;
    return this.#wait(() => this.#lookUntil(() => this.#confirmedAt > since), patience);
  }

  /** Waits for a look that begins after this call, for a token that is not known here, like `confirm`. Undefined when nobody may wait. */
  confirmNew(patience?: TokenPatience): Promise<void> | undefined {
    return this.mayWait() ? this.#wait(() => this.#later ??= this.#lookLater(), patience) : undefined;
  }

  /** Waits for a look that begins after this call. @throws {HttpError} 503 storage_unavailable when it fails */
  async requireNew(): Promise<void> {
    const before = this.#looks;
    do await this.#look(); while (this.#succeeded <= before && !this.#databaseIsDown);
    if (this.#succeeded <= before) throw unconfirmed();
  }

  /** Returns the write that goes with a change that nothing may hold up, such as a revocation. Call `tell` after it. */
  changed(): Write {
    return TOKEN_CHANGES.put(ALL, { v: 1, change: this.#newChange() });
  }

  /** Tells all gateways that tokens have changed. */
  tell(): void {
    this.#options.news.tell();
  }

  /**
   * Makes a change that holds only while nobody else changes tokens: again and again, each time after a look.
   * @param write makes the change together with the writes that it is given. @returns false when a precondition did not hold
   * @param check throws when the change may not be made any more
   * @throws {HttpError} 409 conflict while all tokens are revoked; 503 storage_unavailable; what `check` throws
   */
  async change(write: (also: readonly Write[]) => Promise<boolean>, check: () => void): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      check();
      const known = this.#known;
      if (known.purgedUntil > this.#options.clock.now()) throw purging();
      const change = this.#newChange();
      if (await write(writesOver(known, change))) {
        if (this.#known === known) this.#known = { ...known, all: known.all + 1, change };
        return this.tell();
      }
      await this.requireNew();
    }
    throw refuse("storage_unavailable", "Cannot change tokens: other gateways change them all the time; try again");
  }

  /**
   * Revokes all tokens of the cluster. No gateway makes a token between the begin and the end.
   * @param write deletes the tokens together with the writes that it is given
   */
  async purge(write: (also: readonly Write[]) => Promise<unknown>): Promise<void> {
    const { store, clock } = this.#options;
    await store.batch([TOKEN_CHANGES.put(PURGE, { v: 1, until: clock.now() + PURGE_MS })]);
    await write([TOKEN_CHANGES.put(PURGE, { v: 1, until: 0 }), this.changed()]);
    this.tell();
  }

  #newChange(): string {
    return this.#options.random.id("chg_");
  }

  /** Waits as one of a bounded number. Whoever leaves, or has waited long enough, gives the place back. */
  async #wait(look: () => Promise<void>, { maxMs, signal }: TokenPatience = {}): Promise<void> {
    this.#waiting++;
    try {
      const looked = maxMs === undefined ? look() : withTimeout(look(), { ms: maxMs, clock: this.#options.clock });
      await (signal === undefined ? looked : unlessAborted(looked, signal));
    } finally {
      this.#waiting--;
    }
  }

  async #lookUntil(isCertain: () => boolean): Promise<void> {
    while (!isCertain() && !this.#databaseIsDown) await this.#look();
  }

  async #lookLater(): Promise<void> {
    const { clock } = this.#options;
    const waitMs = this.#begunAt + GAP_MS - clock.monotonic();
    await (waitMs > 0 ? clock.sleep(waitMs, this.#stopped.signal).catch(() => {}) : nextTick());
    // Requests that come from now on may have missed the begin of the look
    this.#later = undefined;
    const before = this.#looks;
    await this.#lookUntil(() => this.#succeeded > before);
  }

  #lookNext(): Promise<void> {
    return this.#next ??= this.#waitAndLook();
  }

  async #waitAndLook(): Promise<void> {
    do await (this.#current ?? nextTick()); while (this.#current !== undefined);
    this.#next = undefined;
    await this.#look();
  }

  /** Looks now, or waits for the newest look. Never rejects. */
  #look(): Promise<void> {
    return this.#current ??= this.#begin().finally(() => this.#current = undefined);
  }

  /** Begins a look, and waits for its answer until the next one may begin. */
  async #begin(): Promise<void> {
    const { clock } = this.#options;
    const begunAt = clock.monotonic();
    const look = ++this.#looks;
    this.#begunAt = begunAt;
    this.#silentSince ??= begunAt;
    const answered = this.#read(look, begunAt).then(() => true, (error: unknown) => {
      if (look > this.#succeeded) this.#noteFailure(error);
      return true;
    });
    if (await withTimeout(answered, { ms: NEXT_MS, clock }) === true) return;
    const silentMs = this.#silentSince === undefined ? 0 : clock.monotonic() - this.#silentSince;
    // After a process or a machine stood still, the time alone proves nothing
    const isSilent = silentMs >= SILENCE_MS && this.#looks - this.#succeeded >= SILENT_LOOKS;
    if (isSilent) this.#noteFailure(new Error("The database did not answer in time"));
  }

  /** Reads what has changed. An answer that comes after that of a later look changes nothing. */
  async #read(look: number, begunAt: number): Promise<void> {
    const { store, read } = this.#options;
    const found = await findChanges(store);
    const { all, change, purge } = this.#known;
    const isSame = found.all === all && found.change === change && found.purge === purge;
    const takeOver = isSame ? undefined : await read();
    if (look < this.#succeeded) return;
    // A change of this gateway, or one that another look has found, may be newer than what this look found
    const isOlder = takeOver === undefined
      ? this.#known.all !== all
      : look <= this.#takenBy && found.all < this.#known.all;
    if (!isOlder) {
      takeOver?.();
      if (takeOver !== undefined) this.#takenBy = this.#looks;
      this.#known = found;
    }
    this.#succeed(look, begunAt);
  }

  #succeed(look: number, begunAt: number): void {
    this.#succeeded = look;
    this.#confirmedAt = begunAt;
    this.#silentSince = look === this.#looks ? undefined : this.#begunAt;
    if (this.#databaseIsDown) this.#options.log.info("It is certain again which tokens count");
    this.#databaseIsDown = false;
  }

  #noteFailure(error: unknown): void {
    if (!this.#databaseIsDown) {
      this.#options.log.error("It is not certain any more which tokens count: most requests are refused", { error });
    }
    this.#databaseIsDown = true;
  }
}

async function findChanges(store: Store): Promise<FoundChanges> {
  const stored = await store.scan(TOKEN_CHANGES.name, { limit: 2 });
  const found = TOKEN_CHANGES.readable(store, stored);
  const of = (key: string) => found.find((record) => record.key === key);
  const versionOf = (key: string) => stored.find((record) => record.key === key)?.version ?? 0;
  return {
    all: versionOf(ALL),
    change: of(ALL)?.value.change,
    purge: versionOf(PURGE),
    purgedUntil: of(PURGE)?.value.until ?? 0,
  };
}

/** Returns the writes that let a change hold only while nothing else has changed. */
function writesOver({ all, purge }: FoundChanges, change: string): readonly Write[] {
  return [TOKEN_CHANGES.putOver(ALL, all, { v: 1, change }), TOKEN_CHANGES.check(PURGE, purge)];
}

const CONFIRMED: TokenStanding = { isConfirmed: true };
function purging(): HttpError {
  return refuse("conflict", "Cannot change who may call: all tokens are being revoked in this moment");
}
