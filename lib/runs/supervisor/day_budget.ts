import * as v from "valibot";
import type { TokenBudget, TokenNeed, TokenReservation } from "../../agent/token_budget.ts";
import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import { storedObject, unknownFieldsOf } from "../../base/records/stored_object.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";

/** Budget of `[budget] tokens_per_day`: shared by all runs, durable, reserved before each call (docs/design/runs.md "Budgets"). */
export interface DayBudget extends TokenBudget {
  /** Tells whether a limit is set now. */
  isSet(): boolean;
  /**
   * Refuses a request that could not begin, before anything is accepted. Tokens that calls at work have set aside count as free, since
   * they may come back.
   * @param input a lower bound of the first call's input, in bytes
   * @throws {HttpError} 429 `rate_limited` when the day's tokens are used up, with the seconds until the next day
   */
  check(input: number): Promise<void>;
  /** Gives back what is leased and not used, at the end of a drain. Default: nothing is leased */
  close?(): Promise<void>;
}

/** Store, clock and limit of the budget. */
export interface DayBudgetOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** Returns the tokens of one day in UTC, read at each reservation; 0: no limit. */
  readonly tokensPerDay: () => number;
}

const DAY_MS = 24 * 60 * 60 * 1000;
/** How long a call waits for tokens that other calls have set aside: shorter than a stream is held back for its status. */
const MAX_WAIT_MS = 5_000;

const daySchema = storedObject({
  v: v.literal(1),
  /** Tokens that are used, or set aside for calls that have not been settled. */
  tokens: v.number(),
  /** Tokens that gateways of a cluster have leased and not used, a part of `tokens`. Absent for a gateway alone. */
  leased: v.optional(v.number()),
});

/** Collection of the tokens that each day has used, by the day in UTC. */
export const BUDGET_DAYS = new Collection("budget_days", daySchema);

/** A reservation that waits for its decision. */
interface Waiting {
  readonly need: TokenNeed;
  readonly grant: (output: number, key: string) => void;
  readonly refuse: (error: Error) => void;
  late: boolean;
}

/** The day's record as it is in the store. */
interface Day {
  readonly key: string;
  readonly version: number;
  readonly tokens: number;
}

/**
 * The budget of the day over a store. Every reservation is on disk before its call begins, and is given back in part when the call is settled: what a crash leaves
 * unsettled stays spent. Reservations that come while one is written share the next write. A reservation that does not fit waits for
 * calls at work, 5 s at most, and is refused when it still does not fit.
 */
export class StoredDayBudget implements DayBudget {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #tokensPerDay: () => number;
  readonly #waiting = new Set<Waiting>();
  #day: Day | undefined = undefined;
  #loading: Promise<Day> | undefined = undefined;
  /** Day that `#held` and `#refund` belong to. */
  #heldOn = "";
  /** Tokens that this process has set aside and not settled yet. */
  #held = 0;
  /** Tokens that were given back and are not written yet. */
  #refund = 0;
  #writing = false;
  /** True when something came up since the last decision began. */
  #due = false;

  constructor({ store, clock, tokensPerDay }: DayBudgetOptions) {
    this.#store = store;
    this.#clock = clock;
    this.#tokensPerDay = tokensPerDay;
  }

  isSet(): boolean {
    return this.#tokensPerDay() > 0;
  }

