import * as rules from "../../../lib/runs/supervisor/token_slices.ts";

/** Rules of the budget, of which a test may break one. */
export type SliceRules = Omit<typeof rules, "NO_SLICE" | "sliceOf">;

/** Bounds of one enumeration. */
export interface ModelOptions {
  readonly gateways: number;
  /** Tokens of a day, before and after a change of the configuration that each gateway takes over at a time of its own. */
  readonly limits: readonly [number, number];
  /** Tokens that a call may need. */
  readonly needs: readonly rules.CallNeed[];
  /** Calls at work at one gateway. Default 1 */
  readonly calls?: number;
  /** True: the database is down for a write, or its answer is lost. */
  readonly losesAnswers?: boolean;
  /** True: gateways die, and come back without what they had leased. */
  readonly dies?: boolean;
  /** Deaths, lost answers and writes that fail. Default 1 */
  readonly faults?: number;
  /** True: the day changes, at each gateway at a time of its own. */
  readonly changesDay?: boolean;
  /** True: the database goes on with another history, once, which may lack the last write. Each gateway notices at a time of its own. One day */
  readonly changesHistory?: boolean;
  /** True: a call uses one token more than was set aside for it, once. */
  readonly overuses?: boolean;
  readonly rules?: Partial<SliceRules>;
  /** Default 50,000 */
  readonly maxStates?: number;
}

interface Call {
  readonly day: number;
  /** History in which it began, as its gateway knew it */
  readonly history: number;
  readonly reserved: number;
}

/** Write of a gateway that it has no answer to. */
interface Sent {
  readonly move: rules.Move;
  /** Limit that a lease is under; undefined for tokens that are given back */
  readonly under: number | undefined;
  /** `stale`: another gateway wrote first; `made`: it is in the record, and its answer is on its way */
  readonly is: "sent" | "stale" | "made";
}

interface Gateway {
  readonly day: number;
  /** History that it knows of: 0 or 1 */
  readonly history: number;
  /** Tokens that it has leased in the second history, and not given back, before it knows of it */
  readonly early: number;
  /** Index of the limit that it has taken over */
  readonly limit: number;
  readonly leasedUnder: number;
  readonly slice: rules.Slice;
  readonly calls: readonly Call[];
  readonly write?: Sent | undefined;
}

interface State {
  /** By day */
  readonly pots: readonly rules.Pot[];
  /** Tokens that the provider has counted, by day; the most that it may have counted, for calls nobody saw the end of */
  readonly spent: readonly number[];
  /** Tokens that nobody can use any more, by day: of gateways that died, of lost answers, and of slices when the day changed */
  readonly gone: readonly number[];
  /** Tokens that calls used beyond what was set aside for them, by day */
  readonly over: readonly number[];
  readonly gateways: readonly Gateway[];
  readonly faults: number;
  /** History that the database goes on with: 0 or 1 */
  readonly history: number;
  /** Record before the last write, which another history may have in its place. Undefined where the history does not change */
  readonly before: rules.Pot | undefined;
  /** Tokens that are somewhere and that the record lacks, since their write was lost. Below 0: tokens that were given back */
  readonly lost: number;
  /** Tokens of the write that the second history lacks */
  readonly forgotten: number;
  /** Tokens that gateways gave back to the second history, and had not leased there */
  readonly misgiven: number;
}

/** Outcome of an enumeration. */
export interface ModelResult {
  readonly states: number;
  /** First state that breaks a rule, with the reason. */
  readonly broken: string | undefined;
  /** The most that was spent in one day, in any state. */
  readonly mostSpent: number;
  /** Tells whether all tokens could be used again in some state in which nobody died and no answer was lost. */
  readonly isAllGivenBack: boolean;
}

const DAYS = 2;

