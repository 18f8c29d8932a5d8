import type { Claim, Hold, Instant, LeaseRow, LeaseTerms } from "../../lib/cluster/ownership.ts";
import * as ownership from "../../lib/cluster/ownership.ts";

/** Rules that the model follows: the code's own, or one of them mutated. */
export type Rules = Omit<typeof ownership, "marginOf" | "renewalPause">;

/** Bounds and failures of one enumeration. */
export interface ModelOptions {
  readonly rules?: Partial<Rules>;
  readonly terms?: LeaseTerms;
  readonly gateways: number;
  readonly runs: number;
  /** Failures that may happen, each at any moment and as often as it likes. */
  readonly failures: readonly Failure[];
  /** Number of gateways that the failures happen to. Default: all. */
  readonly failing?: number;
  /** Moment that an owner counts its deadline from. Default: the moment when it sent the renewal. */
  readonly countsFrom?: "answer";
  /** True: a gateway forgets at a loss which claims it had, and lets work go on of which it knows no claim. Default: it does neither. */
  readonly forgets?: boolean;
  /** True: a gateway that lives sends a heartbeat in every tick, and again when an error is over, as the code's timers do. */
  readonly isPrompt?: boolean;
}

/** `cut`: one gateway does not reach the database. `outage`: none does. `lost`: the answer to a claim is lost. */
export type Failure = "pause" | "suspend" | "die" | "cut" | "outage" | "lost";

/**
 * A heartbeat that the database has taken, and whose answer is on its way. The way to the database takes no time here: a renewal that comes
 * later than it was sent only makes the lease longer than its owner believes.
 */
interface Beat {
  readonly sentAt: Instant;
  /** Undefined: the database has refused to renew the lease. */
  readonly fence: number | undefined;
}

interface Gateway {
  readonly status: "up" | "paused" | "suspended" | "dead";
  readonly isLinked: boolean;
  /** Ticks that its monotonic clock stood still. */
  readonly slept: number;
  readonly hold: Hold | undefined;
  readonly beat: Beat | undefined;
  /** True: it has sent a heartbeat since the last tick, and heard of it. */
  readonly isFresh: boolean;
  /** Fences of the claims that it knows of its runs: at a loss they stay as they are, until the work has stopped. */
  readonly owned: readonly (number | undefined)[];
  /** Runs that it works on. Work that was lost is told to stop, and stops later. */
  readonly works: readonly boolean[];
  /** Runs with an effect at work. */
  readonly effects: readonly boolean[];
}

interface State {
  readonly time: number;
  readonly isDown: boolean;
  /** True: the database came back in this tick. It stays until the next. */
  readonly isBack: boolean;
  readonly rows: readonly (LeaseRow | undefined)[];
  readonly claims: readonly (Claim | undefined)[];
  readonly ended: readonly boolean[];
  readonly gateways: readonly Gateway[];
}

/** The result of an enumeration. */
export interface Exploration {
  readonly states: number;
  readonly steps: number;
  /** Steps to a state that breaks a promise; undefined: there is none. */
  readonly broken: { readonly promise: string; readonly steps: readonly string[] } | undefined;
  /** Number of takeovers. */
  readonly takeovers: number;
  /** Number of states from which a run that has not ended cannot end any more. */
  readonly lost: number;
}

/** A tick is a millisecond. Three of them are a lease, and one is the margin. */
const TERMS: LeaseTerms = { leaseMs: 3, marginMs: 1 };

/** Enumerates every state that the gateways can come to, with the rules of ownership that the code follows. */
export function explore(options: ModelOptions): Exploration {
  const model = new Model(options);
  const first = model.first();
  const ids = new Map<string, number>([[keyOf(first), 0]]);
  const found: { readonly state: State; readonly from: number; readonly step: string }[] = [
    { state: first, from: -1, step: "start" },
  ];
  const before: number[][] = [[]];
  let steps = 0;
  let takeovers = 0;
  const pathTo = (id: number): string[] => {
    const path: string[] = [];
    for (let at = id; at > 0; at = found[at]?.from ?? 0) path.unshift(found[at]?.step ?? "");
    return path;
  };
  for (let id = 0; id < found.length; id++) {
    const { state } = found[id] as (typeof found)[number]; // id is below the length
    for (const { step, next, broken } of model.steps(state)) {
      steps++;
      if (step.includes("fences")) takeovers++;
      if (broken !== undefined) {
        const path = [...pathTo(id), step];
        return { states: found.length, steps, takeovers, lost: 0, broken: { promise: broken, steps: path } };
      }
      const normal = normalised(next);
      const key = keyOf(normal);
      let to = ids.get(key);
      if (to === undefined) {
        to = found.length;
        ids.set(key, to);
        found.push({ state: normal, from: id, step });
        before.push([]);
      }
      before[to]?.push(id);
    }
  }
  const lost = countLost(found.map(({ state }) => state.ended.every(Boolean)), before);
  return { states: found.length, steps, takeovers, lost, broken: undefined };
}

