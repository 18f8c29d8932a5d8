import * as v from "valibot";
import type { AgentLimits } from "../../agent/agent_run.ts";
import { createRunBudget, type TokenBudget, type TokenNeed, type TokenReservation } from "../../agent/token_budget.ts";
import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { HttpError } from "../../base/errors.ts";
import { readRecord } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";

/** `[budget] tokens_per_day`: shared by all runs, durable, reserved before each call (docs/design/runs.md "Budgets"). */
export interface DayBudget extends TokenBudget {
  /** Whether a limit is set now */
  isSet(): boolean;
  /**
   * Refuses before anything is accepted what could not begin: what calls at work have set aside may still come back.
   * @param input a lower bound of the first call's input, in bytes
   * @throws {HttpError} 429 `rate_limited` when the day's tokens are used up, with the seconds until the next day
   */
  check(input: number): Promise<void>;
}

export interface DayBudgetOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** Tokens of one day in UTC, read at each reservation; 0: no limit */
  readonly tokensPerDay: () => number;
}

/** By the day, in UTC: the tokens that it has used. */
export const BUDGET_DAYS = "budget_days";
const DAY_MS = 24 * 60 * 60 * 1000;
/** How long a call waits for tokens that other calls have set aside: shorter than a stream is held back for its status. */
const MAX_WAIT_MS = 5_000;

const daySchema = v.object({
  v: v.literal(1),
  /** Used, and set aside for calls that have not been settled */
  tokens: v.number(),
});

/** @throws {v.ValiError} for a body that no version wrote */
export function parseDay(body: unknown): v.InferOutput<typeof daySchema> {
  return v.parse(daySchema, body);
}

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
 * Every reservation is on disk before its call begins, and is given back in part when the call is settled: what a crash leaves
 * unsettled stays spent. Reservations that come while one is written share the next write. One that does not fit waits for those
 * at work, 5 s at most, and is refused when it still does not fit.
 */
export function createDayBudget({ store, clock, tokensPerDay }: DayBudgetOptions): DayBudget {
  const waiting = new Set<Waiting>();
  let day: Day | undefined;
  let loading: Promise<Day> | undefined;
  let heldOn = "";
  /** Set aside by this process and not settled yet, of that day */
  let held = 0;
  /** Given back, and not written yet */
  let refund = 0;
  let writing = false;
  /** Something came up since the last decision began */
  let due = false;

  const load = (): Day | Promise<Day> => {
    const key = new Date(clock.now()).toISOString().slice(0, 10);
    return day?.key === key ? day : loading ??= read(key).finally(() => (loading = undefined));
  };
  const read = async (key: string): Promise<Day> => {
    const stored = await readRecord(store, BUDGET_DAYS, key, parseDay);
    await forgetOtherDays(store, key);
    if (heldOn !== key) [heldOn, held, refund] = [key, 0, 0];
    return day = {
      key,
      version: stored?.version ?? 0,
      tokens: stored === undefined ? 0 : stored.value.tokens,
    };
  };
  /** Decides on everything that waits and writes the outcome at once. @returns whether something was decided */
  const decide = async (): Promise<boolean> => {
    const today = await load();
    const limit = tokensPerDay();
    const back = refund;
    let tokens = today.tokens - back;
    const granted: { readonly entry: Waiting; readonly output: number }[] = [];
    for (const entry of waiting) {
      const { input, output } = entry.need;
      const left = limit - tokens;
      if (left > input || limit === 0) {
        const given = limit === 0 ? output : Math.min(output, left - input);
        tokens += input + given;
        granted.push({ entry, output: given });
      } else if (entry.late || input >= limit || held + granted.length === 0) {
        waiting.delete(entry);
        entry.refuse(exceeded({ limit, left, held, input, until: untilTomorrow(clock.now()) }));
      }
    }
    if (granted.length === 0 && back === 0) return false;
    const body = { v: 1, tokens };
    if (!await store.putIfVersion(BUDGET_DAYS, today.key, today.version, body)) {
      // Another gateway on this store wrote first
      day = undefined;
      return true;
    }
    day = { key: today.key, version: today.version + 1, tokens };
    refund -= back;
    for (const { entry, output } of granted) {
      const reserved = entry.need.input + output;
      if (waiting.delete(entry)) {
        held += reserved;
        entry.grant(output, today.key);
      } else refund += reserved; // whoever asked has gone meanwhile
    }
    return true;
  };
  const write = async () => {
    due = true;
    if (writing) return;
    writing = true;
    try {
      while (due) {
        due = false;
        while (await decide());
      }
    } catch (error) {
      for (const entry of waiting) entry.refuse(error as Error); // the store throws Errors
      waiting.clear();
    } finally {
      writing = false;
    }
  };
  const toReservation = (output: number, need: TokenNeed, key: string): TokenReservation => {
    const reserved = need.input + output;
    const end = (unused: number) => {
      // What was set aside yesterday is of no use to anybody today
      if (heldOn !== key) return;
      held -= reserved;
      refund += unused;
      void write();
    };
    return { output, settle: (usedTokens) => end(reserved - usedTokens), forfeit: () => end(0) };
  };

  return {
    isSet: () => tokensPerDay() > 0,
    async check(input) {
      const { tokens } = await load();
      const limit = tokensPerDay();
      const left = limit - (tokens - refund - held);
      if (limit === 0 || left > input) return;
      const until = untilTomorrow(clock.now());
      const { message } = exceeded({ limit, left, held: 0, input, until });
      throw new HttpError("rate_limited", message, {
        status: 429,
        type: "rate_limit_error",
        headers: { "retry-after": String(until), "x-should-retry": "false" },
      });
    },
    async reserve(need) {
      if (tokensPerDay() === 0) return UNLIMITED(need.output);
      const { signal } = need;
      if (signal.aborted) throw cancelError(signal);
      const { promise, resolve, reject } = Promise.withResolvers<TokenReservation>();
      const entry: Waiting = {
        need,
        grant: (output, key) => resolve(toReservation(output, need, key)),
        refuse: reject,
        late: false,
      };
      const onAbort = () => {
        if (waiting.delete(entry)) reject(cancelError(signal));
      };
      signal.addEventListener("abort", onAbort, { once: true });
      const timer = clock.after(MAX_WAIT_MS, () => {
        entry.late = true;
        void write();
      });
      waiting.add(entry);
      void write();
      try {
        return await promise;
      } finally {
        timer.clear();
        signal.removeEventListener("abort", onAbort);
      }
    },
  };
}

