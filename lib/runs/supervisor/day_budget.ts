import * as v from "valibot";
import type { TokenBudget, TokenNeed, TokenReservation } from "../../agent/token_budget.ts";
import { CancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import { lazily } from "../../base/lazily.ts";
import { storedObject } from "../../base/records/stored_object.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import type { BudgetSharing, BudgetState } from "./sliced_budget.ts";

/** Store, clock and limit of the budget. */
export interface DayBudgetOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** Returns the tokens of one day in UTC, read at each reservation; 0: no limit. */
  readonly tokensPerDay: () => number;
}

const DAY_MS = 24 * 60 * 60 * 1000;

const daySchema = storedObject({
  v: v.literal(1),
  /** Tokens that are used, or set aside for calls that have not been settled. */
  tokens: v.number(),
  /** Tokens that gateways of a cluster have leased and not used, a part of `tokens`. Absent for a gateway alone. */
  leased: v.optional(v.number()),
});

/** Collection of the tokens that each day has used, by the day in UTC. */
export const BUDGET_DAYS = new Collection("budget_days", daySchema);

/** Nobody else spends of the budget: what no call needs stays in the record, so that a crash loses what calls had set aside and no more. */
const ALONE: BudgetSharing = {
  keepsSlice: false,
  bus: { tell() {}, onNote: () => () => {} },
  history: () => undefined,
};

/**
 * Budget of `[budget] tokens_per_day`: shared by all runs, durable, set aside on disk before each call and given back in part when the call
 * is settled (docs/design/runs.md "Budgets"). The day is that of the clock, which in a cluster is the database's.
 */
export class DayBudget implements TokenBudget {
  readonly #options: DayBudgetOptions;
  readonly #budget;
  #isClosed = false;

  /** @param sharing the other gateways that spend of it. Default: there are none */
  constructor(options: DayBudgetOptions, sharing: BudgetSharing = ALONE) {
    this.#options = options;
    const { store, clock, tokensPerDay: limit } = options;
    // Most gateways have no limit, and need none of it
    this.#budget = lazily(async () => {
      const { SlicedBudget } = await import("./sliced_budget.ts");
      const budget = new SlicedBudget({
        ...{ store, clock, sharing, limit },
        collection: BUDGET_DAYS,
        key: () => dayOf(clock.now()),
        // Another gateway may be in the day before for a moment longer
        onNewKey: (key) => forgetDaysBefore(store, dayOf(Date.parse(key) - DAY_MS)),
        refusal: (state) => toCancelError(state, clock.now()),
      });
      if (this.#isClosed) await budget.close();
      return budget;
    });
  }

  /** Tells whether a limit is set now. */
  isSet(): boolean {
    return this.#options.tokensPerDay() > 0;
  }

  async reserve(need: TokenNeed): Promise<TokenReservation> {
    return await (await this.#budget()).reserve(need);
  }

  /**
   * Refuses a request that could not begin, before anything is accepted. Tokens that calls at work have set aside count as free, since
   * they may come back.
   * @param input a lower bound of the first call's input, in bytes
   * @throws {HttpError} 429 `rate_limited` when the day's tokens are used up, with the seconds until the next day
   */
  async check(input: number): Promise<void> {
    if (!this.isSet()) return;
    const budget = await this.#budget();
    if (budget.free() > input) return;
    let left = 0;
    for (const fresh of [false, true]) {
      left = await budget.unspent({ fresh });
      if (left > input) return;
    }
    const { clock, tokensPerDay } = this.#options;
    throw toBudgetRefusal({ limit: tokensPerDay(), left, held: 0, elsewhere: 0, input }, clock.now());
  }

  /** Gives back what is leased and not used, at the end of a drain. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await (await this.#budget.made())?.close();
  }
}

function dayOf(now: number): string {
  return new Date(now).toISOString().slice(0, 10);
}

function secondsLeft(now: number): number {
  return Math.ceil((DAY_MS - now % DAY_MS) / 1000);
}

/** Returns the time until the next day in UTC, for people: `5 h`, or `12 min` in the last hour. */
function untilTomorrow(now: number): string {
  const seconds = secondsLeft(now);
  const hours = Math.floor(seconds / 3600);
  return hours > 0 ? `${hours} h` : `${Math.ceil(seconds / 60)} min`;
}

/** Returns the refusal of a request that could not begin, with the seconds until the next day. */
function toBudgetRefusal(state: BudgetState, now: number): HttpError {
  return refuse("rate_limited", toCancelError(state, now).message, {
    headers: { "retry-after": String(secondsLeft(now)), "x-should-retry": "false" },
  });
}

function toCancelError({ limit, left, held, elsewhere, askAgainMs, input }: BudgetState, now: number): CancelError {
  const own = held === 0 ? "" : ` (${held} more are set aside for calls at work)`;
  const others = elsewhere === 0
    ? ", and"
    : `, and ${elsewhere} more are leased to other gateways, which use them for calls at work or are gone;`;
  // A call that no day has the tokens for is refused again
  const again = askAgainMs !== undefined && input < limit ? `try again in ${askAgainMs / 1_000} s, ` : "";
  return new CancelError(
    "budget",
    `Cannot ask the model: of the day's budget of ${limit} tokens ${Math.max(0, left)} are left${own}${others} ` +
      `the call may need ${input + 1}; ${again}raise tokens_per_day in [budget], or wait ${untilTomorrow(now)} ` +
      "for the next day (UTC)",
  );
}

/** Deletes the records of the days before one, which limit nothing any more. */
async function forgetDaysBefore(store: Store, key: string): Promise<void> {
  const old = (await store.scan(BUDGET_DAYS.name, { limit: 100 })).filter((stored) => stored.key < key);
  if (old.length > 0) await store.batch(old.map((stored) => BUDGET_DAYS.remove(stored.key)));
}