/** Counts the states that no state with all runs ended can be reached from. */
function countLost(isGood: readonly boolean[], before: readonly (readonly number[])[]): number {
  const reaches = [...isGood];
  const open = reaches.flatMap((good, id) => (good ? [id] : []));
  for (let id = open.pop(); id !== undefined; id = open.pop()) {
    for (const from of before[id] ?? []) {
      if (reaches[from]) continue;
      reaches[from] = true;
      open.push(from);
    }
  }
  return reaches.filter((good) => !good).length;
}

interface Step {
  readonly step: string;
  readonly next: State;
  readonly broken?: string;
}

class Model {
  readonly #rules: Rules;
  readonly #terms: LeaseTerms;
  readonly #options: ModelOptions;
  readonly #failures: ReadonlySet<Failure>;

  constructor(options: ModelOptions) {
    this.#options = options;
    this.#rules = { ...ownership, ...options.rules };
    this.#terms = options.terms ?? TERMS;
    this.#failures = new Set(options.failures);
  }

  first(): State {
    const { gateways, runs } = this.#options;
    const none = Array.from({ length: runs }, () => undefined);
    const gateway: Gateway = {
      status: "up",
      isLinked: true,
      slept: 0,
      hold: undefined,
      beat: undefined,
      isFresh: false,
      owned: none,
      works: none.map(() => false),
      effects: none.map(() => false),
    };
    return {
      time: 0,
      isDown: false,
      isBack: false,
      rows: Array.from({ length: gateways }, () => undefined),
      claims: none,
      ended: none.map(() => false),
      gateways: Array.from({ length: gateways }, () => gateway),
    };
  }

