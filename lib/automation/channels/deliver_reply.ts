import type { Clock } from "../../base/clock.ts";
import { withEffectRight } from "../../base/effect_right.ts";
import type { KeyedMutex, KeyedSemaphore } from "../../base/keyed_queues.ts";
import type { Random } from "../../base/random.ts";
import type { Run } from "../../base/records/run.ts";
import type { Halts, HaltSubject } from "../../guard/halts.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Counter, Family } from "../../base/telemetry/metrics.ts";
import type { RunSupervisor } from "../../runs/run_request.ts";
import type { Store } from "../../storage/store.ts";
import type { WorkHold } from "../../cluster/work_hold.ts";
import type { GuardedFetch } from "../../system/net/guarded_fetch.ts";
import type { UrlRules } from "../../system/net/url_rules.ts";
import type { AlertWork } from "../notify/alert_work.ts";
import { type AlertRecord, changeOf, DELIVERIES, type DeliveryRecord, isAlert } from "./delivery_record.ts";
import { type FailedAttempt, type ReplyTarget, sendRunReply } from "./send_delivery.ts";

/** Store, clock, runs and settings that replies are delivered with. */
export interface DeliverOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** undefined while there is no agent */
  readonly runs: () => RunSupervisor | undefined;
  /** Returns the fetch that every attempt uses. It is made at the first */
  readonly fetch: () => Promise<GuardedFetch>;
  /** Work that a person has halted: no attempt begins then, and one under way is broken off. Default: nobody halts any */
  readonly halts?: Pick<Halts, "refusalOf" | "watch" | "untilResumed"> | undefined;
  /** Returns the channel as the configuration has it now. undefined: there is no such channel, or it has no `reply_url` */
  readonly targetOf: (channel: string) => ReplyTarget | undefined;
  readonly rules: () => UrlRules;
  readonly environment: (name: string) => string | undefined;
  /** Messages of `[[notify]]`. Default: there are none */
  readonly alerts?: AlertWork | undefined;
}

/** Options, and the state that all deliveries share. */
export interface DeliverContext extends DeliverOptions {
  /** Bounds the attempts to one channel at a time: a slow receiver holds up no other */
  readonly semaphore: KeyedSemaphore;
  /** Sends the messages of a rule one after the other, so that those that wait go as one */
  readonly oneAtATime: KeyedMutex;
  /** Tells whether a delivery is this gateway's. */
  readonly isHere: (id: string) => boolean;
  /** Ended deliveries by status */
  readonly ended: Family<Counter>;
  /** Aborts when no further attempt begins */
  readonly stopping: AbortSignal;
  /** Aborts the attempts that are under way */
  readonly breaking: AbortSignal;
  /** Right of this gateway to the delivery in a cluster. Undefined: the gateway is alone */
  readonly hold?: WorkHold | undefined;
}

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const DAY_MS = 24 * 60 * MINUTE_MS;
/** Waits between attempts, each up to a fifth longer or shorter. One attempt more than there are waits. */
const BACKOFF_MS = [5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800].map((seconds) => seconds * SECOND_MS);
/** After the run's end no attempt begins later than this. */
const MAX_AGE_MS = DAY_MS;
/** Milliseconds between two looks at a run that waits for a person's review. */
const REVIEW_MS = MINUTE_MS;
/** Longest wait for a person's review. */
const MAX_REVIEW_MS = 30 * DAY_MS;

/** Deliveries that one attempt is for: a reply, or messages that go as one. */
type Group = readonly [DeliveryRecord, ...DeliveryRecord[]];

/**
 * Waits for the end of a run and delivers its reply, or waits for the time of a message and sends it, attempt
 * after attempt, until it is delivered or given up.
 * @throws {CancelError} when `stopping` aborts, and when others own the delivery
 */
export async function deliverReply(runId: string, given: DeliverContext): Promise<void> {
  const { store, clock, hold } = given;
  const signal = hold === undefined ? given.stopping : AbortSignal.any([given.stopping, hold.lost]);
  const context = { ...given, stopping: signal };
  let record = (await DELIVERIES.read(store, runId))?.value;
  while (record !== undefined && record.status === "waiting") {
    if (isAlert(record)) {
      record = await deliverAlert(record, context);
      continue;
    }
    const runs = context.runs();
    if (runs === undefined) return;
    const run = await runs.ended(runId, signal);
    if (run === undefined) return await fail([record], "nothing is known of the run any more", context);
    if (run.status === "needs_review") {
      if (clock.now() - Date.parse(record.released_at ?? record.accepted_at) > MAX_REVIEW_MS) {
        return await fail([record], "the run waited too long for a person's review", context);
      }
      await clock.sleep(REVIEW_MS, signal);
      continue;
    }
    const wait = record.next_attempt_at === null ? 0 : Date.parse(record.next_attempt_at) - clock.now();
    if (wait > 0) await clock.sleep(wait, signal);
    record = await attempt([record], run, context);
  }
}