  async check(input: number): Promise<void> {
    const { tokens } = await this.#load();
    const limit = this.#tokensPerDay();
    const left = limit - (tokens - this.#refund - this.#held);
    if (limit === 0 || left > input) return;
    const now = this.#clock.now();
    throw toBudgetRefusal(exceeded({ limit, left, held: 0, input, now }), now);
  }

  async reserve(need: TokenNeed): Promise<TokenReservation> {
    if (this.#tokensPerDay() === 0) return UNLIMITED(need.output);
    const { signal } = need;
    if (signal.aborted) throw cancelError(signal);
    const { promise, resolve, reject } = Promise.withResolvers<TokenReservation>();
    const entry: Waiting = {
      need,
      grant: (output, key) => resolve(this.#toReservation(output, need, key)),
      refuse: reject,
      late: false,
    };
    const onAbort = () => {
      if (this.#waiting.delete(entry)) reject(cancelError(signal));
    };
    signal.addEventListener("abort", onAbort, { once: true });
    const timer = this.#clock.after(MAX_WAIT_MS, () => {
      entry.late = true;
      void this.#decideAll();
    });
    this.#waiting.add(entry);
    void this.#decideAll();
    try {
      return await promise;
    } finally {
      timer.clear();
      signal.removeEventListener("abort", onAbort);
    }
  }

  #load(): Day | Promise<Day> {
    const key = new Date(this.#clock.now()).toISOString().slice(0, 10);
    if (this.#day?.key === key) return this.#day;
    return this.#loading ??= this.#read(key).finally(() => (this.#loading = undefined));
  }

  async #read(key: string): Promise<Day> {
    const stored = await BUDGET_DAYS.read(this.#store, key);
    await forgetDaysBefore(this.#store, key);
    if (this.#heldOn !== key) [this.#heldOn, this.#held, this.#refund] = [key, 0, 0];
    return this.#day = {
      ...unknownFieldsOf(stored?.value),
      key,
      version: stored?.version ?? 0,
      tokens: stored === undefined ? 0 : stored.value.tokens,
    };
  }

  /** Decides until nothing is left to decide, one write at a time. */
  async #decideAll(): Promise<void> {
    this.#due = true;
    if (this.#writing) return;
    this.#writing = true;
    try {
      while (this.#due) {
        this.#due = false;
        while (await this.#decide());
      }
    } catch (error) {
      for (const entry of this.#waiting) entry.refuse(error as Error); // the store throws Errors
      this.#waiting.clear();
    } finally {
      this.#writing = false;
    }
  }

  /** Decides on all waiting reservations and writes the outcome at once. @returns false when nothing was decided */
  async #decide(): Promise<boolean> {
    const today = await this.#load();
    const back = this.#refund;
    const { granted, tokens } = this.#plan(today.tokens - back);
    if (granted.length === 0 && back === 0) return false;
    const body = { ...unknownFieldsOf(today), v: 1, tokens };
    if (!await this.#store.putIfVersion(BUDGET_DAYS.name, today.key, today.version, body)) {
      // Another gateway on this store wrote first
      this.#day = undefined;
      return true;
    }
    this.#day = { ...today, version: today.version + 1, tokens };
    this.#refund -= back;
    for (const { entry, output } of granted) {
      const reserved = entry.need.input + output;
      if (this.#waiting.delete(entry)) {
        this.#held += reserved;
        entry.grant(output, today.key);
      } else this.#refund += reserved; // the caller has gone meanwhile
    }
    return true;
  }

  /** Chooses the reservations that fit, and refuses those that can never fit. @param used tokens of the day so far */
  #plan(used: number): { readonly granted: readonly Granted[]; readonly tokens: number } {
    const limit = this.#tokensPerDay();
    let tokens = used;
    const granted: Granted[] = [];
    for (const entry of this.#waiting) {
      const { input, output } = entry.need;
      const left = limit - tokens;
      if (left > input || limit === 0) {
        const given = limit === 0 ? output : Math.min(output, left - input);
        tokens += input + given;
        granted.push({ entry, output: given });
      } else if (entry.late || input >= limit || this.#held + granted.length === 0) {
        this.#waiting.delete(entry);
        entry.refuse(exceeded({ limit, left, held: this.#held, input, now: this.#clock.now() }));
      }
    }
    return { granted, tokens };
  }

  #toReservation(output: number, need: TokenNeed, key: string): TokenReservation {
    const reserved = need.input + output;
    const end = (unused: number) => {
      // Tokens that were set aside yesterday are of no use today
      if (this.#heldOn !== key) return;
      this.#held -= reserved;
      this.#refund += unused;
      void this.#decideAll();
    };
    return { output, settle: (usedTokens) => end(reserved - usedTokens), forfeit: () => end(0) };
  }
}

/** A waiting reservation with the output tokens that it gets. */
interface Granted {
  readonly entry: Waiting;
  readonly output: number;
}

const UNLIMITED = (output: number): TokenReservation => ({ output, settle() {}, forfeit() {} });

function secondsLeft(now: number): number {
  return Math.ceil((DAY_MS - now % DAY_MS) / 1000);
}

/** Returns the time until the next day in UTC, for people: `5 h`, or `12 min` in the last hour. */
export function untilTomorrow(now: number): string {
  const seconds = secondsLeft(now);
  const hours = Math.floor(seconds / 3600);
  return hours > 0 ? `${hours} h` : `${Math.ceil(seconds / 60)} min`;
}

/** Returns the refusal of a request that could not begin, with the seconds until the next day. */
export function toBudgetRefusal({ message }: CancelError, now: number): HttpError {
  return refuse("rate_limited", message, {
    headers: { "retry-after": String(secondsLeft(now)), "x-should-retry": "false" },
  });
}

interface Exceeded {
  readonly limit: number;
  readonly left: number;
  readonly held: number;
  readonly input: number;
  readonly now: number;
}

function exceeded({ limit, left, held, input, now }: Exceeded): CancelError {
  const need = `, and the call may need ${input + 1}`;
  const others = held === 0 ? "" : ` (${held} more are set aside for calls at work)`;
  return new CancelError(
    "budget",
    `Cannot ask the model: of the day's budget of ${limit} tokens ${
      Math.max(0, left)
    } are left${others}${need}; raise ` +
      `tokens_per_day in [budget], or wait ${untilTomorrow(now)} for the next day (UTC)`,
  );
}

/** Deletes the records of the days before one, which limit nothing any more. */
export async function forgetDaysBefore(store: Store, key: string): Promise<void> {
  const old = (await store.scan(BUDGET_DAYS.name, { limit: 100 })).filter((stored) => stored.key < key);
  if (old.length > 0) await store.batch(old.map((stored) => BUDGET_DAYS.remove(stored.key)));
}