  *steps(state: State): Generator<Step> {
    if (this.#mayTick(state)) yield { step: "tick", next: this.#tick(state) };
    if (this.#failures.has("outage")) {
      if (state.isDown) yield this.#comeBack(state);
      else if (!state.isBack) yield { step: "the database is down", next: { ...state, isDown: true } };
    }
    for (const index of state.gateways.keys()) {
      if (index < (this.#options.failing ?? Infinity)) yield* this.#failing(state, index);
      if (state.gateways[index]?.status !== "up") continue;
      yield* this.#beating(state, index);
      yield* this.#owning(state, index);
    }
  }

  /** Time passes. A program that still runs at its owner's deadline is killed within the margin, by its watchdog if need be. */
  #tick(state: State): State {
    const time = state.time + 1;
    return {
      ...state,
      time,
      isBack: false,
      gateways: state.gateways.map((gateway) => {
        const slept = gateway.slept + (gateway.status === "suspended" ? 1 : 0);
        const { sentAt } = gateway.hold ?? {};
        const { leaseMs, marginMs } = this.#terms;
        const killedAt = leaseMs - marginMs + KILL_MS;
        const isOver = sentAt === undefined || time - sentAt.wall >= killedAt;
        const isKilled = (run: number) => isOver || gateway.owned[run] !== gateway.hold?.fence;
        return { ...gateway, slept, isFresh: false, effects: gateway.effects.map((at, run) => at && !isKilled(run)) };
      }),
    };
  }

  /** Gateways that heard an error try again at once. */
  #comeBack(state: State): Step {
    const gateways = state.gateways.map((gateway) =>
      gateway.hold !== undefined && gateway.hold.sentAt === undefined ? { ...gateway, isFresh: false } : gateway
    );
    return { step: "the database is back", next: { ...state, isDown: false, isBack: true, gateways } };
  }

  #mayTick({ gateways, isDown }: State): boolean {
    if (this.#options.isPrompt !== true) return true;
    return gateways.every(({ status, isFresh, hold, beat }) =>
      status !== "up" || (beat === undefined && (isFresh || (isDown && hold?.sentAt === undefined)))
    );
  }

  *#failing(state: State, index: number): Generator<Step> {
    const gateway = at(state.gateways, index);
    const to = (change: Partial<Gateway>, step: string): Step => (
      { step: `${nameOf(index)} ${step}`, next: withGateway(state, index, change) }
    );
    const { status, isLinked } = gateway;
    if (this.#failures.has("cut")) yield to({ isLinked: !isLinked }, isLinked ? "is cut off" : "is linked again");
    if (status === "up" && this.#failures.has("pause")) yield to({ status: "paused" }, "is paused");
    // Programs are suspended with their machine, and the watchdog kills them when it wakes
    if (status === "up" && this.#failures.has("suspend")) {
      yield to({ status: "suspended", effects: gateway.effects.map(() => false) }, "is suspended");
    }
    if (status === "up" && this.#failures.has("die")) {
      const none = gateway.owned.map(() => undefined);
      yield to({
        status: "dead",
        hold: undefined,
        beat: undefined,
        owned: none,
        works: none.map(() => false),
        // Programs end with the gateway that started them
        effects: none.map(() => false),
      }, "dies");
    }
    if (status === "dead") yield to({ status: "up" }, "starts again");
    if (status === "paused" || status === "suspended") yield to({ status: "up" }, "comes back");
  }

  /** A gateway that is up sends heartbeats and hears of them. */
  *#beating(state: State, index: number): Generator<Step> {
    const gateway = at(state.gateways, index);
    const { beat, hold } = gateway;
    const name = nameOf(index);
    const isReached = gateway.isLinked && !state.isDown;
    if (beat === undefined) {
      if (gateway.isFresh && this.#options.isPrompt === true) return;
      if (isReached) yield this.#send(state, index);
      else if (hold?.sentAt !== undefined) {
        const change = { hold: this.#rules.brokenHold(hold), isFresh: this.#options.isPrompt === true };
        yield { step: `${name} cannot send`, next: withGateway(state, index, change) };
      }
      return;
    }
    if (!isReached || state.time - beat.sentAt.wall > MAX_WAIT_MS) {
      const change = {
        beat: undefined,
        hold: hold && this.#rules.brokenHold(hold),
        isFresh: this.#options.isPrompt === true,
      };
      yield { step: `${name} hears an error`, next: withGateway(state, index, change) };
    } else yield { step: `${name} hears`, next: withGateway(state, index, this.#heard(state, gateway, beat)) };
  }

  #send(state: State, index: number): Step {
    const { joined, renewed } = this.#rules;
    const gateway = at(state.gateways, index);
    const row = state.rows[index];
    const { time } = state;
    const next = gateway.hold === undefined
      ? joined(row, time, this.#terms)
      : renewed(row, { fence: gateway.hold.fence, now: time, leaseMs: this.#terms.leaseMs });
    const sent = withGateway(state, index, { beat: { sentAt: localTime(state, gateway), fence: next?.fence } });
    return { step: `${nameOf(index)} sends`, next: { ...sent, rows: replaced(state.rows, index, next ?? row) } };
  }

  #heard(state: State, gateway: Gateway, { sentAt, fence }: Beat): Partial<Gateway> {
    const { hold, owned } = gateway;
    const { held, extended } = this.#rules;
    if (fence === undefined) {
      return {
        beat: undefined,
        hold: undefined,
        isFresh: this.#options.isPrompt === true,
        owned: this.#options.forgets === true ? owned.map(() => undefined) : owned,
      };
    }
    const from = this.#options.countsFrom === "answer" ? localTime(state, gateway) : sentAt;
    const next = hold === undefined ? held(fence, from) : extended(hold, from, this.#terms);
    return { beat: undefined, hold: next, isFresh: this.#options.isPrompt === true };
  }

  /** A gateway that is up takes over, claims, acts and writes, and ends work that was lost. */
  *#owning(state: State, index: number): Generator<Step> {
    const gateway = at(state.gateways, index);
    const { hold } = gateway;
    for (const run of state.ended.keys()) {
      const isLost = gateway.works[run] === true && (hold === undefined || gateway.owned[run] !== hold.fence);
      if (isLost) yield { step: `${nameOf(index)} stops run ${run}`, next: withoutWork(state, index, run) };
    }
    if (hold === undefined) return;
    const isReached = gateway.isLinked && !state.isDown;
    if (isReached) yield* this.#takingOver(state, index, hold);
    const now = localTime(state, gateway);
    for (const run of state.ended.keys()) {
      if (isReached) yield* this.#claiming(state, index, run);
      if (gateway.works[run] !== true) continue;
      if (this.#mayBegin(gateway, run, now) && gateway.effects[run] === false) yield this.#begin(state, index, run);
      if (isReached) yield* this.#ending(state, index, run);
    }
  }

  /** Tells whether work of a run may begin an effect: under the fence of its claim alone, and not without a claim. */
  #mayBegin({ hold, owned }: Gateway, run: number, now: Instant): boolean {
    const fence = owned[run];
    if (fence === undefined) return this.#options.forgets === true;
    return hold !== undefined && hold.fence === fence && this.#rules.mayAct(hold, now, this.#terms);
  }

  *#takingOver(state: State, index: number, hold: Hold): Generator<Step> {
    const { mayTakeOver, fencedRow, counts } = this.#rules;
    const own = state.rows[index];
    // A gateway asks for both rows in one statement of the database
    if (!counts(own, hold.fence) || (own?.until ?? 0) <= state.time) return;
    if (!mayTakeOver(hold, localTime(state, at(state.gateways, index)), this.#terms)) return;
    for (const [other, row] of state.rows.entries()) {
      const next = other === index || row === undefined ? undefined : fencedRow(row, state.time);
      if (
        next === undefined ||
        !state.claims.some((claim) => claim?.gateway === nameOf(other) && claim.fence === row?.fence)
      ) {
        continue;
      }
      yield {
        step: `${nameOf(index)} fences ${nameOf(other)} off`,
        next: { ...state, rows: replaced(state.rows, other, next) },
      };
    }
  }

  *#claiming(state: State, index: number, run: number): Generator<Step> {
    const { counts, mayClaim, mayAct } = this.#rules;
    const gateway = at(state.gateways, index);
    const { hold, owned, works } = gateway;
    if (hold === undefined || state.ended[run] || !counts(state.rows[index], hold.fence)) return;
    if (!mayAct(hold, localTime(state, gateway), this.#terms)) return;
    const claim = state.claims[run];
    const name = nameOf(index);
    const mine = claim?.gateway === name && claim.fence === hold.fence;
    // A claim whose answer was lost is found again by its fence
    const isAtWork = works[run] === true;
    if (!mayClaim(claim, (id) => state.rows[indexOf(id)], isAtWork) && !(mine && !isAtWork)) return;
    const claims = replaced(state.claims, run, { gateway: name, fence: hold.fence });
    const next = withGateway({ ...state, claims }, index, {
      owned: replaced(owned, run, hold.fence),
      works: replaced(works, run, true),
    });
    const others = state.gateways.some(({ effects }, other) => other !== index && effects[run]);
    const isBroken = others
      ? { broken: "a run is claimed while an effect of its earlier owner is at work" }
      : isAtWork
      ? { broken: "a gateway claims a run while its earlier work of the run is not over" }
      : {};
    yield { step: `${name} claims run ${run}`, next, ...isBroken };
    if (!mine && this.#failures.has("lost")) {
      yield { step: `${name} claims run ${run}, unheard`, next: { ...state, claims } };
    }
  }

  #begin(state: State, index: number, run: number): Step {
    const { effects } = at(state.gateways, index);
    const others = state.gateways.some((gateway, other) => other !== index && gateway.effects[run]);
    return {
      step: `${nameOf(index)} begins an effect of run ${run}`,
      next: withGateway(state, index, { effects: replaced(effects, run, true) }),
      ...(others ? { broken: "effects of two owners overlap" } : {}),
    };
  }

  /** The end of an effect is written with the fence of the claim. */
  *#ending(state: State, index: number, run: number): Generator<Step> {
    const { counts } = this.#rules;
    const gateway = at(state.gateways, index);
    const fence = gateway.owned[run];
    if (fence === undefined ? this.#options.forgets !== true : !counts(state.rows[index], fence)) return;
    const claim = state.claims[run];
    const isOwn = claim?.gateway === nameOf(index) && claim.fence === fence;
    const next = { ...withoutWork(state, index, run), ended: replaced(state.ended, run, true) };
    yield {
      step: `${nameOf(index)} ends run ${run}`,
      next: { ...next, claims: replaced(state.claims, run, undefined) },
      ...(isOwn ? {} : { broken: "a gateway that does not own a run writes to its journal" }),
    };
  }
}

/** Time that killing a program takes: the rules promise that it fits into the margin. */
const KILL_MS = 1;
/** Time that a gateway waits for the answer to a heartbeat. */
const MAX_WAIT_MS = 1;
const STATUSES: readonly Gateway["status"][] = ["up", "paused", "suspended", "dead"];
/** Times further back than this are all the same to every rule. */
const LONG_AGO = 3;

/** Returns a state with times counted from now, and fences renumbered. The rules look at differences of times and at equal fences alone. */
function normalised(state: State): State {
  const { time } = state;
  const back = (then: number) => Math.max(-LONG_AGO, then - time);
  const ranks = state.gateways.map((gateway, index) => ranksOf(state, gateway, index));
  const rank = (index: number, fence: number) => at(ranks, index).indexOf(fence) + 1;
  return {
    ...state,
    time: 0,
    gateways: state.gateways.map((gateway, index): Gateway => {
      const { slept, hold, beat, owned } = gateway;
      const instant = ({ monotonic, wall }: Instant): Instant => (
        { monotonic: Math.max(-LONG_AGO, monotonic - (time - slept)), wall: back(wall) }
      );
      return {
        ...gateway,
        slept: 0,
        hold: hold && {
          fence: rank(index, hold.fence),
          sentAt: hold.sentAt && instant(hold.sentAt),
          unbrokenSince: hold.unbrokenSince && instant(hold.unbrokenSince),
        },
        beat: beat && {
          sentAt: instant(beat.sentAt),
          fence: beat.fence === undefined ? undefined : rank(index, beat.fence),
        },
        owned: owned.map((fence) => (fence === undefined ? undefined : rank(index, fence))),
      };
    }),
    rows: state.rows.map((row, index) =>
      row && { fence: rank(index, row.fence), until: Math.max(0, row.until - time) }
    ),
    claims: state.claims.map((claim) =>
      claim && { gateway: claim.gateway, fence: rank(indexOf(claim.gateway), claim.fence) }
    ),
  };
}

/** Returns the fences of a gateway that anything knows, the oldest first. */
function ranksOf(state: State, { hold, beat, owned }: Gateway, index: number): readonly number[] {
  const fences = [hold?.fence, beat?.fence, ...owned, state.rows[index]?.fence];
  for (const claim of state.claims) {
    if (claim !== undefined && indexOf(claim.gateway) === index) fences.push(claim.fence);
  }
  return [...new Set(fences.filter((fence) => fence !== undefined))].sort((a, b) => a - b);
}

function localTime({ time }: State, { slept }: Gateway): Instant {
  return { monotonic: time - slept, wall: time };
}

/** Returns a state in which a gateway does not work on a run any more. */
function withoutWork(state: State, index: number, run: number): State {
  const { owned, works, effects } = at(state.gateways, index);
  return withGateway(state, index, {
    owned: replaced(owned, run, undefined),
    works: replaced(works, run, false),
    effects: replaced(effects, run, false),
  });
}

/** Returns a text that two normalised states share if they are the same: a character for each of their values. */
function keyOf({ isDown, isBack, rows, claims, ended, gateways }: State): string {
  const codes: number[] = [codeOf(isDown), codeOf(isBack), ...ended.map(codeOf)];
  for (const row of rows) codes.push(codeOf(row?.fence), codeOf(row?.until));
  for (const claim of claims) codes.push(claim === undefined ? 0 : indexOf(claim.gateway) + 1, codeOf(claim?.fence));
  for (const { status, isLinked, hold, beat, isFresh, owned, works, effects } of gateways) {
    codes.push(STATUSES.indexOf(status), codeOf(isLinked), codeOf(isFresh), codeOf(hold?.fence));
    for (const instant of [hold?.sentAt, hold?.unbrokenSince, beat?.sentAt]) {
      codes.push(codeOf(instant?.monotonic), codeOf(instant?.wall));
    }
    codes.push(codeOf(beat?.fence), ...owned.map(codeOf), ...works.map(codeOf), ...effects.map(codeOf));
  }
  return String.fromCharCode(...codes);
}

/** Times go back to -LONG_AGO; an undefined value is 0. */
const codeOf = (value: number | boolean | undefined) => value === undefined ? 0 : Number(value) + LONG_AGO + 1;

function nameOf(index: number): string {
  return "ABC"[index] ?? "?";
}

function indexOf(name: string): number {
  return "ABC".indexOf(name);
}

function at<T>(items: readonly T[], index: number): T {
  return items[index] as T; // the index is one of the list's
}

function replaced<T>(items: readonly T[], index: number, item: T): readonly T[] {
  return items.map((old, i) => (i === index ? item : old));
}

function withGateway(state: State, index: number, change: Partial<Gateway>): State {
  return { ...state, gateways: replaced(state.gateways, index, { ...at(state.gateways, index), ...change }) };
}