/** Enumerates everything that gateways can do with a shared budget on small bounds, in every order. */
export function enumerate({ maxStates = 50_000, ...options }: ModelOptions): ModelResult {
  const model = new Model(options);
  const first = model.first();
  const seen = new Set([JSON.stringify(first)]);
  const open: State[] = [first];
  let broken: string | undefined;
  let mostSpent = 0;
  let isAllGivenBack = false;
  for (let state = open.pop(); state !== undefined && broken === undefined; state = open.pop()) {
    broken = model.problem(state);
    mostSpent = Math.max(mostSpent, ...state.spent);
    isAllGivenBack ||= state.faults === 0 &&
      state.spent.some((spent, day) => spent > 0 && state.pots[day]?.tokens === spent);
    for (const next of model.next(state)) {
      // Gateways are alike: their order says nothing
      const text = JSON.stringify({ ...next, gateways: next.gateways.map((each) => JSON.stringify(each)).toSorted() });
      if (seen.has(text)) continue;
      seen.add(text);
      if (seen.size > maxStates) throw new Error(`More than ${maxStates} states: the bounds are too large`);
      open.push(next);
    }
  }
  return { states: seen.size, broken, mostSpent, isAllGivenBack };
}

class Model {
  readonly #options: ModelOptions;
  readonly #rules: SliceRules;

  constructor(options: ModelOptions) {
    this.#options = options;
    this.#rules = { ...rules, ...options.rules };
  }

