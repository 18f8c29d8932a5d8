import { CancelError } from "../../base/cancel.ts";
import {
  BUDGET_DAYS,
  type DayBudget,
  type DayBudgetOptions,
  forgetDaysBefore,
  toBudgetRefusal,
  untilTomorrow,
} from "./day_budget.ts";
import { type BudgetState, MAX_WAIT_MS, SlicedBudget, type SlicedBudgetOptions } from "./sliced_budget.ts";

/** Returns the budget of the day in a cluster. The day is that of the clock, which is the database's. */
export function createSlicedDayBudget(
  { bus, history, ...options }: DayBudgetOptions & Pick<SlicedBudgetOptions, "bus" | "history">,
): DayBudget {
  const { store, clock, tokensPerDay: limit } = options;
  const refusal = (state: BudgetState) => toCancelError(state, clock.now());
  const budget = new SlicedBudget({
    ...{ store, clock, bus, history, limit, refusal },
    collection: BUDGET_DAYS.name,
    key: () => dayOf(clock.now()),
    // Another gateway may be in the day before for a moment longer
    onNewKey: (key) => forgetDaysBefore(store, dayOf(Date.parse(key) - DAY_MS)),
  });
  return {
    isSet: () => limit() > 0,
    reserve: (need) => budget.reserve(need),
    close: () => budget.close(),
    async check(input) {
      if (limit() === 0 || budget.free() > input) return;
      let left = 0;
      for (const fresh of [false, true]) {
        left = await budget.unspent({ fresh });
        if (left > input) return;
      }
      const state = { limit: limit(), left, held: 0, elsewhere: 0, input };
      throw toBudgetRefusal(toCancelError(state, clock.now()), clock.now());
    },
  };
}

const DAY_MS = 24 * 60 * 60 * 1000;

function dayOf(now: number): string {
  return new Date(now).toISOString().slice(0, 10);
}

function toCancelError({ limit, left, held, elsewhere, input }: BudgetState, now: number): CancelError {
  const others = elsewhere > 0
    ? `, and ${elsewhere} more are leased to other gateways, which use them for calls at work or are gone`
    : left > 0 || held > 0
    ? ""
    : ": it is spent";
  // A call that no day has the tokens for is refused again
  const again = elsewhere > 0 && input < limit ? `try again in ${MAX_WAIT_MS / 1_000} s, ` : "";
  const own = held === 0 ? "" : ` (${held} more are set aside for calls at work)`;
  return new CancelError(
    "budget",
    `Cannot ask the model: of the day's budget of ${limit} tokens ${Math.max(0, left)} are left${own}${others}; ` +
      `the call may need ${input + 1}; ${again}raise tokens_per_day in [budget], or wait ${untilTomorrow(now)} ` +
      "for the next day (UTC)",
  );
}