/** Waits until a message may be sent, and makes one attempt for it and those that go with it. @returns the message as it is then */
async function deliverAlert(record: AlertRecord, context: DeliverContext): Promise<DeliveryRecord | undefined> {
  const { store, clock, stopping, alerts } = context;
  const { run_id: id, channel } = record;
  const read = async () => (await DELIVERIES.read(store, id))?.value;
  if (alerts === undefined) return void await fail([record], "there is no [[notify]] any more", context);
  const wait = alerts.waitMs(record);
  if (wait > 0) {
    await clock.sleep(wait, stopping);
    return await read();
  }
  return await context.oneAtATime(channel, async () => {
    const now = await read();
    // Another message may have taken it along
    if (now?.status !== "waiting" || !isAlert(now) || alerts.waitMs(now) > 0) return now;
    const { group: [first, ...others], settled } = await alerts.gather(now, context.isHere);
    if (settled.length > 0) {
      const ended_at = toIso(clock.now());
      await write(settled.map((each) => ({ ...each, status: "dropped", next_attempt_at: null, ended_at })), context);
    }
    if (first === undefined) return await read();
    // Each has its own time: one that is too old takes no younger one along
    const isLate = (each: DeliveryRecord) => ageOf(each, undefined, clock.now()) > MAX_AGE_MS;
    const [fresh, ...more] = [first, ...others].filter((each) => !isLate(each));
    for (const each of [first, ...others].filter(isLate)) await fail([each], tooLate(each), context);
    if (fresh !== undefined) await attempt([fresh, ...more], undefined, context);
    return await read();
  });
}

/**
 * Makes one attempt. An attempt that was broken off since this gateway might not act any more counts for nothing.
 * @returns the delivery as it waits for the next attempt; undefined when it has ended
 */
async function attempt(
  group: Group,
  run: Run | undefined,
  context: DeliverContext,
): Promise<DeliveryRecord | undefined> {
  const { clock, semaphore, stopping, hold, halts, alerts } = context;
  const [record] = group;
  const { channel } = record;
  const target = run && context.targetOf(channel);
  if (run !== undefined && target === undefined) {
    return void await fail(group, `[channels.${channel}] has no reply_url any more`, context);
  }
  const subject = { tool: "", access: "network", runId: record.run_id } as const;
  await halts?.untilResumed(subject, stopping);
  const fetch = await context.fetch();
  const outcome = await semaphore.pass(channel, stopping, async () => {
    await hold?.mayAct(stopping);
    // The gateway was down, or others went first: a receiver may have forgotten by now which replies it has had
    if (ageOf(record, run, clock.now()) > MAX_AGE_MS) return undefined;
    const send = (halted: AbortSignal) =>
      sendWithin(async (given) => {
        const options = { ...context, fetch, rules: context.rules(), signal: AbortSignal.any([given, halted]) };
        if (run !== undefined && target !== undefined) return await sendRunReply(record, run, { ...options, target });
        return await alerts?.send(group.filter(isAlert), options);
      }, context);
    return await unlessHalted(subject, halts, send);
  });
  if (outcome === undefined) return void await fail(group, tooLate(record), context);
  if (outcome.kind === "broken") return record;
  const tried = change(group, (each) => ({ ...each, attempts: each.attempts + 1 }));
  if (outcome.kind === "failed") return await afterFailure(tried, run, { outcome, context });
  await end(change(tried, (each) => ({ ...each, status: "delivered", last_error: null })), context);
  context.log.debug(`${what(tried)} was delivered`, named(tried));
  return undefined;
}

/** Makes an attempt that a halt breaks off. */
async function unlessHalted<T>(
  subject: HaltSubject,
  halts: DeliverOptions["halts"],
  send: (halted: AbortSignal) => Promise<T>,
): Promise<T | { readonly kind: "broken" }> {
  const halted = new AbortController();
  if (halts?.refusalOf(subject) !== undefined) return { kind: "broken" };
  const unwatch = halts?.watch(subject, (error) => halted.abort(error));
  try {
    return await send(halted.signal);
  } catch (error) {
    if (!halted.signal.aborted) throw error;
    return { kind: "broken" };
  } finally {
    unwatch?.();
  }
}