  first(): State {
    const gateway: Gateway = {
      day: 0,
      history: 0,
      early: 0,
      limit: 0,
      leasedUnder: 0,
      slice: rules.NO_SLICE,
      calls: [],
    };
    const none = Array.from({ length: this.#options.changesDay ? DAYS : 1 }, () => 0);
    return {
      pots: none.map(() => ({ tokens: 0, leased: 0 })),
      ...{ spent: none, gone: none, over: none },
      gateways: Array.from({ length: this.#options.gateways }, () => gateway),
      faults: 0,
      ...{ history: 0, before: this.#options.changesHistory ? NO_POT : undefined, lost: 0, forgotten: 0, misgiven: 0 },
    };
  }

  /**
   * Returns what is wrong with a state: each token of a record must be spent, be at exactly one gateway, or be gone for good, and no record
   * may count more than the day has.
   */
  problem(state: State): string | undefined {
    const most = Math.max(...this.#options.limits);
    for (const [day, pot] of state.pots.entries()) {
      const [spent = 0, gone = 0, over = 0] = [state.spent[day], state.gone[day], state.over[day]];
      const here = state.gateways.filter((gateway) => gateway.day === day);
      const held = state.gateways.flatMap(({ calls }) => calls).reduce(
        (sum, call) => sum + (call.day === day ? call.reserved : 0),
        0,
      );
      const free = here.reduce((sum, gateway) => sum + freeOf(gateway), 0);
      const shown = () => `day ${day}: ${JSON.stringify(state)}`;
      if (pot.tokens < 0) return `the record is below zero, ${shown()}`;
      if (spent > most + over + state.forgotten + state.misgiven) return `spent ${spent} of ${most}, ${shown()}`;
      // Tokens that a call used beyond its reservation are counted again when nobody knows whether it was
      if (pot.tokens > most + over * (1 + state.faults)) return `leased ${pot.tokens} of ${most}, ${shown()}`;
      if (here.some(({ slice }) => slice.free < -over)) return `a slice has less than nothing, ${shown()}`;
      if (spent + held + free + gone !== pot.tokens + state.lost) {
        return `${spent} are spent, ${held} held, ${free} free and ${gone} gone of ${pot.tokens}, ${shown()}`;
      }
      const isKnown = state.history === 1 && here.every(({ history }) => history === 1);
      const isNew = here.flatMap(({ calls }) => calls).filter(({ history }) => history === 1);
      const leased = free + isNew.reduce((sum, { reserved }) => sum + reserved, 0);
      if (isKnown && leased > pot.tokens + state.misgiven) return `${leased} are leased of ${pot.tokens}, ${shown()}`;
      const told = here.reduce((sum, { slice }) => sum + slice.told, 0);
      const isCalm = state.faults === 0 && day === 0 && here.length === state.gateways.length &&
        here.every(({ write }) => write === undefined);
      if (isCalm && told !== pot.leased) return `${told} are told to be leased, and not ${pot.leased}, ${shown()}`;
    }
    return undefined;
  }

  *next(state: State): Iterable<State> {
    const { faults = 1, losesAnswers, dies, changesDay } = this.#options;
    const { abandoned } = this.#rules;
    const mayFail = state.faults < faults;
    if (mayFail && state.before !== undefined && state.history === 0) yield* changesOf(state, state.before);
    for (const [at, gateway] of state.gateways.entries()) {
      const to = (changed: Partial<Gateway>, rest: Partial<State> = {}): State => ({
        ...state,
        ...rest,
        gateways: (rest.gateways ?? state.gateways).map((each, index) =>
          index === at ? { ...gateway, ...changed } : each
        ),
      });
      const { day, write } = gateway;
      if (write === undefined) yield* this.#sends(state, gateway, to);
      else yield* this.#ends(state, { at, gateway, write }, to);
      yield* this.#calls(state, gateway, to);
      if (gateway.limit === 0 && this.#options.limits[0] !== this.#options.limits[1]) yield to({ limit: 1 });
      const lost = { write: undefined, slice: rules.NO_SLICE };
      const gone = plus(state.gone, day, freeOf(gateway));
      const left = { write: undefined, slice: abandoned(gateway.slice) };
      const goneOfLeft = plus(state.gone, day, freeOf(gateway) - left.slice.free);
      // As for the day: a write that is on its way counts for nothing
      if (gateway.history < state.history && write?.is !== "sent") {
        yield to({ ...left, history: 1, early: 0 }, { gone: goneOfLeft });
      }
      // A write of the day before may still be made: nothing of it counts for the gateway
      if (changesDay && day + 1 < DAYS && write?.is !== "sent") {
        yield to({ ...left, day: day + 1 }, { gone });
      }
      if (mayFail && losesAnswers && write !== undefined) {
        const slice = gateway.slice;
        const rest = freeOf(gateway) - slice.free;
        yield to({ write: undefined }, { faults: state.faults + 1, gone: plus(state.gone, day, rest) });
      }
      if (mayFail && dies) {
        const spent = gateway.calls.reduce<readonly number[]>(
          (sum, call) => plus(sum, call.day, call.reserved),
          state.spent,
        );
        yield to({ ...lost, leasedUnder: 0, calls: [] }, { faults: state.faults + 1, spent, gone });
      }
    }
  }

  /** Sends a write: a lease for a call, or tokens that go back. */
  *#sends(state: State, gateway: Gateway, to: (changed: Partial<Gateway>, rest?: Partial<State>) => State) {
    const { leased, returned, surplus, isScarce, sent } = this.#rules;
    const { day, slice, leasedUnder } = gateway;
    const limit = this.#options.limits[gateway.limit] ?? 0;
    const pot = state.pots[day] ?? { tokens: 0, leased: 0 };
    const isCurrent = limit >= leasedUnder;
    for (const need of isCurrent ? this.#options.needs : []) {
      const move = leased(pot, slice, { missing: need.input + need.output - slice.free, limit });
      if (move === undefined) continue;
      yield to({ slice: sent(slice, move), write: { move, under: limit, is: "sent" } });
    }
    const back = new Set([slice.free, surplus(slice, { limit, scarce: isScarce(pot, limit) })]);
    for (const amount of back) {
      if (amount === 0 && slice.told === slice.held) continue;
      const move = returned(pot, slice, amount);
      yield to({ slice: sent(slice, move), write: { move, under: undefined, is: "sent" } });
    }
    if (!isCurrent && slice.free === 0) yield to({ leasedUnder: limit });
  }

  /** Makes a write that was sent, or answers it. */
  *#ends(
    state: State,
    { at, gateway, write }: { readonly at: number; readonly gateway: Gateway; readonly write: Sent },
    to: (changed: Partial<Gateway>, rest?: Partial<State>) => State,
  ): Iterable<State> {
    const { written, notWritten } = this.#rules;
    const { day, slice } = gateway;
    const { move, under, is } = write;
    if (is === "sent") {
      const before = state.pots[day] ?? NO_POT;
      const pots = state.pots.map((each, index) => index === day ? move.pot : each);
      const change = move.pot.tokens - before.tokens;
      // More than it has leased in this history: the record may lack it
      const early = gateway.early + (gateway.history < state.history ? change : 0);
      const gateways = state.gateways.map((other, index): Gateway =>
        index !== at && other.day === day && other.write?.is === "sent"
          ? { ...other, write: { ...other.write, is: "stale" } }
          : other
      );
      yield to({ write: { ...write, is: "made" }, early: Math.max(0, early) }, {
        ...{ pots, gateways },
        // The first history alone is of use
        before: state.before && (state.history === 0 ? before : NO_POT),
        lost: state.lost + move.amount - change,
        misgiven: state.misgiven + Math.max(0, -early),
      });
      return;
    }
    const leasedUnder = is === "made" && under !== undefined ? { leasedUnder: under } : {};
    yield to({ slice: (is === "made" ? written : notWritten)(slice, move), write: undefined, ...leasedUnder });
  }

  *#calls(state: State, gateway: Gateway, to: (changed: Partial<Gateway>, rest?: Partial<State>) => State) {
    const { setAside, settled } = this.#rules;
    const { day, slice, calls } = gateway;
    const isCurrent = (this.#options.limits[gateway.limit] ?? 0) >= gateway.leasedUnder;
    for (const need of isCurrent && calls.length < (this.#options.calls ?? 1) ? this.#options.needs : []) {
      for (const whole of [true, false]) {
        const given = setAside(slice, need, { whole });
        if (given === undefined) continue;
        const call = { day, history: gateway.history, reserved: need.input + given.output };
        yield to({ slice: given.slice, calls: sorted([...calls, call]) });
      }
    }
    for (const [index, call] of calls.entries()) {
      const rest = calls.filter((_, other) => other !== index);
      const { reserved } = call;
      const mayOveruse = this.#options.overuses && state.over.every((over) => over === 0);
      for (const used of new Set([0, reserved, ...(mayOveruse ? [reserved + 1] : [])])) {
        const isToday = call.day === day && call.history === gateway.history;
        // Tokens that were set aside yesterday are of no use today
        yield to({ slice: isToday ? settled(slice, { reserved, used }) : slice, calls: rest }, {
          spent: plus(state.spent, call.day, used),
          gone: plus(state.gone, call.day, isToday ? 0 : reserved - used),
          over: plus(state.over, call.day, Math.max(0, used - reserved)),
        });
      }
    }
  }
}

const NO_POT: rules.Pot = { tokens: 0, leased: 0 };

/** Yields the change of the history: the other one has the last write, or does not. Writes on their way are not made. */
function* changesOf(state: State, before: rules.Pot): Iterable<State> {
  const [pot = NO_POT] = state.pots;
  const gateways = state.gateways.map((each): Gateway =>
    each.write?.is === "sent" ? { ...each, write: { ...each.write, is: "stale" } } : each
  );
  for (const restored of new Set([pot, before])) {
    const lost = pot.tokens - restored.tokens;
    yield {
      ...state,
      ...{ history: 1, before: NO_POT, faults: state.faults + 1, gateways, pots: [restored], lost },
      forgotten: Math.max(0, lost),
    };
  }
}

/** Returns the tokens of a slice that the record counts: with those of a write that it has, and those that it does not have back yet. */
function freeOf({ slice, write }: Gateway): number {
  const amount = write?.move.amount ?? 0;
  return slice.free + ((write?.is === "made") === (amount > 0) ? Math.abs(amount) : 0);
}

function plus(spent: readonly number[], day: number, amount: number): readonly number[] {
  return spent.map((each, index) => index === day ? each + amount : each);
}

function sorted(calls: readonly Call[]): readonly Call[] {
  return calls.toSorted((a, b) => a.day - b.day || a.reserved - b.reserved);
}
