import type { TokenBudget, TokenNeed, TokenReservation } from "../../agent/token_budget.ts";
import { cancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { unknownFieldsOf } from "../../base/records/stored_object.ts";
import type { ClusterBus } from "../../cluster/cluster_news.ts";
import type { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import {
  abandoned,
  isScarce,
  leased,
  type Move,
  NO_SLICE,
  notWritten,
  type Pot,
  returned,
  sent,
  setAside,
  settled,
  type Slice,
  surplus,
  written,
} from "./token_slices.ts";

/** State of a budget when a call is refused. */
export interface BudgetState {
  readonly limit: number;
  readonly left: number;
  /** Tokens that are set aside for calls at work of this gateway. */
  readonly held: number;
  /** Tokens that other gateways have leased and not given back. */
  readonly elsewhere: number;
  /** Pause after which the others are asked for theirs again. Undefined: there is nothing to ask for */
  readonly askAgainMs?: number | undefined;
  /** Input of the call that was refused. */
  readonly input: number;
}

/** Gateways that spend of one budget. */
export interface BudgetSharing {
  readonly bus: ClusterBus;
  /** Returns the name of the database's history. */
  readonly history: () => string | undefined;
  /**
   * True: a gateway keeps a slice, which saves writes, and which the others can ask for. False: it leases for each call what that needs and
   * gives back the rest, and what the record says of leased tokens is of no gateway.
   */
  readonly keepsSlice: boolean;
}

/** Options of `SlicedBudget`. */
interface SlicedBudgetOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly sharing: BudgetSharing;
  readonly collection: Collection<{ readonly tokens: number; readonly leased?: number | undefined }>;
  /** Returns the key of the record that counts now. A slice of an earlier record is worth nothing. */
  readonly key: () => string;
  /** Returns the tokens of the budget, read at each reservation; 0: no limit. */
  readonly limit: () => number;
  /** Runs when a record is begun. Default: nothing */
  readonly onNewKey?: (key: string) => Promise<void>;
  readonly refusal: (state: BudgetState) => Error;
}

/** How long a call waits for calls at work of this gateway, and the pause between two questions to the others. Milliseconds */
const MAX_WAIT_MS = 5_000;
/** How long a call waits for tokens that other gateways are asked to give back. */
const ASK_MS = 1_000;
/** Pause between two looks at the record while a call waits for others. */
const LOOK_MS = 200;

interface Waiting {
  readonly need: TokenNeed;
  readonly grant: (reservation: TokenReservation) => void;
  readonly refuse: (error: Error) => void;
  readonly since: number;
}

/** Time for which one record counts, in one history of the database. What was leased before is worth nothing. */
interface Term {
  readonly key: string;
  readonly history: string | undefined;
}

/** Record of a budget as it was read, with its unknown fields. */
interface KeptPot extends Pot {
  readonly term: Term;
  readonly version: number;
}

/**
 * A budget that gateways share. This gateway leases slices of it, so that most calls need no word of the database, and gives back what is
 * more than a slice. When nothing is left, it asks the others to give back what they do not use, for a second, before it refuses.
 */
export class SlicedBudget implements TokenBudget {
  readonly #options: SlicedBudgetOptions;
  readonly #waiting = new Set<Waiting>();
  #term: Term = { key: "", history: undefined };
  #slice: Slice = NO_SLICE;
  /** The record as this gateway saw it last. */
  #pot: KeptPot | undefined = undefined;
  /** Limit under which the slice was leased. */
  #leasedUnder = 0;
  /** Monotonic time of the last question to the others. */
  #askedAt = -Infinity;
  #working: Promise<void> | undefined = undefined;
  #isDue = false;
  /** True when another gateway has asked for what is free here. */
  #isAsked = false;
  /** True by a drain: nothing is kept that no call needs. */
  #isClosed = false;
  #look: Timer | undefined = undefined;
  readonly #stopListening: () => void;

  constructor(options: SlicedBudgetOptions) {
    this.#options = options;
    this.#stopListening = options.sharing.bus.onNote(({ kind, id }) => {
      if (kind !== "budget" || id !== this.#term.key) return;
      this.#isAsked = true;
      void this.#work();
    });
  }

  /**
   * Returns the tokens that are not used, as the record was seen last: those that are leased to other gateways, or set aside here, may come
   * back.
   * @param options.fresh true: reads the record first
   */
  async unspent({ fresh }: { readonly fresh: boolean }): Promise<number> {
    this.#turn();
    const { tokens, leased } = await this.#latest({ fresh });
    const { free, held, told } = this.#slice;
    return this.#options.limit() - tokens + Math.max(0, leased - told) + free + held;
  }

  /** Returns the tokens that may be set aside now without a write. */
  free(): number {
    this.#turn();
    return this.#isCurrent() ? this.#slice.free : 0;
  }

  async reserve(need: TokenNeed): Promise<TokenReservation> {
    const { clock, limit } = this.#options;
    if (limit() === 0) return unlimited(need);
    const { signal } = need;
    if (signal.aborted) throw cancelError(signal);
    this.#turn();
    const given = this.#waiting.size === 0 && this.#isCurrent()
      ? setAside(this.#slice, need, { whole: true })
      : undefined;
    if (given !== undefined) {
      this.#slice = given.slice;
      return this.#toReservation(given.output, need);
    }
    const { promise, resolve, reject } = Promise.withResolvers<TokenReservation>();
    const entry: Waiting = {
      need,
      grant: resolve,
      refuse: reject,
      since: clock.monotonic(),
    };
    const onAbort = () => {
      if (this.#waiting.delete(entry)) reject(cancelError(signal));
    };
    signal.addEventListener("abort", onAbort, { once: true });
    this.#waiting.add(entry);
    void this.#work();
    try {
      return await promise;
    } finally {
      signal.removeEventListener("abort", onAbort);
      if (this.#waiting.size === 0) this.#look?.clear();
    }
  }

  /** Gives back what is leased and not used, also of calls that end later. Never throws. */
  async close(): Promise<void> {
    this.#stopListening();
    this.#look?.clear();
    this.#isClosed = true;
    await this.#work();
  }

  /** Turns to the record that counts now. What was leased of another, or in another history, is spent. */
  #turn(): void {
    const [key, history] = [this.#options.key(), this.#options.sharing.history()];
    if (key === this.#term.key && history === this.#term.history) return;
    this.#term = { key, history };
    this.#slice = abandoned(this.#slice);
    this.#pot = undefined;
  }

  /** Tells whether a time is over, or a record was read in such a time. */
  #isOver(term: Term): boolean {
    this.#turn();
    return term !== this.#term;
  }

  /** Tells whether the slice may be used under the limit that counts now. */
  #isCurrent(): boolean {
    return this.#options.limit() >= this.#leasedUnder;
  }

  /** Returns the record that counts now, as it was seen last. @param options.fresh true: reads it */
  async #latest({ fresh = false }: { readonly fresh?: boolean } = {}): Promise<KeptPot> {
    if (this.#pot !== undefined && !fresh) return this.#pot;
    const pot = await this.#read(this.#term);
    // The day may have changed meanwhile
    if (!this.#isOver(pot.term)) this.#pot = pot;
    return pot;
  }

  async #read(term: Term): Promise<KeptPot> {
    const { store, collection, sharing } = this.#options;
    const { key } = term;
    const found = await collection.read(store, key);
    if (found === undefined) await this.#options.onNewKey?.(key);
    const { tokens = 0, leased = 0 } = found?.value ?? {};
    const version = found?.version ?? 0;
    return { ...unknownFieldsOf(found?.value), term, tokens, leased: sharing.keepsSlice ? leased : 0, version };
  }

  /** Decides until nothing is left to decide, one write at a time. Never throws. */
  #work(): Promise<void> {
    this.#isDue = true;
    return this.#working ??= this.#decideAll();
  }

  async #decideAll(): Promise<void> {
    while (this.#isDue) {
      this.#isDue = false;
      try {
        while (await this.#decide());
      } catch (error) {
        this.#pot = undefined;
        for (const entry of this.#waiting) entry.refuse(error as Error); // the store throws Errors
        this.#waiting.clear();
      }
    }
    // In the same step as the last look at what is due, so that no call falls between
    this.#working = undefined;
  }

  /** @returns false when nothing more can be decided now */
  async #decide(): Promise<boolean> {
    this.#turn();
    const limit = this.#options.limit();
    if (limit === 0 && this.#waiting.size > 0) return this.#grantAll();
    const isLowered = !this.#isCurrent();
    if (!isLowered && this.#grant({ whole: true })) return true;
    const scarce = this.#isScarce(limit, false);
    const isWanted = this.#waiting.size > 0;
    const { free, held, told } = this.#slice;
    // Free tokens are of use to the calls that wait here
    if ((this.#isAsked || this.#isClosed) && !isWanted && told !== held) {
      await this.#giveBack(free);
      return true;
    }
    this.#isAsked = false;
    const back = isLowered ? free : isWanted ? 0 : surplus(this.#slice, { limit, scarce });
    if (back !== 0) {
      await this.#giveBack(back);
      return true;
    }
    if (isLowered) this.#leasedUnder = limit;
    if (!isWanted) return isLowered;
    return await this.#leaseMore(limit);
  }

  /** Lets all waiting calls go on, since nothing is limited any more. */
  #grantAll(): boolean {
    for (const { need, grant } of this.#waiting) grant(unlimited(need));
    this.#waiting.clear();
    return true;
  }

  /** Gives the waiting calls what the slice has for them. @returns true when one was decided */
  #grant({ whole }: { readonly whole: boolean }): boolean {
    let isAny = false;
    for (const entry of this.#waiting) {
      const given = setAside(this.#slice, entry.need, { whole });
      if (given === undefined) continue;
      this.#slice = given.slice;
      this.#waiting.delete(entry);
      entry.grant(this.#toReservation(given.output, entry.need));
      isAny = true;
    }
    return isAny;
  }

  /** Gives tokens back. Where another gateway wrote first, the next decision tries again. */
  async #giveBack(amount: number): Promise<void> {
    const pot = await this.#latest();
    const { free } = this.#slice;
    // Calls may have begun and ended since it was decided
    const rest = amount > 0 ? Math.min(amount, Math.max(0, free)) : Math.max(amount, Math.min(0, free));
    await this.#write(pot, returned(pot, this.#slice, rest));
  }

  async #leaseMore(limit: number): Promise<boolean> {
    const pot = await this.#latest();
    if (this.#isOver(pot.term)) return true;
    // No day has the tokens for them, and what is leased for them others could use
    if (this.#refuseWhere(({ need }) => need.input >= limit, { pot, limit })) return true;
    let missing = -this.#slice.free;
    for (const { need } of this.#waiting) missing += need.input + need.output;
    const bound = this.#options.sharing.keepsSlice ? limit : Math.min(limit, pot.tokens + missing);
    const move = leased(pot, this.#slice, { missing, limit: bound });
    if (move === undefined) return await this.#refuse(limit);
    if (await this.#write(pot, move)) this.#leasedUnder = limit;
    return true;
  }

  /** Writes a move. @returns false when another gateway wrote first, or the record does not count any more */
  async #write(pot: KeptPot, move: Move): Promise<boolean> {
    const { store, collection, sharing } = this.#options;
    const { term } = pot;
    if (this.#isOver(term)) return false;
    this.#pot = undefined;
    this.#slice = sent(this.#slice, move);
    const { tokens, leased } = move.pot;
    const kept = unknownFieldsOf(pot);
    const body = { ...kept, v: 1, tokens, ...sharing.keepsSlice ? { leased } : {} };
    const isWritten = await store.putIfVersion(collection.name, term.key, pot.version, body);
    // Nobody knows in which history it was written
    if (this.#isOver(term)) return false;
    this.#slice = isWritten ? written(this.#slice, move) : notWritten(this.#slice, move);
    if (isWritten) this.#pot = { ...kept, ...move.pot, term, version: pot.version + 1 };
    return isWritten;
  }

  /** Decides about calls for which nothing is left, as far as can be known now. @returns true when something was decided */
  async #refuse(limit: number): Promise<boolean> {
    const { clock, sharing: { bus } } = this.#options;
    const pot = await this.#latest({ fresh: true });
    // Others have given back since, or the day has changed
    if (limit - pot.tokens > 0 || this.#isOver(pot.term)) return true;
    const now = clock.monotonic();
    const elsewhere = this.#elsewhere(pot);
    if (elsewhere > 0 && now - this.#askedAt >= MAX_WAIT_MS) {
      this.#askedAt = now;
      bus.tell("budget", this.#term.key);
    }
    const isAsking = elsewhere > 0 && now - this.#askedAt < ASK_MS;
    // An answer that is cut short is better than none
    if (!isAsking && this.#grant({ whole: false })) return true;
    const isHopeless = ({ since }: Waiting) => !isAsking && (this.#slice.held === 0 || now - since >= MAX_WAIT_MS);
    const isAny = this.#refuseWhere(isHopeless, { pot, limit });
    this.#look?.clear();
    if (this.#waiting.size > 0) this.#look = clock.after(LOOK_MS, () => void this.#lookAgain());
    return isAny;
  }

  /** Refuses waiting calls. @returns true when there was one */
  #refuseWhere(
    isHopeless: (entry: Waiting) => boolean,
    { pot, limit }: { readonly pot: Pot; readonly limit: number },
  ): boolean {
    const { free, held } = this.#slice;
    const left = limit - pot.tokens + Math.max(0, free);
    const elsewhere = this.#elsewhere(pot);
    const hopeless = [...this.#waiting].filter(isHopeless);
    for (const entry of hopeless) {
      this.#waiting.delete(entry);
      const askAgainMs = elsewhere > 0 ? MAX_WAIT_MS : undefined;
      entry.refuse(this.#options.refusal({ limit, left, held, elsewhere, askAgainMs, input: entry.need.input }));
    }
    return hopeless.length > 0;
  }

  /** Tells whether this gateway keeps nothing that no call needs. @param unread what is assumed where the record is to be read again */
  #isScarce(limit: number, unread: boolean): boolean {
    if (!this.#options.sharing.keepsSlice) return true;
    return this.#pot === undefined ? unread : isScarce(this.#pot, limit);
  }

  /** Returns the tokens that other gateways have leased, as far as they have said. */
  #elsewhere({ leased }: Pot): number {
    return Math.max(0, leased - this.#slice.told);
  }

  async #lookAgain(): Promise<void> {
    await this.#working;
    this.#pot = undefined;
    await this.#work();
  }

  #toReservation(output: number, { input }: TokenNeed): TokenReservation {
    const term = this.#term;
    const reserved = input + output;
    const end = (used: number) => {
      // Tokens of an earlier record, or of another history, are of no use now
      if (this.#isOver(term)) return;
      this.#slice = settled(this.#slice, { reserved, used });
      const limit = this.#options.limit();
      const scarce = this.#isScarce(limit, true);
      const isDue = this.#isClosed || this.#waiting.size > 0 || limit < this.#leasedUnder;
      if (isDue || surplus(this.#slice, { limit, scarce }) !== 0) void this.#work();
    };
    return { output, settle: end, forfeit: () => end(reserved) };
  }
}

/** Returns the reservation of a call while nothing is limited. */
function unlimited({ output }: TokenNeed): TokenReservation {
  return { output, settle() {}, forfeit() {} };
}