const UNLIMITED = (output: number): TokenReservation => ({ output, settle() {}, forfeit() {} });

function untilTomorrow(now: number): number {
  return Math.ceil((DAY_MS - now % DAY_MS) / 1000);
}

interface Exceeded {
  readonly limit: number;
  readonly left: number;
  readonly held: number;
  readonly input: number;
  /** Seconds */
  readonly until: number;
}

function exceeded({ limit, left, held, input, until }: Exceeded): CancelError {
  const need = `, and the call may need ${input + 1}`;
  const others = held === 0 ? "" : ` (${held} more are set aside for calls at work)`;
  const hours = Math.floor(until / 3600);
  const wait = hours > 0 ? `${hours} h` : `${Math.ceil(until / 60)} min`;
  return new CancelError(
    "budget",
    `Cannot ask the model: of the day's budget of ${limit} tokens ${
      Math.max(0, left)
    } are left${others}${need}; raise ` +
      `tokens_per_day in [budget], or wait ${wait} for the next day (UTC)`,
  );
}

/** One record is enough: what earlier days used is nobody's limit any more. */
async function forgetOtherDays(store: Store, key: string): Promise<void> {
  const old = (await store.scan(BUDGET_DAYS, { limit: 100 })).filter((stored) => stored.key < key);
  if (old.length > 0) {
    await store.batch(old.map((stored) => ({ op: "delete", collection: BUDGET_DAYS, key: stored.key })));
  }
}

/**
 * What a run's model calls count in: its own limit, that of its parent, so that no work escapes a limit by being handed down,
 * and the day's. undefined where nothing is limited: such a run pays nothing for budgets.
 */
export function budgetOf(options: {
  readonly limits: Pick<AgentLimits, "tokensPerRun">;
  /** Tokens the run used before: it was resumed */
  readonly used: number;
  readonly parent: TokenBudget | undefined;
  readonly day: DayBudget;
}): TokenBudget | undefined {
  const { limits, used, parent, day } = options;
  const outer = parent ?? (day.isSet() ? day : undefined);
  if (limits.tokensPerRun === 0) return outer;
  return createRunBudget({ tokensPerRun: limits.tokensPerRun, used, within: outer });
}