/** Makes an attempt that ends with the deadline of this gateway, since another may make the next one then. */
async function sendWithin<T>(
  send: (signal: AbortSignal) => Promise<T>,
  { breaking, hold }: Pick<DeliverContext, "breaking" | "hold">,
): Promise<T | { readonly kind: "broken" }> {
  if (hold === undefined) return await send(breaking);
  const deadline = hold.deadline();
  const right = { mayAct: () => hold.mayAct(breaking), mayActNow: () => hold.mayActNow() };
  try {
    return await withEffectRight({ right }, () => send(AbortSignal.any([breaking, deadline.signal])));
  } catch (error) {
    if (breaking.aborted || !deadline.signal.aborted) throw error;
    return { kind: "broken" };
  } finally {
    deadline.clear();
  }
}

/** Puts the next attempt off, or gives up what has had its attempts or its time. @returns as `attempt` */
async function afterFailure(
  group: Group,
  run: Run | undefined,
  { outcome, context }: { readonly outcome: FailedAttempt; readonly context: DeliverContext },
): Promise<DeliveryRecord | undefined> {
  const { clock, random, log } = context;
  const { reason } = outcome;
  const [byte = 128] = random.bytes(1);
  // Messages that wait together go on together: as soon as one of them may, and each no longer than its own attempts and age allow
  const waits = new Map(group.map((each) => [each, waitAfter(each, outcome, byte)]));
  const next = clock.now() + Math.min(...[...waits.values()].filter((wait) => wait !== undefined));
  const goesOn = (each: DeliveryRecord) => waits.get(each) !== undefined && ageOf(each, run, next) <= MAX_AGE_MS;
  const [ended, ...alsoEnded] = group.filter((each) => !goesOn(each));
  if (ended !== undefined) await fail([ended, ...alsoEnded], reason, context);
  const [left, ...alsoLeft] = group.filter(goesOn);
  if (left === undefined) return undefined;
  const waiting = change(
    [left, ...alsoLeft],
    (each) => ({ ...each, last_error: reason, next_attempt_at: toIso(next) }),
  );
  log.warn(`${what(waiting)} could not be delivered yet`, { ...named(waiting), reason });
  await write(waiting, context);
  return waiting[0];
}

function change([first, ...others]: Group, next: (each: DeliveryRecord) => DeliveryRecord): Group {
  return [next(first), ...others.map(next)];
}

/** Records changes of deliveries, all or none. @throws {CancelError} `shutdown` when others own them now */
async function write(records: readonly DeliveryRecord[], { store, hold, breaking }: DeliverContext): Promise<void> {
  const writes = records.flatMap(changeOf);
  if (hold === undefined) await store.batch(writes);
  else await hold.write(writes, breaking);
}

/** Returns the milliseconds until the next attempt. Undefined: there is none. @param byte random, for a part of the wait */
function waitAfter({ attempts }: DeliveryRecord, outcome: FailedAttempt, byte: number): number | undefined {
  const wait = BACKOFF_MS[attempts - 1];
  if (wait === undefined || outcome.isFinal) return undefined;
  return Math.max(wait * (0.8 + byte / 640), outcome.retryAfterMs);
}

async function fail(group: Group, reason: string, context: DeliverContext): Promise<void> {
  await end(change(group, (each) => ({ ...each, status: "failed", last_error: reason })), context);
  context.log.error(`${what(group)} could not be delivered`, { ...named(group), reason });
}

async function end(group: Group, context: DeliverContext): Promise<void> {
  const { clock, ended } = context;
  await write(change(group, (each) => ({ ...each, next_attempt_at: null, ended_at: toIso(clock.now()) })), context);
  for (const { status } of group) ended.with(status).add();
}

/** Returns the beginning of a sentence of the log about deliveries. */
function what([first]: Group): string {
  return isAlert(first) ? "A message of [[notify]]" : "A reply";
}

/** Returns the fields that name deliveries in the log: the first, and how many went with it. */
function named([{ run_id, channel, attempts }, ...others]: Group): Readonly<Record<string, unknown>> {
  return { run_id, channel, attempts, ...(others.length === 0 ? {} : { with_it: others.length }) };
}

/** Returns the milliseconds since the run's end, or since a person released the delivery, whichever is later. */
function ageOf(record: DeliveryRecord, run: Run | undefined, now: number): number {
  const ended = Date.parse(run?.ended_at ?? record.accepted_at);
  return now - (record.released_at === undefined ? ended : Math.max(ended, Date.parse(record.released_at)));
}

function tooLate({ last_error }: DeliveryRecord): string {
  const reason =
    "no attempt begins later than a day after the run's end, and the gateway was not running or too busy before";
  return last_error === null ? reason : `${reason}; the last attempt: ${last_error}`;
}

function toIso(ms: number): string {
  return new Date(ms).toISOString();
}
